// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// REPLY, answers: the first one wins and reaches the client in the VIP's name, the losers' are dropped, and
// what belongs to nobody who asked through the proxy is untouched. Nacks are in nack_test.cc, ICMP in
// icmp_test.cc.
#include <netinet/in.h>

#include "bpf/tests/checksum.h"
#include "bpf/tests/kernel_fixture.h"
#include "bpf/tests/test_links.h"

namespace hedgerow::packets {
namespace {

using ::testing::Contains;
using ::testing::Pair;

class ReplyTest : public PacketTest {
 protected:
  // A request to raw4 and a datagram from one of its backends with the same four bytes.
  RunResult Ask(uint8_t id, uint16_t port = kClientPort) {
    return Split(PacketBuilder(kClient4, kRaw4).Udp(port, kRawPort, {id, 0, 0, 0, 1}).Build());
  }
  uint32_t Find(uint8_t id, uint16_t port = kClientPort) {
    return FindRequest(kRaw4Service, kClient4, port, {id, 0, 0, 0});
  }
  RunResult Answer(uint8_t id, const char *backend, Bytes more = {42}, uint16_t port = kClientPort) {
    Bytes payload = {id, 0, 0, 0};
    payload.insert(payload.end(), more.begin(), more.end());
    return Reply(PacketBuilder(backend, kClient4).Udp(9000, port, payload).Build());
  }
  // Asked of a, and hedged by b.
  uint32_t AskBoth(uint16_t id) {
    Split(DnsRequest4(id));
    const uint32_t request = FindDns(id);
    FireNow(request);
    EXPECT_EQ(SentTo(request), 0b11u);
    return request;
  }
  void ExpectUntouched(const Bytes &packet, const Changes &changes, const RunContext &context = {}) {
    const RunResult run = Reply(packet, context);
    EXPECT_EQ(run.verdict, kUntouched);
    EXPECT_EQ(run.packet, packet);
    EXPECT_EQ(run.changes, changes);
  }
};

TEST_F(ReplyTest, TheFirstAnswerReachesTheClientFromTheVip) {
  Split(DnsRequest4(1));
  const uint32_t request = FindDns(1);
  const RunResult run = Reply(DnsReply4(1, kA4));
  EXPECT_EQ(run.verdict, kRedirected);
  EXPECT_EQ(Layer3(run.packet), Layer3(PacketBuilder(kDns4, kClient4)
                                           .Udp(kDnsPort, kClientPort, DnsAnswer(DnsQuery(1, "www.example.org")))
                                           .Build()));
  EXPECT_EQ(Read(run.packet).destination_mac, TestLinks::Get().proxy.mac) << "else it is for another host";
  EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("dns4.won_by_first", 1), Pair("dns4.replies", 1)));
  EXPECT_EQ(StateOf(request), HR_STATE_ANSWERED);
  EXPECT_EQ(WinnerOf(request), 0);
}

TEST_F(ReplyTest, TheFirstAnswerOverIpv6ComesFromTheVipsPort) {
  Split(PacketBuilder(kClient6, kDns6).Udp(kClientPort, kDnsPort, DnsQuery(1, "a.org")).Build());
  const RunResult run =
      Reply(PacketBuilder(kA6, kClient6).Udp(kBackendDnsPort6, kClientPort, DnsAnswer(DnsQuery(1, "a.org"))).Build());
  EXPECT_EQ(run.verdict, kRedirected);
  EXPECT_EQ(Layer3(run.packet),
            Layer3(PacketBuilder(kDns6, kClient6).Udp(kDnsPort, kClientPort, DnsAnswer(DnsQuery(1, "a.org"))).Build()));
  EXPECT_EQ(ChecksumFault(run.packet), "");
}

TEST_F(ReplyTest, AnAnswerIsNoLongerLive) {
  Split(DnsRequest4(1));
  const uint32_t slot = Request(FindDns(1)).armed - 1;
  EXPECT_EQ(Wheel().fine[slot].live, 1u);
  Reply(DnsReply4(1, kA4));
  EXPECT_EQ(Wheel().fine[slot].live, 0u) << "the clock need not hurry for it";
}

TEST_F(ReplyTest, AHedgeWinsAndTheLateLoserIsDropped) {
  const uint32_t request = AskBoth(1);
  const RunResult won = Reply(DnsReply4(1, kB4));
  EXPECT_EQ(won.verdict, kRedirected);
  EXPECT_THAT(won.changes, UnorderedElementsAre(Pair("dns4.won_by_hedge", 1), Pair("dns4.replies", 1)));
  EXPECT_EQ(WinnerOf(request), 1);
  const RunResult lost = Reply(DnsReply4(1, kA4));
  EXPECT_EQ(lost.verdict, kDropped);
  EXPECT_THAT(lost.changes, UnorderedElementsAre(Pair("dns4.losers_dropped", 1), Pair("dns4:loser", 1)));
}

// The answer that ends a request gives its copy back, so copies are held for as long as answers take, whatever the
// delay is.
TEST_F(ReplyTest, CopiesAreHeldAsLongAsAnswersTake) {
  constexpr uint16_t kWaiting = 5;
  for (uint16_t id = 1; id <= 120; ++id) {  // of 128 copies a client may hold a half; no lap runs
    ASSERT_THAT(Split(DnsRequest4(id)).changes, UnorderedElementsAre(Pair("dns4.requests", 1))) << id;
    if (id > kWaiting) ASSERT_EQ(Reply(DnsReply4(id - kWaiting, kA4)).verdict, kRedirected) << id;
    ASSERT_EQ(CopiesInUse(), std::min(id, kWaiting)) << id;
  }
  const uint32_t hedged = AskBoth(200);
  Reply(DnsReply4(200, kB4));
  EXPECT_EQ(Request(hedged).parked, 0u);
  const uint32_t refused = AskBoth(201);
  Reply(DnsReply4(201, kB4, /*rcode=*/2));
  EXPECT_NE(Request(refused).parked, 0u) << "a may still answer";
  Reply(DnsReply4(201, kA4, /*rcode=*/2));
  EXPECT_EQ(StateOf(refused), HR_STATE_NACKED);
  EXPECT_EQ(Request(refused).parked, 0u);
  Clones(HR_MARK_HEDGE, 1);
}

// The word says that the request is answered, and the program that has written it still works with the entry: its copy
// is there. That may take long, where its virtual processor is taken away.
TEST_F(ReplyTest, ARequestIsNotFreedUnderTheProgramThatEndsIt) {
  Split(DnsRequest4(1));
  const uint32_t request = FindDns(1), parked = Request(request).parked;
  Reply(DnsReply4(1, kA4));
  Request(request).parked = parked;
  for (const uint64_t later_ns : {20 * kMillisecond, 2 * kSecond}) {
    Advance(later_ns);
    FireNow(request);
    EXPECT_EQ(StateOf(request), HR_STATE_ANSWERED);
    EXPECT_EQ(Request(request).parked, parked);
    EXPECT_EQ(FindDns(1), request);
  }
  Request(request).parked = 0;
  FireNow(request);
  EXPECT_EQ(StateOf(request), HR_STATE_FREE);
}

TEST_F(ReplyTest, TheLoserIsDroppedAfterTheClockLookedToo) {
  const uint32_t request = AskBoth(1);
  Reply(DnsReply4(1, kB4));
  VisitAll();
  EXPECT_EQ(Request(request).parked, 0u) << "the bytes went back";
  EXPECT_EQ(Reply(DnsReply4(1, kA4)).verdict, kDropped);
}

TEST_F(ReplyTest, ALoserAfterItsRetentionIsStillNoAnswer) {
  const uint32_t request = AskBoth(1);
  Reply(DnsReply4(1, kB4));
  EndRetention(request);
  VisitAll();
  EXPECT_EQ(FindDns(1), 0u);
  EXPECT_EQ(Reply(DnsReply4(1, kA4)).verdict, kDropped) << "a long-stalled backend's answer reaches nobody";
}

TEST_F(ReplyTest, AllDatagramsOfTheWinnerPass) {
  AskBoth(1);
  Reply(DnsReply4(1, kB4));
  for (int i = 0; i < 3; ++i) {
    const RunResult run = Reply(DnsReply4(1, kB4));
    EXPECT_EQ(run.verdict, kRedirected);
    EXPECT_EQ(Read(run.packet).source, kDns4);
    EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("dns4.replies", 1)));
  }
}

TEST_F(ReplyTest, TheOnlyBackendAskedMayAnswerInManyDatagramsAsLongAsItLikes) {
  Ask(1);
  EXPECT_EQ(Answer(1, kA4).verdict, kRedirected);
  VisitAll();  // its due time comes: nobody else was asked, nobody can lose
  const RunResult run = Answer(1, kA4, {43});
  EXPECT_EQ(run.verdict, kRedirected) << "the winner's second datagram";
  EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("raw4.replies", 1), Pair("raw4.replies_untracked", 1)));
}

TEST_F(ReplyTest, FragmentsFollowTheirFirstToTheClient) {
  for (const bool ipv6 : {false, true}) {
    SCOPED_TRACE(ipv6 ? "IPv6" : "IPv4");
    const char *client = ipv6 ? kClient6 : kClient4;
    const char *vip = ipv6 ? kRaw6 : kRaw4;
    Split(PacketBuilder(client, vip).Udp(kClientPort, kRawPort, {1, 0, 0, 0}).Build());
    Bytes payload = Pattern(3000, 1);
    payload[0] = 1, payload[1] = payload[2] = payload[3] = 0;
    const auto sent =
        PacketBuilder(ipv6 ? kA6 : kA4, client).Udp(9000, kClientPort, payload).BuildFragments(1400, 0x777);
    const auto wanted = PacketBuilder(vip, client).Udp(kRawPort, kClientPort, payload).BuildFragments(1400, 0x777);
    for (size_t i = 0; i < sent.size(); ++i) {
      const RunResult run = Reply(sent[i]);
      EXPECT_EQ(run.verdict, kRedirected);
      EXPECT_EQ(Layer3(run.packet), Layer3(wanted[i]));
      EXPECT_EQ(Read(run.packet).destination_mac, TestLinks::Get().proxy.mac);
      EXPECT_EQ(run.changes.count(ipv6 ? "raw6.later_fragments" : "raw4.later_fragments"), i == 0 ? 0u : 1u);
    }
  }
}

TEST_F(ReplyTest, TheLosersFragmentsAreDroppedWithTheirFirst) {
  AskBoth(1);
  Reply(DnsReply4(1, kB4));
  Bytes answer = DnsAnswer(DnsQuery(1, "www.example.org"));
  answer.resize(600);
  const auto fragments = PacketBuilder(kA4, kClient4).Udp(53, kClientPort, answer).BuildFragments(256, 0x99);
  EXPECT_EQ(Reply(fragments[0]).verdict, kDropped);
  for (size_t i = 1; i < fragments.size(); ++i) {
    const RunResult run = Reply(fragments[i]);
    EXPECT_EQ(run.verdict, kDropped);
    EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("dns4.later_fragments", 1), Pair("dns4:loser_fragment", 1)));
  }
}

// A stale note must not touch what goes past the proxy: 16 bits of identification come again soon.
TEST_F(ReplyTest, AForeignDatagramWithAnOldIdentificationStaysUntouched) {
  Ask(1);
  const auto ours =
      PacketBuilder(kA4, kClient4).Udp(9000, kClientPort, {1, 0, 0, 0, 5, 5, 5, 5, 6, 6}).BuildFragments(16, 7);
  ASSERT_EQ(Reply(ours[0]).verdict, kRedirected);
  const auto foreign = PacketBuilder(kA4, kClient4).Udp(2049, 700, Pattern(40, 1)).BuildFragments(16, 7);
  for (const Bytes &fragment : foreign) {
    const RunResult run = Reply(fragment);
    EXPECT_EQ(run.verdict, kUntouched);
    EXPECT_EQ(run.packet, fragment);
  }
}

TEST_F(ReplyTest, WithoutAFlowAnAnswerStaysUntouched) {
  ExpectUntouched(DnsReply4(1, kA4), {{"host:no_flow", 1}});
  Split(DnsRequest4(1));
  ExpectUntouched(DnsReply4(1, kA4, 0, "www.example.org", 40001), {{"host:no_flow", 1}});
  ExpectUntouched(DnsReply4(1, kB4), {{"host:no_flow", 1}});
}

TEST_F(ReplyTest, AnOldFlowIsNoFlow) {
  Split(DnsRequest4(1));
  const uint32_t request = FindDns(1);
  Reply(DnsReply4(1, kA4));
  EndRetention(request);
  VisitAll();
  AgeFlow(kClient4, kClientPort, IPPROTO_UDP, HR_FLOW_REPLY, kDns4A, 120 * kSecond);
  ExpectUntouched(DnsReply4(1, kA4), {{"host:no_flow", 1}});
}

TEST_F(ReplyTest, WhenTheFlowMapIsFullTheOldestIsForgotten) {
  ASSERT_TRUE(plane().policy().SetBypass("dns4", true).ok());
  // A client's later flows go to a map of their own, where the first of these stands.
  for (uint16_t port = 1000; port < 1000 + 1024 / HR_FLOW_PARTS; ++port) Split(DnsRequest4(1, "www.example.org", port));
  Split(DnsRequest4(1, "www.example.org", 999));
  for (uint32_t i = 0; i < 4096; ++i)  // many times as many as there are places
    RunUncounted(program_splitter(), DnsRequest4(1, "www.example.org", static_cast<uint16_t>(10000 + i)),
                 {.ifindex = TestLinks::Get().proxy.ifindex});
  ExpectUntouched(DnsReply4(1, kA4, 0, "www.example.org", 999), {{"host:no_flow", 1}});
  EXPECT_EQ(Reply(DnsReply4(1, kA4, 0, "www.example.org", 10000 + 4095)).verdict, kRedirected);
}

TEST_F(ReplyTest, WhatDoesNotComeFromABackendStaysUntouched) {
  Split(DnsRequest4(1));
  ExpectUntouched(DnsReply4(1, "10.77.0.99"), {});
  ExpectUntouched(PacketBuilder(kA4, kClient4).Udp(5353, kClientPort, Text("other port")).Build(), {});
  ExpectUntouched(PacketBuilder(kA4, kClient4).Echo(true, 1, Text("pong")).Build(), {});
}

TEST_F(ReplyTest, WhatComesInByAnotherInterfaceStaysUntouched) {
  Split(DnsRequest4(1));
  ExpectUntouched(DnsReply4(1, kA4), {}, {.ifindex = TestLinks::Get().proxy_peer.ifindex});
}

TEST_F(ReplyTest, MalformedRepliesStayUntouched) {
  Split(DnsRequest4(1));
  const Bytes good = DnsReply4(1, kA4);
  for (size_t bytes = kEthernetBytes + 20; bytes < good.size(); ++bytes) {
    SCOPED_TRACE(bytes);
    ExpectUntouched(CutTo(good, bytes), {});
  }
}

TEST_F(ReplyTest, AnAnswerToAnUntrackedRequestReachesTheClient) {
  ASSERT_TRUE(plane().policy().SetBypass("dns4", true).ok());
  Split(DnsRequest4(1));
  const RunResult run = Reply(DnsReply4(1, kA4));
  EXPECT_EQ(run.verdict, kRedirected);
  EXPECT_EQ(Read(run.packet).source, kDns4);
  EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("dns4.replies", 1), Pair("dns4.replies_untracked", 1)));
}

TEST_F(ReplyTest, WhatIsNoReplyOfTheProfileIsPassedOnAndDecidesNothing) {
  Split(DnsRequest4(1));
  const uint32_t request = FindDns(1);
  for (const Bytes &payload : {DnsQuery(1, "www.example.org"), CutTo(DnsAnswer(DnsQuery(1, "a.org")), 11), Bytes()}) {
    const RunResult run = Reply(PacketBuilder(kA4, kClient4).Udp(53, kClientPort, payload).Build());
    EXPECT_EQ(run.verdict, kRedirected);
    EXPECT_EQ(Read(run.packet).source, kDns4);
    EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("dns4.replies", 1), Pair("dns4.replies_untracked", 1),
                                                  Pair("dns4:not_a_reply", 1)));
    EXPECT_EQ(StateOf(request), HR_STATE_PENDING);
  }
}

TEST_F(ReplyTest, ABackendThatWasNotAskedDecidesNothing) {
  AskBoth(1);  // makes the flow of b known
  Reply(DnsReply4(1, kB4));
  Split(DnsRequest4(2));
  const RunResult run = Reply(DnsReply4(2, kB4));  // forged, or for an older life of the key
  EXPECT_EQ(run.verdict, kDropped);
  EXPECT_EQ(StateOf(FindDns(2)), HR_STATE_PENDING);
}

TEST_F(ReplyTest, AnUntrackedRequestsAnswerPassesAnOlderEntryOfItsKey) {
  Split(DnsRequest4(1));
  ASSERT_TRUE(plane().policy().SetBypass("dns4", true).ok());
  ASSERT_TRUE(plane().policy().PinLeader("dns4", "b").ok());
  Split(DnsRequest4(1, "other.example.org"));
  EXPECT_EQ(Reply(DnsReply4(1, kB4, 0, "other.example.org")).verdict, kRedirected);
  EXPECT_EQ(StateOf(FindDns(1)), HR_STATE_PENDING) << "it was not its answer";
}

TEST_F(ReplyTest, ALateAnswerAfterTheDeadlineStillReachesTheClientOnce) {
  const uint32_t request = AskBoth(1);
  MakeExpired(request);
  EXPECT_EQ(VisitAll(), (Changes{{"dns4.unanswered", 1}}));
  EXPECT_EQ(StateOf(request), HR_STATE_EXPIRED);
  const RunResult late = Reply(DnsReply4(1, kA4));
  EXPECT_EQ(late.verdict, kRedirected);
  EXPECT_THAT(late.changes, UnorderedElementsAre(Pair("dns4.late_answers", 1), Pair("dns4.replies", 1)));
  EXPECT_EQ(Reply(DnsReply4(1, kB4)).verdict, kDropped) << "the other one's";
  EXPECT_EQ(Reply(DnsReply4(1, kA4)).verdict, kRedirected) << "its second datagram";
}

TEST_F(ReplyTest, ASlowOnlyAnswerIsNoLoser) {
  ServiceConfig(kDns4Service).retention_ns = kSecond;
  const uint32_t request = AskBoth(1);
  MakeExpired(request);
  VisitAll();
  EndRetention(request);  // a client's usual patience of 5 s is not over by far
  VisitAll();
  const RunResult late = Reply(DnsReply4(1, kA4));
  EXPECT_EQ(late.verdict, kRedirected) << "nobody has won, nobody can have lost";
  EXPECT_EQ(late.changes.at("dns4.late_answers"), 1);
  EXPECT_EQ(Reply(DnsReply4(1, kB4)).verdict, kDropped);
}

TEST_F(ReplyTest, ASlowAnswerOfTheOnlyOneAskedIsNoLoser) {
  ServiceConfig(kDns4Service).retention_ns = kSecond;
  AskBoth(1);  // this client's requests are hedged, so what belongs to none of them may be a loser's
  Split(DnsRequest4(2));
  const uint32_t request = FindDns(2);
  MakeExpired(request);
  VisitAll();
  EndRetention(request);
  VisitAll();
  EXPECT_EQ(SentTo(request), 0b01u);
  const RunResult late = Reply(DnsReply4(2, kA4));
  EXPECT_EQ(late.verdict, kRedirected);
  EXPECT_EQ(late.changes.at("dns4.late_answers"), 1);
}

TEST_F(ReplyTest, AnAnswerLaterThanTheFlowIsBelievedReachesTheClientOnce) {
  const uint32_t request = AskBoth(1);
  MakeExpired(request);
  VisitAll();
  Advance(12 * kSecond);
  VisitAll();
  ASSERT_EQ(StateOf(request), HR_STATE_FREE);
  const RunResult late = Reply(DnsReply4(1, kB4));
  EXPECT_EQ(late.verdict, kRedirected);
  EXPECT_EQ(Read(late.packet).source, kDns4);
  EXPECT_EQ(late.changes.at("dns4.late_answers"), 1);
  EXPECT_THAT(Reply(DnsReply4(1, kA4)).changes,
              UnorderedElementsAre(Pair("dns4.losers_dropped", 1), Pair("dns4:late", 1)));
  EXPECT_EQ(Reply(DnsReply4(1, kB4)).verdict, kRedirected) << "the same server's second one, as directly";
  Advance(HR_LATE_NS);
  ExpectUntouched(DnsReply4(1, kB4), {{"host:no_flow", 1}});
}

// The client uses the correlation bytes again, and what it gets for them is no loser's.
TEST_F(ReplyTest, AnAnswerGoesOnAlthoughItsBackendLostAnOlderRequest) {
  const auto lose = [this] {
    Ask(1);
    const uint32_t request = Find(1);
    FireNow(request);
    Answer(1, SentTo(request) & 0b10 ? kB4 : kC4);
    EndRetention(request);
    VisitAll();
    ASSERT_EQ(StateOf(request), HR_STATE_FREE);
  };
  lose();
  EXPECT_THAT(Answer(1, kA4).changes, Contains(Pair("raw4:late", 1)));
  Ask(1);
  EXPECT_EQ(Answer(1, kA4).verdict, kRedirected);
  FireNow(Find(1));
  ASSERT_EQ(Find(1), 0u);
  EXPECT_EQ(Answer(1, kA4, {43}).verdict, kRedirected) << "its second datagram, after the due time";
  lose();
  ASSERT_TRUE(plane().policy().SetBypass("raw4", true).ok());
  Ask(1);
  EXPECT_EQ(Answer(1, kA4).verdict, kRedirected) << "to a request that was forwarded";
  EXPECT_EQ(Answer(1, kA4, {43}).verdict, kRedirected);
}

TEST_F(ReplyTest, ALosersOneDatagramIsNotAwaitedForEver) {
  const uint32_t request = AskBoth(1);
  Reply(DnsReply4(1, kB4));
  EndRetention(request);
  VisitAll();
  ASSERT_TRUE(plane().policy().SetBypass("dns4", true).ok());
  Advance(20 * kSecond);
  Split(DnsRequest4(1));
  EXPECT_EQ(Reply(DnsReply4(1, kA4)).verdict, kRedirected) << "to the request that was forwarded";
}

TEST_F(ReplyTest, ANackThatComesLateDecidesNothing) {
  const uint32_t request = AskBoth(1);
  MakeExpired(request);
  VisitAll();
  Advance(12 * kSecond);
  VisitAll();
  ASSERT_EQ(StateOf(request), HR_STATE_FREE);
  const RunResult nack = Reply(DnsReply4(1, kA4, /*rcode=*/2));
  EXPECT_EQ(nack.verdict, kRedirected);
  EXPECT_FALSE(nack.changes.contains("dns4.late_answers"));
  const RunResult answer = Reply(DnsReply4(1, kB4));
  EXPECT_EQ(answer.verdict, kRedirected);
  EXPECT_EQ(answer.changes.at("dns4.late_answers"), 1);
  EXPECT_EQ(Reply(DnsReply4(1, kA4)).verdict, kDropped);
}

TEST_F(ReplyTest, WhatComesLateMakesNoBackendHealthy) {
  const uint32_t request = AskBoth(1);
  Reply(DnsReply4(1, kB4));
  EndRetention(request);
  VisitAll();
  BackendState(kDns4A).health = HR_DOWN;
  BackendState(kDns4A).health_since_ns = NowNs();
  EXPECT_THAT(Reply(DnsReply4(1, kA4)).changes, Contains(Pair("dns4:late", 1)));
  EXPECT_EQ(BackendState(kDns4A).health, HR_DOWN) << "others may queue behind what it works off";
}

// DNS: the reply must echo the question of the newer request, in whatever case.
TEST_F(ReplyTest, AnAnswerToTheOlderQuestionIsStale) {
  AskBoth(7);
  Reply(DnsReply4(7, kB4));
  Split(DnsRequest4(7, "new.example.org"));
  const uint32_t fresh = FindDns(7);
  const RunResult stale = Reply(DnsReply4(7, kA4));
  EXPECT_EQ(stale.verdict, kDropped);
  EXPECT_THAT(stale.changes, UnorderedElementsAre(Pair("dns4.stale_dropped", 1), Pair("dns4:stale", 1)));
  EXPECT_EQ(StateOf(fresh), HR_STATE_PENDING);
  EXPECT_EQ(Reply(DnsReply4(7, kA4, 0, "NeW.eXaMpLe.ORG")).verdict, kRedirected);
  EXPECT_EQ(StateOf(fresh), HR_STATE_ANSWERED);
}

TEST_F(ReplyTest, TheEchoIsComparedToTheLastByte) {
  Split(DnsRequest4(7, "new.example.org"));
  Bytes answer = DnsAnswer(DnsQuery(7, "new.example.org"));
  const size_t type = 12 + 17;  // behind the name
  answer[type + 1] = 28;        // AAAA, not A
  EXPECT_EQ(Reply(PacketBuilder(kA4, kClient4).Udp(53, kClientPort, answer).Build()).verdict, kDropped);
  // Labels are compared with their lengths: "ne.wexample.org" has the same letters.
  EXPECT_EQ(Reply(DnsReply4(7, kA4, 0, "ne.wexample.org")).verdict, kDropped);
  EXPECT_EQ(Reply(DnsReply4(7, kA4, 0, "new.example.or")).verdict, kDropped);
  EXPECT_EQ(Reply(DnsReply4(7, kA4, 0, "new.example.org")).verdict, kRedirected);
}

// The first one keeps the id. Each answer reaches the client once, also where the first one was hedged and in any
// order.
TEST_F(ReplyTest, QuestionsAtOnceUnderOneIdAreAllAnswered) {
  for (const char *name : {"one.example.org", "two.example.org", "three.example.org"}) Split(DnsRequest4(7, name));
  const uint32_t first = FindDns(7);
  FireNow(first);
  const RunResult early = Reply(DnsReply4(7, kA4, 0, "three.example.org"));
  EXPECT_THAT(early.changes, UnorderedElementsAre(Pair("dns4.replies", 1), Pair("dns4.replies_untracked", 1)));
  EXPECT_EQ(StateOf(first), HR_STATE_PENDING) << "it was not its answer";
  EXPECT_EQ(Reply(DnsReply4(7, kB4, 0, "one.example.org")).verdict, kRedirected);
  EXPECT_EQ(Reply(DnsReply4(7, kA4, 0, "one.example.org")).verdict, kDropped);
  EXPECT_EQ(Reply(DnsReply4(7, kA4, 0, "two.example.org")).verdict, kRedirected);
}

// The leader still owes the answer to a question that another backend has answered.
TEST_F(ReplyTest, AnOlderQuestionsAnswerIsStaleBesideForwardedOnesToo) {
  AskBoth(7);
  Reply(DnsReply4(7, kB4));
  Split(DnsRequest4(7, "two.example.org"));
  Split(DnsRequest4(7, "three.example.org"));
  EXPECT_EQ(Reply(DnsReply4(7, kA4)).verdict, kDropped);
  EXPECT_EQ(Reply(DnsReply4(7, kA4, 0, "three.example.org")).verdict, kRedirected);
  EXPECT_EQ(StateOf(FindDns(7)), HR_STATE_PENDING);
}

TEST_F(ReplyTest, ARetransmissionLongAfterTheDeadlineIsAnswered) {
  ServiceConfig(kRaw4Service).deadline_ns = 2 * kSecond;
  ServiceConfig(kRaw4Service).retention_ns = kSecond;
  Ask(1);
  FireNow(Find(1));
  Request(Find(1)).sent_ns = NowNs() - 3500 * kMillisecond;
  VisitAll();
  EXPECT_EQ(StateOf(Find(1)), HR_STATE_EXPIRED);
  Ask(1);
  EXPECT_EQ(StateOf(Find(1)), HR_STATE_PENDING);
  EXPECT_EQ(Answer(1, kA4).verdict, kRedirected);
}

TEST_F(ReplyTest, TcpGoesBackInTheVipsName) {
  Split(PacketBuilder(kClient4, kDns4).Tcp(kClientPort, kDnsPort, kTcpSyn).Build());
  const RunResult run = Reply(PacketBuilder(kA4, kClient4).Tcp(53, kClientPort, kTcpSynAck).Build());
  EXPECT_EQ(run.verdict, kRedirected);
  EXPECT_EQ(Layer3(run.packet), Layer3(PacketBuilder(kDns4, kClient4).Tcp(kDnsPort, kClientPort, kTcpSynAck).Build()));
  EXPECT_EQ(Read(run.packet).destination_mac, TestLinks::Get().proxy.mac);
  EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("dns4.tcp_packets", 1)));
}

TEST_F(ReplyTest, TcpOfOthersStaysUntouched) {
  ExpectUntouched(PacketBuilder(kA4, kClient4).Tcp(53, kClientPort, kTcpSynAck).Build(), {{"host:no_flow", 1}});
}

TEST_F(ReplyTest, EveryRewrittenChecksumIsRight) {
  ServicePolicy(kRaw4Service).switches = HR_SWITCH_BYPASS;
  ServicePolicy(kRaw6Service).switches = HR_SWITCH_BYPASS;
  for (uint32_t i = 0; i < 300; ++i) {
    const Bytes payload = Pattern(4 + i % 37, i);
    const auto port = static_cast<uint16_t>(1024 + i * 97);
    Split(PacketBuilder(kClient4, kRaw4).Udp(port, kRawPort, payload).Build());
    const RunResult run4 = Reply(PacketBuilder(kA4, kClient4).Udp(9000, port, payload).Build());
    EXPECT_EQ(run4.verdict, kRedirected);
    EXPECT_EQ(ChecksumFault(run4.packet), "") << i;
    Split(PacketBuilder(kClient6, kRaw6).Udp(port, kRawPort, payload).Build());
    const RunResult run6 = Reply(PacketBuilder(kA6, kClient6).Udp(9000, port, payload).Build());
    EXPECT_EQ(run6.verdict, kRedirected);
    EXPECT_EQ(ChecksumFault(run6.packet), "") << i;
  }
}

TEST_F(ReplyTest, AnswerTimesAreSampled) {
  Split(DnsRequest4(1));
  volatile hr_request &request = Request(FindDns(1));
  request.sent_ns = request.sent_ns - 5 * kMillisecond;
  Reply(DnsReply4(1, kA4));
  EXPECT_GE(BackendState(kDns4A).answer_ewma_ns, 5 * kMillisecond);
  const auto snapshot = plane().reader().Read(true);
  ASSERT_TRUE(snapshot.ok());
  EXPECT_EQ(snapshot->services[kDns4Service].latency.Count(), 1u);
  EXPECT_EQ(snapshot->services[kDns4Service].backends[0].answer_times.Count(), 1u);
  EXPECT_EQ(snapshot->services[kDns4Service].backends[0].wins, 1u);
}

TEST_F(ReplyTest, WhatIsNotKnownToBeASendsAnswerTimeIsNoSample) {
  Ask(1);
  const uint32_t request = Find(1);
  FireNow(request);
  ASSERT_EQ(SentTo(request), 0b011u);
  Request(request).masks = Request(request).masks | HR_MASKS_SENT(0b100);  // handed over: fire_ns is of that
  Answer(1, kB4);
  EXPECT_EQ(BackendState(kRaw4B).answer_ewma_ns, 0u);

  const uint32_t other = AskBoth(1);
  Request(other).fire_ns = NowNs() + kSecond;  // another CPU's, made since this answer came
  Reply(DnsReply4(1, kB4));
  EXPECT_EQ(BackendState(kDns4B).answer_ewma_ns, 0u) << "and not 2^64 ns less a little";
}

}  // namespace
}  // namespace hedgerow::packets
