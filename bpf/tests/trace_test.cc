// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// TRACE, which events: every kind of event, from the program that decides it, with the request as it then is.
#include <arpa/inet.h>
#include <netinet/in.h>

#include "bpf/tests/test_links.h"
#include "bpf/tests/trace_fixture.h"

namespace hedgerow::packets {
namespace {

using ::testing::ElementsAre;

constexpr uint8_t kServFail = 2;

class TraceTest : public TracedPacketTest {
 protected:
  void SetUp() override {
    TracedPacketTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) Trace();
  }
  // A request to dns4 whose first event is read already.
  uint32_t Ask(uint16_t id) {
    Split(DnsRequest4(id));
    Only(HR_TRACE_SPLIT);
    return FindDns(id);
  }
  RunResult Release(const RunResult &nack) { return Clock(nack.packet, {.mark = nack.mark}); }
};

TEST_F(TraceTest, ASplitTellsTheWholeRequest) {
  const uint64_t before = NowNs();
  Split(DnsRequest4(0x1234));
  const hr_trace_event event = Only(HR_TRACE_SPLIT);
  const uint32_t index = FindDns(0x1234);
  EXPECT_EQ(IndexOf(event), index);
  EXPECT_EQ(event.request >> 32, HR_WORD_GENERATION(Request(index).word));
  EXPECT_EQ(event.key.service, kDns4Service);
  EXPECT_EQ(ntohs(event.key.client_port_be), kClientPort);
  EXPECT_EQ(event.key.client.words[3], inet_addr(kClient4));
  EXPECT_THAT(std::vector<int>(event.key.correlation, event.key.correlation + 3), ElementsAre(0x12, 0x34, 0));
  EXPECT_EQ(event.key.pad, 2u) << "bytes of the key";
  EXPECT_EQ(event.sent_ns, Request(index).sent_ns);
  EXPECT_GE(event.time_ns, before);
  EXPECT_EQ(event.due_ns, event.sent_ns + 200 * kMillisecond) << "parked until then";
  EXPECT_EQ(event.masks, HR_MASKS_SENT(0b1));
  EXPECT_EQ(event.bytes, Layer3(DnsRequest4(0x1234)).size());
  EXPECT_EQ(event.backend, 0);
  EXPECT_EQ(event.first, 0);
  EXPECT_EQ(event.state, HR_STATE_PENDING);
  EXPECT_EQ(event.sequence, 1);
}

TEST_F(TraceTest, WhatIsPassedThroughSaysWhy) {
  ASSERT_TRUE(plane().policy().SetBypass("dns4", true).ok());
  Split(DnsRequest4(7));
  const hr_trace_event event = Only(HR_TRACE_PASSED);
  EXPECT_EQ(event.reason, HR_REASON_BYPASS);
  EXPECT_EQ(event.request, 0u);
  EXPECT_EQ(event.backend, 0);
  EXPECT_EQ(event.key.correlation[1], 7) << "known by its key all the same";
  EXPECT_EQ(ntohs(event.key.client_port_be), kClientPort);
  Reply(DnsReply4(7, kA4));
  const hr_trace_event answer = Only(HR_TRACE_ANSWER);
  EXPECT_EQ(answer.request, 0u);
  EXPECT_EQ(memcmp(&answer.key, &event.key, sizeof(answer.key)), 0) << "they can be put together";
}

TEST_F(TraceTest, PacketsThatCannotBeParkedAreToldToo) {
  Split(PacketBuilder(kClient4, kSingle4).Udp(kClientPort, kRawPort, {1, 2, 3, 4}).Build());
  EXPECT_EQ(Only(HR_TRACE_PASSED).reason, HR_REASON_NOT_HEDGED);
  Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {1}).Build());
  const hr_trace_event event = Only(HR_TRACE_PASSED);
  EXPECT_EQ(event.reason, HR_REASON_UNKNOWN_OPERATION);
  EXPECT_EQ(event.key.correlation[0], 0) << "too short to have a key";
}

TEST_F(TraceTest, ARetransmissionIsAPassedPacketOfTheSameKey) {
  Ask(1);
  Split(DnsRequest4(1));
  EXPECT_EQ(Only(HR_TRACE_PASSED).reason, HR_REASON_RETRANSMISSION);
}

TEST_F(TraceTest, TheAnswerAndItsFurtherDatagrams) {
  const uint32_t request = Ask(1);
  Reply(DnsReply4(1, kA4));
  const hr_trace_event event = Only(HR_TRACE_ANSWER);
  EXPECT_EQ(IndexOf(event), request);
  EXPECT_EQ(event.backend, 0);
  EXPECT_EQ(event.winner, 0);
  EXPECT_EQ(event.state, HR_STATE_ANSWERED);
  EXPECT_EQ(HR_ANSWERED_MASK(event.masks), 0b1u);
  EXPECT_EQ(event.sequence, 2);
  Reply(DnsReply4(1, kA4));
  EXPECT_EQ(Only(HR_TRACE_ANSWER).sequence, 3);
}

TEST_F(TraceTest, DueHedgedAnsweredAndTheLoserDropped) {
  const uint32_t request = Ask(1);
  FireNow(request);
  const std::vector<hr_trace_event> fired = Events();
  ASSERT_THAT(Kinds(fired), ElementsAre(HR_TRACE_DUE, HR_TRACE_HEDGE));
  EXPECT_EQ(fired[1].backend, 1);
  EXPECT_EQ(fired[1].flags, 0) << "a hedge";
  EXPECT_EQ(HR_SENT_MASK(fired[1].masks), 0b11u);
  EXPECT_EQ(fired[1].attempts, 2);
  EXPECT_NE(fired[1].fire_ns, 0u);
  Reply(DnsReply4(1, kB4));
  const hr_trace_event answer = Only(HR_TRACE_ANSWER);
  EXPECT_EQ(answer.backend, 1);
  EXPECT_EQ(answer.winner, 1);
  Reply(DnsReply4(1, kA4));
  const hr_trace_event loser = Only(HR_TRACE_DROPPED);
  EXPECT_EQ(loser.reason, HR_REASON_LOSER);
  EXPECT_EQ(loser.backend, 0);
  EXPECT_EQ(loser.winner, 1);
  EXPECT_EQ(loser.sequence, 5);
}

TEST_F(TraceTest, AHedgeThatIsNotMadeSaysWhy) {
  const uint32_t request = Ask(1);
  ServiceState(kDns4Service).budget_micros = 0;
  FireNow(request);
  const std::vector<hr_trace_event> events = Events();
  ASSERT_THAT(Kinds(events), ElementsAre(HR_TRACE_DUE, HR_TRACE_NO_HEDGE));
  EXPECT_EQ(events[1].reason, HR_REASON_NO_BUDGET);
  EXPECT_GT(events[0].time_ns, events[0].sent_ns);
}

TEST_F(TraceTest, ASuspectLeadersCopyAtOnce) {
  Silence(kDns4A, 41 * kSecond);
  Split(DnsRequest4(1));
  const std::vector<hr_trace_event> events = Events();
  ASSERT_THAT(Kinds(events), ElementsAre(HR_TRACE_SPLIT, HR_TRACE_COPY));
  EXPECT_EQ(events[0].backend, 0);
  EXPECT_EQ(events[1].backend, 1);
  EXPECT_EQ(HR_FAILOVER_MASK(events[1].masks), 0b10u);
  Clones(HR_MARK_SEND, 1);
}

TEST_F(TraceTest, ANackBecomesTheNextAttempt) {
  Ask(1);
  const RunResult nack = Reply(DnsReply4(1, kA4, kServFail));
  const hr_trace_event dropped = Only(HR_TRACE_NACK);
  EXPECT_EQ(dropped.reason, HR_REASON_NACK);
  EXPECT_EQ(dropped.flags, HR_TRACE_RELEASED);
  EXPECT_EQ(HR_NOT_AWAITED_MASK(dropped.masks), 0b1u);
  EXPECT_EQ(dropped.state, HR_STATE_PENDING);
  Release(nack);
  const hr_trace_event sent = Only(HR_TRACE_RELEASE);
  EXPECT_EQ(sent.backend, 1);
  EXPECT_EQ(sent.flags, HR_TRACE_FAILOVER);
  Reply(DnsReply4(1, kB4, kServFail));
  const hr_trace_event last = Only(HR_TRACE_ANSWER);
  EXPECT_EQ(last.state, HR_STATE_NACKED) << "the last nack went to the client";
  EXPECT_EQ(last.winner, 1);
}

TEST_F(TraceTest, AnUnreachablePortIsANackOfItsOwnKind) {
  Ask(1);
  const Bytes quoted =
      Layer3(PacketBuilder(kClient4, kA4).Udp(kClientPort, 53, DnsQuery(1, "www.example.org")).Build());
  const RunResult nack = Reply(PacketBuilder(kA4, kClient4).IcmpError(3, 3, quoted).Build());
  EXPECT_EQ(Only(HR_TRACE_NACK).flags, HR_TRACE_RELEASED | HR_TRACE_ICMP);
  Release(nack);
  Only(HR_TRACE_RELEASE);
  const Bytes of_b = Layer3(PacketBuilder(kClient4, kB4).Udp(kClientPort, 53, DnsQuery(1, "www.example.org")).Build());
  Reply(PacketBuilder(kB4, kClient4).IcmpError(3, 3, of_b).Build());
  const hr_trace_event last = Only(HR_TRACE_ANSWER);
  EXPECT_EQ(last.flags, HR_TRACE_ICMP);
  EXPECT_EQ(last.state, HR_STATE_NACKED);
}

TEST_F(TraceTest, ANewLeaderGetsWhatWentElsewhere) {
  Split(HkvRequest4(1));
  Only(HR_TRACE_SPLIT);
  AnnounceLeader(kC4, 5);
  for (int lap = 0; lap < 20 && (Wheel().handover != 0 || Wheel().handover_services != 0); ++lap) Lap();
  const hr_trace_event event = Only(HR_TRACE_HANDOVER);
  EXPECT_EQ(event.backend, 2);
  EXPECT_EQ(event.flags, HR_TRACE_FAILOVER);
  EXPECT_EQ(IndexOf(event), FindHkv(1));
  EXPECT_EQ(event.key.pad, 16u);
  Clones(HR_MARK_SEND, 1);
}

TEST_F(TraceTest, ANackThatNamesTheLeaderIsFollowedThere) {
  Split(HkvRequest4(1));
  Only(HR_TRACE_SPLIT);
  const RunResult nack = Reply(HkvReply4(1, kA4, 7 /* NOT_LEADER */, 3));
  Only(HR_TRACE_NACK);
  Release(nack);
  const hr_trace_event sent = Only(HR_TRACE_RELEASE);
  EXPECT_EQ(sent.backend, 2);
  EXPECT_EQ(sent.flags, HR_TRACE_FAILOVER | HR_TRACE_HINTED);
}

TEST_F(TraceTest, TheDeadline) {
  const uint32_t request = Ask(1);
  FireNow(request);  // with one backend asked nothing would be remembered
  Events();
  MakeExpired(request);
  VisitAll();
  const hr_trace_event event = Only(HR_TRACE_EXPIRED);
  EXPECT_EQ(event.state, HR_STATE_EXPIRED);
  EXPECT_EQ(event.winner, HR_NO_BACKEND);
  Reply(DnsReply4(1, kA4));
  EXPECT_EQ(Only(HR_TRACE_ANSWER).state, HR_STATE_EXPIRED) << "late, and given to the client";
}

TEST_F(TraceTest, AKeyThatWaitsIsUsedAgain) {
  Ask(1);
  Split(DnsRequest4(1, "other.example.org"));
  EXPECT_EQ(Only(HR_TRACE_PASSED).reason, HR_REASON_KEY_BUSY);
}

TEST_F(TraceTest, ALoserAfterItsRetentionHasNoRequestAnyMore) {
  const uint32_t request = Ask(1);
  FireNow(request);
  Reply(DnsReply4(1, kB4));
  EndRetention(request);
  VisitAll();
  ASSERT_EQ(FindDns(1), 0u);
  Events();
  Reply(DnsReply4(1, kA4));
  const hr_trace_event event = Only(HR_TRACE_DROPPED);
  EXPECT_EQ(event.reason, HR_REASON_LATE);
  EXPECT_EQ(event.request, 0u);
  EXPECT_EQ(event.key.correlation[1], 1);
}

TEST_F(TraceTest, OverIpv6Too) {
  Split(PacketBuilder(kClient6, kDns6).Udp(kClientPort, kDnsPort, DnsQuery(1, "a.org")).Build());
  const hr_trace_event split = Only(HR_TRACE_SPLIT);
  hr_address client{};
  inet_pton(AF_INET6, kClient6, client.bytes);
  EXPECT_EQ(memcmp(&split.key.client, &client, sizeof(client)), 0);
  Reply(PacketBuilder(kA6, kClient6).Udp(kBackendDnsPort6, kClientPort, DnsAnswer(DnsQuery(1, "a.org"))).Build());
  EXPECT_EQ(Only(HR_TRACE_ANSWER).request, split.request);
}

TEST_F(TraceTest, ARequestIsToldABoundedNumberOfEvents) {
  Ask(1);
  Reply(DnsReply4(1, kA4));
  for (int i = 0; i < 2 * HR_TRACE_EVENTS_PER_REQUEST; ++i) Reply(DnsReply4(1, kA4));
  EXPECT_EQ(Events().size(), static_cast<size_t>(HR_TRACE_EVENTS_PER_REQUEST - 1)) << "the split was the first";
}

}  // namespace
}  // namespace hedgerow::packets
