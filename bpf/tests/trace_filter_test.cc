// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// TRACE, about whom and for how long: filters, the bounded rate, and that nothing at all is written when nobody looks
// or the one who looked has died.
#include <arpa/inet.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "bpf/tests/test_links.h"
#include "bpf/tests/trace_fixture.h"
#include "proxy/data_plane/endpoint.h"
#include "proxy/profiles/profile_test.h"

namespace hedgerow::packets {
namespace {

using ::testing::ElementsAre;

class TraceFilterTest : public TracedPacketTest {
 protected:
  // A request to dns4 through a hedge to its end.
  void WholeLife(uint16_t id) {
    Split(DnsRequest4(id));
    const uint32_t request = FindDns(id);
    FireNow(request);
    Reply(DnsReply4(id, kB4));
    Reply(DnsReply4(id, kA4));
  }
  void AskFrom(const char *client, uint16_t port, uint16_t id = 1) {
    Split(PacketBuilder(client, kDns4).Udp(port, kDnsPort, DnsQuery(id, "www.example.org")).Build());
  }
  static void SetClient(hr_trace_filter &filter, const char *client, size_t mask_bytes) {
    filter.client = ParseAddress(client).value();
    memset(&filter.client_mask, 0xff, mask_bytes);
    memset(filter.client.bytes + mask_bytes, 0, sizeof(filter.client) - mask_bytes);
  }
};

TEST_F(TraceFilterTest, WithoutATracerNothingIsWritten) {
  const hr_trace before = Memory();
  WholeLife(1);
  ASSERT_TRUE(plane().policy().SetBypass("dns4", true).ok());
  Split(DnsRequest4(2));
  EXPECT_FALSE(HasRing()) << "nor is there anything to write to";
  EXPECT_EQ(memcmp(&Memory(), &before, sizeof(before)), 0);
}

// The proof that the test above can fail: programs that believe in a tracer do try, and are counted.
TEST_F(TraceFilterTest, AProgramThatWouldWriteWithoutARingIsCounted) {
  const uint64_t lost = Memory().events_lost;
  Memory().filter = Everything();
  Memory().session = 1;
  Memory().lease_ns = NowNs() + kLeaseNs;
  WholeLife(1);
  Memory().lease_ns = 0;
  EXPECT_EQ(Memory().events_lost, lost + 5);
}

TEST_F(TraceFilterTest, TheTracersEndIsTheEndOfEverything) {
  Trace();
  EXPECT_TRUE(HasRing());
  Split(DnsRequest4(1));
  EXPECT_EQ(Events().size(), 1u);
  source_.reset();
  EXPECT_FALSE(HasRing());
  EXPECT_EQ(Memory().lease_ns, 0u);
  const hr_trace before = Memory();
  Reply(DnsReply4(1, kA4));  // of a traced request
  WholeLife(2);
  EXPECT_EQ(memcmp(&Memory(), &before, sizeof(before)), 0);
}

TEST_F(TraceFilterTest, ATracerThatDiedIsForgottenWhenItsLeaseHasPassed) {
  Trace();
  Split(DnsRequest4(1));
  EXPECT_EQ(Events().size(), 1u);
  source_->Renew(NowNs() + 30 * kMillisecond);  // and never again
  Advance(40 * kMillisecond);
  Reply(DnsReply4(1, kA4));
  EXPECT_TRUE(Events().empty());
  EXPECT_EQ(Memory().lease_ns, 0u) << "the program that noticed has switched it off";
  Split(DnsRequest4(2));
  EXPECT_TRUE(Events().empty());
  source_->Renew(NowNs() + kLeaseNs);
  Split(DnsRequest4(3));
  EXPECT_EQ(Events().size(), 1u) << "it was only stopped, and goes on";
}

TEST_F(TraceFilterTest, TheNextTracerIsToldNothingOfTheLastOnesRequests) {
  Trace();
  Split(DnsRequest4(1));
  Trace();
  Reply(DnsReply4(1, kA4));
  EXPECT_TRUE(Events().empty());
  Split(DnsRequest4(2));
  EXPECT_EQ(Events().size(), 1u);
}

// What a filter that matches nothing spares all programs but the splitter.
TEST_F(TraceFilterTest, UntilARequestMatchesThereIsNothingToTellOfRequests) {
  hr_trace_filter filter = Everything();
  filter.client_port_be = htons(41000);
  Trace(filter);
  AskFrom("10.77.1.9", 40000);
  EXPECT_EQ(Memory().matched, 0u);
  AskFrom("10.77.1.9", 41000);
  EXPECT_NE(Memory().matched, 0u);
  EXPECT_EQ(Events().size(), 1u);
  Trace(filter);
  EXPECT_EQ(Memory().matched, 0u) << "nothing of the next tracer's yet";
}

TEST_F(TraceFilterTest, ByService) {
  hr_trace_filter filter = Everything();
  memset(filter.backends, 0, sizeof(filter.backends));
  filter.backends[kRaw4Service] = 0xff;
  Trace(filter);
  Split(DnsRequest4(1));
  EXPECT_TRUE(Events().empty());
  Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {1, 2, 3, 4}).Build());
  EXPECT_EQ(Only(HR_TRACE_SPLIT).key.service, kRaw4Service);
}

TEST_F(TraceFilterTest, ByTheClientsAddressPrefixAndPort) {
  hr_trace_filter filter = Everything();
  SetClient(filter, "10.77.1.0", 15);  // 10.77.1.0/24, behind the mapping
  filter.client_port_be = htons(41000);
  Trace(filter);
  AskFrom("10.77.1.9", 40000);
  AskFrom("10.77.2.9", 41000);
  EXPECT_TRUE(Events().empty());
  AskFrom("10.77.1.200", 41000);
  const hr_trace_event event = Only(HR_TRACE_SPLIT);
  EXPECT_EQ(event.key.client.words[3], inet_addr("10.77.1.200"));
}

TEST_F(TraceFilterTest, ByTheKeysFirstBytes) {
  hr_trace_filter filter = Everything();
  reinterpret_cast<uint8_t *>(filter.key)[0] = 0x12;
  reinterpret_cast<uint8_t *>(filter.key_mask)[0] = 0xff;
  Trace(filter);
  Split(DnsRequest4(0x1312));
  EXPECT_TRUE(Events().empty());
  Split(DnsRequest4(0x1213));
  Only(HR_TRACE_SPLIT);
  Reply(DnsReply4(0x1213, kA4));
  Only(HR_TRACE_ANSWER);
  ASSERT_TRUE(plane().policy().SetBypass("dns4", true).ok());
  Split(DnsRequest4(0x1414));
  EXPECT_TRUE(Events().empty());
  Split(DnsRequest4(0x1215));
  Only(HR_TRACE_PASSED);
}

// The key that a trace shows finds the next request with it, tracked or not, also where it stands at no fixed place.
TEST_F(TraceFilterTest, ByAKeyThatHasToBeLocated) {
  const hr_profile sip = OwnProfile(R"(
tokens: [{header: call-id, short: i}, {header: cseq}]
operations: [{match: [{offset: 0, text: "OPTIONS "}]}]
replies: [{offset: 0, text: "SIP/2.0 "}])");
  memcpy(const_cast<hr_profile *>(&ServiceConfig(kRaw4Service).profile), &sip, sizeof(sip));
  const auto message = [](const std::string &line, const std::string &call) {
    return Text(line + "\r\nCall-ID: " + call + "\r\nCSeq: 1 X\r\n\r\n");
  };
  const auto ask = [&](const std::string &method, const std::string &call) {
    Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, message(method + " sip:x SIP/2.0", call)).Build());
  };
  const auto answer = [&](const std::string &call) {
    Reply(PacketBuilder(kA4, kClient4).Udp(kRawPort, kClientPort, message("SIP/2.0 200 OK", call)).Build());
  };
  for (const auto &[method, kind] : {std::pair("OPTIONS", HR_TRACE_SPLIT), std::pair("REGISTER", HR_TRACE_PASSED)}) {
    const std::string call = absl::StrCat("a@", method), other = absl::StrCat("c@", method);
    Trace();
    ask(method, call);
    hr_trace_filter filter = Everything();
    memcpy(filter.key, Only(kind).key.correlation, sizeof(filter.key));
    memset(filter.key_mask, 0xff, sizeof(filter.key_mask));
    answer(call);
    Trace(filter);
    ask(method, other);
    answer(other);
    EXPECT_TRUE(Events().empty()) << method;
    ask(method, call);
    Only(kind);
    answer(call);
    Only(HR_TRACE_ANSWER);
  }
}

TEST_F(TraceFilterTest, ByABackendFromItsFirstEventOn) {
  hr_trace_filter filter = Everything();
  filter.backends[kDns4Service] = 0b10;
  Trace(filter);
  Split(DnsRequest4(1));
  const uint32_t request = FindDns(1);
  EXPECT_TRUE(Events().empty()) << "it went to a";
  FireNow(request);
  const hr_trace_event event = Only(HR_TRACE_HEDGE);
  EXPECT_EQ(event.sequence, 1);
  EXPECT_EQ(event.first, 0) << "what came before is in its fields";
  EXPECT_EQ(event.sent_ns, Request(request).sent_ns);
  Reply(DnsReply4(1, kB4));
  Reply(DnsReply4(1, kA4));
  EXPECT_THAT(Kinds(Events()), ElementsAre(HR_TRACE_ANSWER, HR_TRACE_DROPPED));
}

TEST_F(TraceFilterTest, OnlyHedgedOnesCostNothingButTheHedged) {
  hr_trace_filter filter = Everything();
  filter.only_hedged = 1;
  filter.rate = 1;
  Trace(filter);
  for (uint16_t id = 1; id <= 5; ++id) {
    Split(DnsRequest4(id));
    Reply(DnsReply4(id, kA4));
  }
  EXPECT_TRUE(Events().empty());
  WholeLife(6);
  EXPECT_THAT(Kinds(Events()), ElementsAre(HR_TRACE_HEDGE, HR_TRACE_ANSWER, HR_TRACE_DROPPED));
  EXPECT_EQ(source_->Loss().requests, 0u) << "the others took nothing of the rate";
}

TEST_F(TraceFilterTest, SlowerThan) {
  hr_trace_filter filter = Everything();
  filter.slower_ns = 5 * kSecond;
  Trace(filter);
  Split(DnsRequest4(1));
  Split(DnsRequest4(2));
  Reply(DnsReply4(1, kA4));
  EXPECT_TRUE(Events().empty());
  Request(FindDns(2)).sent_ns = NowNs() - 6 * kSecond;
  Reply(DnsReply4(2, kA4));
  const hr_trace_event event = Only(HR_TRACE_ANSWER);
  EXPECT_GE(event.time_ns - event.sent_ns, 5 * kSecond);
}

TEST_F(TraceFilterTest, TheRateIsBoundedAndARequestIsToldWholeOrNotAtAll) {
  hr_trace_filter filter = Everything();
  filter.rate = 2;
  Trace(filter);
  // The window may end in between, once.
  for (uint16_t id = 1; id <= 6; ++id) Split(DnsRequest4(id));
  const std::vector<hr_trace_event> emitted = Events();
  EXPECT_GE(emitted.size(), 2u);
  EXPECT_LE(emitted.size(), 4u);
  EXPECT_EQ(source_->Loss().requests, 6 - emitted.size());
  for (uint16_t id = 1; id <= 6; ++id) Reply(DnsReply4(id, kA4));
  EXPECT_EQ(Events().size(), emitted.size()) << "all events of a request or none";
  EXPECT_EQ(source_->Loss().events, 0u);
}

TEST_F(TraceFilterTest, AFullRingLosesEventsAndCountsThem) {
  Trace();
  ASSERT_TRUE(plane().policy().SetBypass("dns4", true).ok());
  hr_trace_filter filter = Everything();
  filter.rate = 100'000;
  Memory().filter = filter;  // the ring is that of a rate of 1,000: 256 KB
  const Bytes packet = DnsRequest4(1);
  for (int i = 0; i < 3'000; ++i) RunUncounted(program_splitter(), packet, {.ifindex = TestLinks::Get().proxy.ifindex});
  const size_t kept = Events().size();
  EXPECT_GT(kept, 1'000u);
  EXPECT_EQ(kept + source_->Loss().events, 3'000u);
}

TEST_F(TraceFilterTest, TheDaemonTakesOnlySoManyAtATime) {
  Trace();
  for (uint16_t id = 1; id <= 5; ++id) Split(DnsRequest4(id));
  int seen = 0;
  EXPECT_EQ(source_->Drain(2, [&seen](const hr_trace_event &) { ++seen; }), 2u);
  EXPECT_EQ(seen, 2);
  EXPECT_EQ(Events().size(), 3u) << "the rest comes the next time";
}

}  // namespace
}  // namespace hedgerow::packets
