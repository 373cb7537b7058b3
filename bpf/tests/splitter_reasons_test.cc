// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// SPLITTER, what it forwards without hedging: one test for each reason of bpf/abi/reasons_abi.h. A packet so
// forwarded still reaches the leader, with right checksums, and leaves no request and no parked copy behind
// (the fixture's invariants look). Not reachable from one CPU by test_run: wheel_contended and index_lost
// (other CPUs must win 16 tries), copy_failed (the parser has checked the length before), flow_failed and
// fragments_failed (an LRU makes room).
#include <netinet/in.h>

#include <set>

#include "bpf/tests/checksum.h"
#include "bpf/tests/kernel_fixture.h"
#include "proxy.skel.h"

namespace hedgerow::packets {
namespace {

class SplitterReasonTest : public PacketTest {
 protected:
  static PacketBuilder Raw(Bytes payload) { return PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, payload); }

  // Forwarded to the leader of the service, untracked, for just this reason.
  void ExpectForwarded(const RunResult &run, const std::string &service, const std::string &reason,
                       const char *leader) {
    EXPECT_EQ(run.verdict, kRedirected);
    EXPECT_EQ(Read(run.packet).destination, leader);
    EXPECT_EQ(ChecksumFault(run.packet), "");
    EXPECT_THAT(run.changes,
                UnorderedElementsAre(std::pair(service + ".requests", 1), std::pair(service + ".passed_through", 1),
                                     std::pair(service + ":" + reason, 1)));
  }
};

TEST_F(SplitterReasonTest, Bypass) {
  ASSERT_TRUE(plane().policy().SetBypass("dns4", true).ok());
  ExpectForwarded(Split(DnsRequest4(1)), "dns4", "bypass", kA4);
  EXPECT_TRUE(HasFlow(kClient4, kClientPort, IPPROTO_UDP, HR_FLOW_REPLY, kDns4A)) << "its reply must find the VIP";
  ASSERT_TRUE(plane().policy().SetBypass("dns4", false).ok());
  EXPECT_THAT(Split(DnsRequest4(1)).changes, UnorderedElementsAre(std::pair("dns4.requests", 1)));
}

TEST_F(SplitterReasonTest, NoDaemonForTooLong) {
  plane().policy().HedgeUntil(NowNs() - 1);
  ExpectForwarded(Split(DnsRequest4(1)), "dns4", "no_daemon", kA4);
  EXPECT_TRUE(HasFlow(kClient4, kClientPort, IPPROTO_UDP, HR_FLOW_REPLY, kDns4A)) << "its reply must find the VIP";
  plane().policy().HedgeUntil(NowNs() + kSecond);
  EXPECT_THAT(Split(DnsRequest4(1)).changes, UnorderedElementsAre(std::pair("dns4.requests", 1)));
}

TEST_F(SplitterReasonTest, NotHedgedWithOneBackend) {
  ExpectForwarded(Split(PacketBuilder(kClient4, kSingle4).Udp(kClientPort, kRawPort, Pattern(8, 1)).Build()), "single",
                  "not_hedged", kA4);
}

TEST_F(SplitterReasonTest, NotHedgedWithOneAttempt) {
  ExpectForwarded(Split(PacketBuilder(kClient4, kOnce4).Udp(kClientPort, kRawPort, Pattern(8, 1)).Build()), "once",
                  "not_hedged", kA4);
}

TEST_F(SplitterReasonTest, Fragment) {
  const std::vector<Bytes> fragments = Raw(Pattern(100, 1)).BuildFragments(64, 0x4242);
  const RunResult run = Split(fragments[0]);
  EXPECT_EQ(run.verdict, kRedirected);
  EXPECT_EQ(Read(run.packet).destination, kA4);
  EXPECT_THAT(run.changes, UnorderedElementsAre(std::pair("raw4.requests", 1), std::pair("raw4.passed_through", 1),
                                                std::pair("raw4:fragment", 1)));
}

TEST_F(SplitterReasonTest, TooBig) {
  ExpectForwarded(Split(Raw(Pattern(HR_PARKED_BYTES - 28 + 1, 1)).Build()), "raw4", "too_big", kA4);
  EXPECT_THAT(Split(Raw(Pattern(HR_PARKED_BYTES - 28, 1)).Build()).changes,
              UnorderedElementsAre(std::pair("raw4.requests", 1)))
      << "1500 bytes are parked";
}

TEST_F(SplitterReasonTest, UnknownOperation) {
  struct {
    const char *what;
    Bytes payload;
  } const cases[] = {
      {"a response (QR)", DnsQuery(1, "www.example.org", 0x8100)},
      {"NOTIFY", DnsQuery(1, "www.example.org", 0x2000)},
      {"UPDATE", DnsQuery(1, "www.example.org", 0x2800)},
      {"shorter than a header", CutTo(DnsQuery(1, "www.example.org"), 11)},
      {"empty", {}},
  };
  for (const auto &each : cases) {
    SCOPED_TRACE(each.what);
    ExpectForwarded(Split(PacketBuilder(kClient4, kDns4).Udp(kClientPort, kDnsPort, each.payload).Build()), "dns4",
                    "unknown_operation", kA4);
  }
  ExpectForwarded(Split(Raw({1, 2, 3}).Build()), "raw4", "unknown_operation", kA4);
}

TEST_F(SplitterReasonTest, Retransmission) {
  Split(DnsRequest4(1));
  const uint32_t request = FindDns(1);
  const RunResult run = Split(DnsRequest4(1));
  ExpectForwarded(run, "dns4", "retransmission", kA4);
  EXPECT_EQ(FindDns(1), request) << "the first one goes on waiting";
  EXPECT_EQ(StateOf(request), HR_STATE_PENDING);
}

TEST_F(SplitterReasonTest, RetransmissionWhoseChecksumIsInAnotherState) {
  Split(PacketBuilder(kClient4, kDns4).Udp(kClientPort, kDnsPort, DnsQuery(1, "a.org")).With(Checksum::kNone).Build());
  EXPECT_EQ(Split(DnsRequest4(1, "a.org")).changes.at("dns4:retransmission"), 1);
}

TEST_F(SplitterReasonTest, PoolFullThenRequestsFull) {
  DataPlaneSpec spec = Spec();
  spec.services.resize(1);  // else it is its share that it uses up (share_test.cc)
  spec.max_requests = 64;
  spec.max_parked = 32;
  Start(spec);
  // Each request is another client's, since one client's share is smaller.
  List(kDns4Service, {"10.77.0.0/16"});
  const auto ask_as = [&](const std::string &client, uint16_t id) {
    return SplitOf(
        client,
        PacketBuilder(client.c_str(), kDns4).Udp(kClientPort, kDnsPort, DnsQuery(id, "www.example.org")).Build());
  };
  const auto find_as = [&](const std::string &client, uint16_t id) {
    return FindRequest(kDns4Service, client.c_str(), kClientPort, {0, static_cast<uint8_t>(id)});
  };
  // Two clients that have one place in `clients`, as some have by chance, share what one client has.
  std::vector<std::string> clients;
  std::set<uint32_t> places;
  for (int i = 1; i <= 250 && clients.size() < 135; ++i) {
    const std::string client = "10.77.1." + std::to_string(i);
    ask_as(client, 200);
    const uint32_t place = Request(find_as(client, 200)).client;
    if (places.insert(place).second) clients.push_back(client);
    Reply(PacketBuilder(kA4, client.c_str())
              .Udp(kDnsPort, kClientPort, DnsAnswer(DnsQuery(200, "www.example.org")))
              .Build());
    VisitAll();
  }
  ASSERT_EQ(clients.size(), 135u);
  const auto ask = [&](uint16_t id) { return ask_as(clients[id], id); };
  const auto find = [&](uint16_t id) { return find_as(clients[id], id); };
  // 32 copies may be parked: the 33rd request goes untracked.
  for (uint16_t id = 1; id <= 32; ++id) ASSERT_EQ(ask(id).changes.size(), 1u) << id;
  ExpectForwarded(ask(33), "dns4", "pool_full", kA4);
  // All are hedged, and their deadlines pass: the copies go back, the requests are retained, since two may still
  // answer.
  ServiceState(kDns4Service).budget_micros = 100'000'000;
  ServiceConfig(kDns4Service).budget_burst = 100;
  for (uint16_t id = 1; id <= 32; ++id) MakeDue(find(id));
  EXPECT_EQ(VisitAll(), (Changes{{"dns4.extra_sends", 32}, {"dns4.hedges", 32}}));
  for (uint16_t id = 1; id <= 32; ++id) MakeExpired(find(id));
  EXPECT_EQ(VisitAll(), (Changes{{"dns4.unanswered", 32}}));
  EXPECT_EQ(RequestsInUse(), 32u);
  // 64 requests may be known: the 65th goes untracked.
  for (uint16_t id = 101; id <= 132; ++id) ASSERT_EQ(ask(id).changes.size(), 1u) << id;
  ExpectForwarded(ask(133), "dns4", "requests_full", kA4);
  // When their retention is over the places are free again; the copies of the others are not.
  for (uint16_t id = 1; id <= 32; ++id) EndRetention(find(id));
  VisitAll();
  EXPECT_EQ(RequestsInUse(), 32u);
  ExpectForwarded(ask(134), "dns4", "pool_full", kA4);
}

TEST_F(SplitterReasonTest, ScoreboardFull) {
  // Every place is taken by a reference that names nobody's present life.
  bpf_map *scoreboard = skeleton()->maps.scoreboard;
  hr_scoreboard_set full{};
  for (auto &way : full.ways) way = HR_REFERENCE(0xffffffff, 0, 1);
  const uint32_t sets = StateMapEntries(scoreboard);
  for (uint32_t i = 0; i < sets; ++i) ASSERT_TRUE(UpdateElement(scoreboard, &i, &full).ok());
  ExpectForwarded(Split(DnsRequest4(1)), "dns4", "scoreboard_full", kA4);
  for (auto &way : full.ways) way = 0;
  for (uint32_t i = 0; i < sets; ++i) ASSERT_TRUE(UpdateElement(scoreboard, &i, &full).ok());
  EXPECT_EQ(Split(DnsRequest4(1)).changes.size(), 1u);
}

TEST_F(SplitterReasonTest, KeyBusyWhileTheClockRemovesTheOldRequest) {
  Split(DnsRequest4(1));
  const uint32_t request = FindDns(1);
  const uint64_t word = Request(request).word;
  Request(request).word = HR_WORD(HR_WORD_GENERATION(word), HR_NO_BACKEND, 0, HR_STATE_REMOVING);
  ExpectForwarded(Split(DnsRequest4(1, "other.org")), "dns4", "key_busy", kA4);
  Request(request).word = word;
}

TEST_F(SplitterReasonTest, IpOptions) {
  ExpectForwarded(Split(Raw(Pattern(8, 1)).Ipv4Options({7, 4, 4, 0}).Build()), "raw4", "ip_options", kA4);
}

TEST_F(SplitterReasonTest, IpOptionsIsAlsoAnAtomicIpv6Fragment) {
  const RunResult run =
      Split(PacketBuilder(kClient6, kRaw6).Udp(kClientPort, kRawPort, Pattern(8, 1)).AtomicFragment(77).Build());
  EXPECT_EQ(run.verdict, kRedirected);
  EXPECT_EQ(Read(run.packet).destination, kA6);
  EXPECT_THAT(run.changes, UnorderedElementsAre(std::pair("raw6.requests", 1), std::pair("raw6.passed_through", 1),
                                                std::pair("raw6:ip_options", 1)));
}

// The frame with IPv6 extension headers in front of what follows its IPv6 header (RFC 8200 section 4).
Bytes WithExtensions(Bytes frame, const std::vector<uint8_t> &headers, size_t bytes = 8) {
  uint8_t next = frame[kEthernetBytes + 6];
  Bytes all;
  for (auto header = headers.rbegin(); header != headers.rend(); ++header) {
    Bytes one(bytes);
    one[0] = next;
    one[1] = static_cast<uint8_t>(bytes / 8 - 1);
    one[2] = 1;  // PadN over the rest
    one[3] = static_cast<uint8_t>(bytes - 4);
    all.insert(all.begin(), one.begin(), one.end());
    next = *header;
  }
  frame[kEthernetBytes + 6] = next;
  const size_t payload = (frame[kEthernetBytes + 4] << 8 | frame[kEthernetBytes + 5]) + all.size();
  frame[kEthernetBytes + 4] = static_cast<uint8_t>(payload >> 8);
  frame[kEthernetBytes + 5] = static_cast<uint8_t>(payload);
  frame.insert(frame.begin() + kEthernetBytes + 40, all.begin(), all.end());
  return frame;
}

TEST_F(SplitterReasonTest, IpOptionsAreAlsoIpv6HopByHopAndDestinationOptions) {
  const auto udp = [](const char *to) {
    return PacketBuilder(kClient6, to).Udp(kClientPort, kRawPort, Pattern(8, 1)).Build();
  };
  for (const std::vector<uint8_t> &headers :
       {std::vector<uint8_t>{IPPROTO_HOPOPTS}, {IPPROTO_DSTOPTS}, {IPPROTO_HOPOPTS, IPPROTO_DSTOPTS}}) {
    for (const size_t bytes : {8, 24}) {
      const RunResult run = Split(WithExtensions(udp(kRaw6), headers, bytes));
      EXPECT_EQ(run.verdict, kRedirected);
      EXPECT_EQ(Layer3(run.packet), Layer3(WithExtensions(udp(kA6), headers, bytes))) << "checksum and all";
      EXPECT_THAT(run.changes, UnorderedElementsAre(std::pair("raw6.requests", 1), std::pair("raw6.passed_through", 1),
                                                    std::pair("raw6:ip_options", 1)));
    }
  }
  // What routes on its way, or signs addresses, is not for us to change.
  for (const uint8_t header : {uint8_t{IPPROTO_ROUTING}, uint8_t{IPPROTO_AH}})
    EXPECT_EQ(Split(WithExtensions(udp(kRaw6), {header})).verdict, kUntouched) << int{header};
  // More than a sender means well with.
  EXPECT_EQ(Split(WithExtensions(udp(kRaw6), std::vector<uint8_t>(5, IPPROTO_DSTOPTS))).verdict, kUntouched);
}

TEST_F(SplitterReasonTest, FragmentsWithOptionsStayTogether) {
  // Hop-by-hop options come before the fragment header of every fragment, destination options behind it in the first:
  // all of them say that these come next.
  std::vector<Bytes> fragments =
      PacketBuilder(kClient6, kRaw6).Udp(kClientPort, kRawPort, Pattern(100, 1)).BuildFragments(64, 0x4242);
  ASSERT_EQ(fragments.size(), 2u);
  constexpr size_t kFragmentHeader = kEthernetBytes + 40;
  for (Bytes &fragment : fragments) fragment[kFragmentHeader] = IPPROTO_DSTOPTS;
  const Bytes options = {IPPROTO_UDP, 0, 1, 4, 0, 0, 0, 0};
  fragments[0].insert(fragments[0].begin() + kFragmentHeader + 8, options.begin(), options.end());
  fragments[0][kEthernetBytes + 5] = static_cast<uint8_t>(fragments[0][kEthernetBytes + 5] + options.size());
  for (const Bytes &fragment : fragments) {
    const RunResult run = Split(WithExtensions(fragment, {IPPROTO_HOPOPTS}));
    EXPECT_EQ(run.verdict, kRedirected);
    EXPECT_EQ(Read(run.packet).destination, kA6);
  }
}

TEST_F(SplitterReasonTest, TrailingBytesBehindTheDatagram) {
  // A hedged copy's checksum would have to end where the datagram ends, not where the packet does.
  ExpectForwarded(Split(Raw(Pattern(8, 1)).TrailingBytes({1, 2, 3, 4}).Build()), "raw4", "trailing_bytes", kA4);
}

TEST_F(SplitterReasonTest, SendFailedDropsWithItsReason) {
  ServiceConfig(kOnceService).backends[0] = 600;  // no such backend
  const RunResult run = Split(PacketBuilder(kClient4, kOnce4).Udp(kClientPort, kRawPort, Pattern(8, 1)).Build());
  EXPECT_EQ(run.verdict, kDropped);
  EXPECT_EQ(run.changes.at("once:send_failed"), 1);
}

TEST_F(SplitterReasonTest, ClockKickFailedLeavesTheClockAtRestForTheNextRequest) {
  ASSERT_TRUE(net::SetLinkDown("hr0c0").ok());
  const RunResult run = Split(DnsRequest4(1));
  ASSERT_TRUE(net::SetLinkUp("hr0c0").ok());
  EXPECT_EQ(run.verdict, kRedirected) << "the request itself goes out";
  EXPECT_THAT(run.changes, UnorderedElementsAre(std::pair("dns4.requests", 1), std::pair("host:clock_kick_failed", 1)));
  EXPECT_EQ(Wheel().running, 0u);
  Split(DnsRequest4(2));
  EXPECT_EQ(Wheel().running, 1u);
  Clones(HR_MARK_LAP, 1);
}

}  // namespace
}  // namespace hedgerow::packets
