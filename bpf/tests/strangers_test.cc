// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// REPLY, what is not the proxy's although it looks like it: packets from outside in a VIP's name, answers that guess a
// waiting query's port and id, and answers to sockets of this host that talk to a backend directly. And the other way
// round: an answer stays the proxy's when a full map has forgotten its flow.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "bpf/tests/kernel_fixture.h"
#include "bpf/tests/test_links.h"
#include "net/unique_fd.h"
#include "proxy/profiles/profile_test.h"

namespace hedgerow::packets {
namespace {

using ::testing::Contains;
using ::testing::Pair;

constexpr uint8_t kServFail = 2;

class StrangersTest : public PacketTest {
 protected:
  void ExpectUntouched(const Bytes &packet, const Changes &changes) {
    const RunResult run = Reply(packet);
    EXPECT_EQ(run.verdict, kUntouched);
    EXPECT_EQ(run.packet, packet);
    EXPECT_EQ(run.changes, changes);
  }
  // Tags of VLAN 0 behind the first, which the device has taken off.
  static Bytes Tagged(Bytes frame, size_t tags) {
    for (size_t i = 0; i < tags; ++i) frame.insert(frame.begin() + 12, {0x81, 0x00, 0x00, 0x00});
    return frame;
  }
  // An ICMP error that quotes a client's request to a VIP.
  static Bytes Refusal(const char *from, uint8_t type, uint8_t code) {
    const bool ipv6 = std::string_view(from).find(':') != std::string_view::npos;
    const Bytes asked = PacketBuilder(ipv6 ? kClient6 : kClient4, ipv6 ? kDns6 : kDns4)
                            .Udp(kClientPort, kDnsPort, DnsQuery(1, "www.example.org"))
                            .Build();
    return PacketBuilder(from, ipv6 ? kClient6 : kClient4).IcmpError(type, code, Layer3(asked)).Build();
  }
  const Bytes segment_of_others_ = PacketBuilder("192.0.2.1", kClient4).Udp(53, kClientPort, Text("x")).Build();
  static Bytes AsFragment(Bytes frame) {
    frame[kEthernetBytes + 6] = 0x20;
    return frame;
  }
};

TEST_F(StrangersTest, NothingComesFromOutsideInAVipsName) {
  const std::vector<std::pair<const char *, Bytes>> forged = {
      {"UDP",
       PacketBuilder(kDns4, kClient4).Udp(kDnsPort, kClientPort, DnsAnswer(DnsQuery(1, "www.example.org"))).Build()},
      {"UDP from another port", PacketBuilder(kDns4, kClient4).Udp(999, kClientPort, Text("x")).Build()},
      {"TCP", PacketBuilder(kDns4, kClient4).Tcp(kDnsPort, kClientPort, kTcpSynAck).Build()},
      {"ping", PacketBuilder(kDns4, kClient4).Echo(true, 1, Text("pong")).Build()},
      {"first fragment",
       PacketBuilder(kDns4, kClient4).Udp(53, kClientPort, Pattern(3000, 1)).BuildFragments(1400, 7)[0]},
      {"later fragment",
       PacketBuilder(kDns4, kClient4).Udp(53, kClientPort, Pattern(3000, 1)).BuildFragments(1400, 7)[1]},
      {"IPv6", PacketBuilder(kDns6, kClient6).Udp(kDnsPort, kClientPort, Text("x")).Build()},
      // What the parser refuses, and the kernel delivers.
      {"IPv6, UDP length 0", PacketBuilder(kDns6, kClient6).Udp(kDnsPort, kClientPort, Text("x")).UdpLength(0).Build()},
      {"priority tags", Tagged(PacketBuilder(kDns4, kClient4).Udp(kDnsPort, kClientPort, Text("x")).Build(), 2)},
      {"IPv6, a priority tag", Tagged(PacketBuilder(kDns6, kClient6).Udp(53, kClientPort, Text("x")).Build(), 1)},
      {"more tags than are read", Tagged(PacketBuilder(kDns4, kClient4).Udp(53, kClientPort, Text("x")).Build(), 9)},
      // Errors about a packet to the VIP: none comes from a network that the packet was never in.
      {"port unreachable", Refusal(kA4, 3, 3)},
      {"redirect", Refusal("10.77.0.254", 5, 1)},
      {"source quench", Refusal("10.77.0.254", 4, 0)},
      {"IPv6 port unreachable", Refusal(kA6, 1, 4)},
      {"IPv6 error of a type that is not known", Refusal(kA6, 100, 0)},
      {"an error in fragments", AsFragment(Refusal(kA4, 3, 3))},
      {"an error in a tag", Tagged(Refusal(kA4, 3, 3), 1)},
  };
  Split(DnsRequest4(1));
  for (const auto &[what, packet] : forged) {
    SCOPED_TRACE(what);
    const RunResult run = Reply(packet);
    EXPECT_EQ(run.verdict, kDropped);
    EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("host:forged_vip", 1)));
  }
  EXPECT_EQ(StateOf(FindDns(1)), HR_STATE_PENDING);
  EXPECT_EQ(Reply(DnsReply4(1, kA4)).verdict, kRedirected) << "the true one";
}

// Another VLAN's frame, an echo reply, an error about another packet, or within the kernel: none is forged.
TEST_F(StrangersTest, WhatBearsNoVipPassesEveryInterface) {
  const Bytes error = PacketBuilder(kA4, kClient4).IcmpError(3, 3, Layer3(segment_of_others_)).Build();
  Bytes other_vlan = Tagged(PacketBuilder(kDns4, kClient4).Udp(53, kClientPort, Text("x")).Build(), 1);
  other_vlan[15] = 7;
  for (const Bytes &packet : {error, other_vlan, PacketBuilder(kA4, kClient4).Echo(true, 1, Text("x")).Build(),
                              Tagged(segment_of_others_, 2)}) {
    ExpectUntouched(packet, {});
    const RunResult run =
        Guard(packet, {.ifindex = TestLinks::Get().uplink.ifindex, .ingress_ifindex = TestLinks::Get().uplink.ifindex});
    EXPECT_EQ(run.verdict, kUntouched);
    EXPECT_THAT(run.changes, IsEmpty());
  }
}

// A container's interface, and a local user who binds a VIP (IP_FREEBIND), to what is behind that interface or on lo.
TEST_F(StrangersTest, NeitherContainersNorLocalUsersSendInAVipsName) {
  const int other = TestLinks::Get().uplink.ifindex;
  const Bytes forged = PacketBuilder(kDns6, kClient6).Udp(kDnsPort, kClientPort, Text("x")).UdpLength(0).Build();
  const Changes dropped = {{"host:forged_vip", 1}};
  for (const auto &[packet, verdict] : {std::pair(forged, kDropped), std::pair(Refusal(kA6, 1, 4), kDropped)}) {
    Bytes here = packet;
    std::copy_n(TestLinks::Get().uplink.mac.begin(), 6, here.begin());  // to this host
    const RunResult comes_in = Guard(here, {.ifindex = other, .ingress_ifindex = other});
    EXPECT_EQ(comes_in.verdict, verdict);
    EXPECT_EQ(comes_in.changes, dropped);
    EXPECT_EQ(Guard(packet, {.ifindex = other, .ingress_ifindex = other}).verdict, kUntouched)
        << "for another host, to which a bridge passes it on";
  }
  EXPECT_EQ(Guard(forged, {.ifindex = other}).verdict, kDropped) << "a local socket's";
  EXPECT_EQ(Guard(forged, {.ifindex = other, .ingress_ifindex = 1234}).verdict, kUntouched)
      << "an answer of the proxy's, on its way to a container";
  EXPECT_EQ(Guard(Refusal(kA6, 1, 4), {.ifindex = other}).verdict, kUntouched) << "this host's own refusal";
  EXPECT_EQ(Reply(forged, {.ifindex = net::kLoopbackIfindex}).verdict, kDropped);
  EXPECT_EQ(Reply(Refusal(kA6, 1, 4), {.ifindex = net::kLoopbackIfindex}).verdict, kUntouched) << "likewise";
}

// RFC 5452 section 9.1: port and id are 32 bits that can be guessed, the question is compared too.
TEST_F(StrangersTest, ADnsAnswerToAnotherQuestionAnswersNothing) {
  const char *names[] = {"a.b", "www.example.org", "a.b.c.d.e.f.g.h.i.j.k.l.m.example.org",
                         "this-label-is-forty-four-bytes-of-the-question.and-this-one-goes-beyond.example.org"};
  uint16_t id = 1;
  for (const char *name : names) {
    SCOPED_TRACE(name);
    Split(DnsRequest4(id, name));
    std::string other = name;
    other.back() = other.back() == 'x' ? 'y' : 'x';
    const RunResult forged = Reply(DnsReply4(id, kA4, 0, other));
    EXPECT_EQ(forged.verdict, kDropped);
    EXPECT_THAT(forged.changes, UnorderedElementsAre(Pair("dns4.stale_dropped", 1), Pair("dns4:stale", 1)));
    EXPECT_EQ(Reply(DnsReply4(id, kA4, kServFail, other)).verdict, kDropped) << "nor does a refusal of another";
    EXPECT_EQ(Reply(DnsReply4(id, kA4, 0, std::string("x.") + name)).verdict, kDropped);
    std::string upper = name;
    for (char &c : upper) c = static_cast<char>(toupper(c));
    EXPECT_EQ(Reply(DnsReply4(id, kA4, 0, upper)).verdict, kRedirected) << "in whatever case";
    ++id;
  }
}

TEST_F(StrangersTest, ADnsAnswerWithoutAQuestionCanOnlyRefuse) {
  const auto bare = [](uint8_t rcode) {
    Bytes answer = CutTo(DnsAnswer(DnsQuery(7, "www.example.org"), rcode), 12);
    answer[4] = answer[5] = 0;
    return PacketBuilder(kA4, kClient4).Udp(53, kClientPort, answer).Build();
  };
  Split(DnsRequest4(7));
  EXPECT_EQ(Reply(bare(0)).verdict, kDropped);
  EXPECT_EQ(StateOf(FindDns(7)), HR_STATE_PENDING);
  EXPECT_EQ(Reply(bare(3)).verdict, kDropped) << "that a name does not exist is an answer about a name";
  EXPECT_EQ(StateOf(FindDns(7)), HR_STATE_PENDING);
  EXPECT_EQ(Reply(bare(1)).verdict, kRedirected) << "FORMERR";
}

TEST_F(StrangersTest, ADamagedAnswerDoesNotWin) {
  for (const bool ipv6 : {false, true}) {
    for (const size_t bytes : {5, 60, 64, 65, 127, 512, 1232, 1440}) {
      SCOPED_TRACE(absl::StrCat(ipv6 ? "IPv6, " : "IPv4, ", bytes));
      const char *client = ipv6 ? kClient6 : kClient4;
      const char *vip = ipv6 ? kRaw6 : kRaw4;
      const uint32_t service = ipv6 ? kRaw6Service : kRaw4Service;
      Bytes payload = Pattern(bytes, 3);
      Split(PacketBuilder(client, vip).Udp(kClientPort, kRawPort, payload).Build());
      const uint32_t request = FindRequest(service, client, kClientPort, CutTo(payload, 4));
      auto answer = PacketBuilder(ipv6 ? kA6 : kA4, client).Udp(9000, kClientPort, payload);
      Bytes damaged = answer.Build();
      damaged.back() ^= 1;
      const RunResult run = Reply(damaged);
      EXPECT_EQ(run.verdict, kDropped);
      EXPECT_EQ(run.changes, (Changes{{ipv6 ? "raw6:bad_checksum" : "raw4:bad_checksum", 1}}));
      EXPECT_EQ(StateOf(request), HR_STATE_PENDING);
      EXPECT_EQ(Reply(answer.Build()).verdict, kRedirected) << "the same, undamaged";
      EndRetention(request);
      VisitAll();
    }
  }
}

// The kernel checks an IPv4 header's sum, and refuses an IPv6 datagram without a checksum.
TEST_F(StrangersTest, AnAnswerThatTheKernelRefusesDoesNotWin) {
  const Bytes right4 = DnsReply4(1, kA4);
  const Bytes payload6 = DnsAnswer(DnsQuery(1, "www.example.org"));
  const auto answer6 = PacketBuilder(kA6, kClient6).Udp(kBackendDnsPort6, kClientPort, payload6);
  Split(DnsRequest4(1));
  Split(PacketBuilder(kClient6, kDns6).Udp(kClientPort, kDnsPort, DnsQuery(1, "www.example.org")).Build());
  for (const auto &[at, bits] : {std::pair(1, 0x40), std::pair(10, 0xff), std::pair(8, 1)}) {
    Bytes damaged = right4;
    damaged[kEthernetBytes + static_cast<size_t>(at)] ^= static_cast<uint8_t>(bits);
    const RunResult run = Reply(damaged);
    EXPECT_EQ(run.verdict, kDropped);
    EXPECT_EQ(run.changes, (Changes{{"dns4:bad_checksum", 1}}));
  }
  Bytes unchecked = answer6.Build();
  unchecked[kEthernetBytes + 46] = unchecked[kEthernetBytes + 47] = 0;
  EXPECT_EQ(Reply(unchecked).changes, (Changes{{"dns6:bad_checksum", 1}}));
  EXPECT_EQ(StateOf(FindDns(1)), HR_STATE_PENDING);
  EXPECT_EQ(Reply(right4).verdict, kRedirected);
  EXPECT_EQ(Reply(answer6.Build()).verdict, kRedirected);
}

// Whether a host takes IP options is its own matter: such an answer goes to the client and decides nothing.
TEST_F(StrangersTest, AnAnswerWithIpOptionsPassesAndWinsNothing) {
  Split(DnsRequest4(1));
  BackendState(kDns4A).wait_since = HR_WAIT(NowNs(), 1);
  const RunResult run = Reply(PacketBuilder(kA4, kClient4)
                                  .Udp(53, kClientPort, DnsAnswer(DnsQuery(1, "www.example.org")))
                                  .Ipv4Options({131, 7, 4, 10, 77, 0, 1})
                                  .Build());
  EXPECT_EQ(run.verdict, kRedirected) << "in the VIP's name, whatever its socket is connected to";
  EXPECT_EQ(StateOf(FindDns(1)), HR_STATE_PENDING);
  EXPECT_NE(BackendState(kDns4A).wait_since, 0u);
  EXPECT_EQ(Reply(DnsReply4(1, kA4)).changes.at("dns4.won_by_first"), 1);
}

TEST_F(StrangersTest, AndSoItDoesWhereItsFlowIsForgotten) {
  Split(DnsRequest4(1));
  AgeFlow(kClient4, kClientPort, IPPROTO_UDP, HR_FLOW_REPLY, kDns4A, 120 * kSecond);
  EXPECT_EQ(Reply(PacketBuilder(kA4, kClient4)
                      .Udp(53, kClientPort, DnsAnswer(DnsQuery(1, "www.example.org")))
                      .Ipv4Options({131, 7, 4, 10, 77, 0, 1})
                      .Build())
                .verdict,
            kRedirected);
  EXPECT_EQ(StateOf(FindDns(1)), HR_STATE_PENDING);
}

// A dead leader is silent, whatever another host sends in its name that names no request which the leader was sent.
TEST_F(StrangersTest, OnlyWhatNamesARequestOfTheBackendsIsASignOfLife) {
  Split(DnsRequest4(1));
  ASSERT_EQ(Reply(DnsReply4(1, kA4)).verdict, kRedirected);
  Split(DnsRequest4(2));  // hedged, answered by both, and remembered
  FireNow(FindDns(2));
  for (const char *backend : {kA4, kB4}) Reply(DnsReply4(2, backend));
  Clones(HR_MARK_HEDGE, 1);
  Split(DnsRequest4(3));  // the leader is dead from here on
  Bytes damaged = DnsReply4(3, kA4);
  damaged.back() ^= 1;
  const std::vector<std::pair<const char *, Bytes>> forged = {
      {"bytes", PacketBuilder(kA4, kClient4).Udp(53, kClientPort, Text("abc")).Build()},
      {"an id of no request", DnsReply4(60000, kA4)},
      {"a request's id, another question", DnsReply4(3, kA4, 0, "other.example.org")},
      {"an answer that came before", DnsReply4(1, kA4)},
      {"a loser's that came before", DnsReply4(2, kA4)},
      {"an answer that is damaged", damaged},
      {"of another backend's request", DnsReply4(3, kB4)},
  };
  const uint64_t wait = BackendState(kDns4A).wait_since, heard = BackendState(kDns4A).last_receive_ns;
  ASSERT_NE(wait, 0u);
  for (const auto &[what, packet] : forged) {
    SCOPED_TRACE(what);
    for (int i = 0; i < 3; ++i) Reply(packet);
    EXPECT_EQ(BackendState(kDns4A).wait_since, wait);
    EXPECT_EQ(BackendState(kDns4A).last_receive_ns, heard);
  }
  // Its answer to a request whose place is free again is one, and the same again is none.
  const uint32_t request = FindDns(3);
  MakeExpired(request);
  VisitAll();
  EndRetention(request);
  VisitAll();
  ASSERT_EQ(StateOf(request), HR_STATE_FREE);
  Reply(DnsReply4(3, kA4));
  EXPECT_GT(BackendState(kDns4A).last_receive_ns, heard);
  BackendState(kDns4A).last_receive_ns = heard;
  Reply(DnsReply4(3, kA4));
  EXPECT_EQ(BackendState(kDns4A).last_receive_ns, heard);
}

TEST_F(StrangersTest, AnAnswerWithoutOrWithAnUnfinishedChecksumIsNotDamaged) {
  uint16_t id = 1;
  for (const Checksum checksum : {Checksum::kNone, Checksum::kPartial}) {
    Split(DnsRequest4(id));
    EXPECT_EQ(Reply(PacketBuilder(kA4, kClient4)
                        .Udp(53, kClientPort, DnsAnswer(DnsQuery(id, "www.example.org")))
                        .With(checksum)
                        .Build())
                  .verdict,
              kRedirected);
    ++id;
  }
}

// Sockets of this host, connected as the test says. The addresses are this host's own for as long as the test runs.
class DirectSocketsTest : public StrangersTest {
 protected:
  void SetUp() override {
    StrangersTest::SetUp();
    for (const char *address : kAddresses) Shell("add", address);
  }
  void TearDown() override {
    for (const char *address : kAddresses) Shell("del", address);
    StrangersTest::TearDown();
  }

  static sockaddr_in At(const char *address, uint16_t port) {
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    inet_pton(AF_INET, address, &at.sin_addr);
    return at;
  }
  // A socket at this end; with `remote`, connected to it.
  static net::UniqueFd Socket(int type, const char *local, uint16_t port, const char *remote = nullptr,
                              uint16_t remote_port = 0) {
    net::UniqueFd fd(socket(AF_INET, type | SOCK_CLOEXEC, 0));
    const int on = 1;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in at = At(local, port);
    EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr *>(&at), sizeof(at)), 0) << strerror(errno);
    if (remote != nullptr) {
      at = At(remote, remote_port);
      EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr *>(&at), sizeof(at)), 0) << strerror(errno);
    } else if (type == SOCK_STREAM) {
      EXPECT_EQ(listen(fd.get(), 8), 0);
    }
    return fd;
  }

  const Bytes segment_ = PacketBuilder(kA4, kClient4).Tcp(53, kClientPort, kTcpSynAck).Build();

 private:
  static constexpr const char *kAddresses[] = {kClient4, kA4, kDns4, kRaw4};

  static void Shell(const char *verb, const char *address) {
    const std::string command = std::string("ip address ") + verb + " " + address + "/32 dev lo";
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
  }
};

TEST_F(DirectSocketsTest, ADirectConnectionFromAPortThatTheProxyServedIsLeftAlone) {
  Split(PacketBuilder(kClient4, kDns4).Tcp(kClientPort, kDnsPort, kTcpSyn).Build());
  ASSERT_EQ(Reply(segment_).verdict, kRedirected) << "nobody's socket: a client of another namespace";
  const net::UniqueFd backend = Socket(SOCK_STREAM, kA4, 53);
  {
    const net::UniqueFd direct = Socket(SOCK_STREAM, kClient4, kClientPort, kA4, 53);
    ExpectUntouched(segment_, {{"dns4:direct", 1}});
  }
}

TEST_F(DirectSocketsTest, AConnectionToTheVipKeepsItsPackets) {
  Split(PacketBuilder(kClient4, kDns4).Tcp(kClientPort, kDnsPort, kTcpSyn).Build());
  const net::UniqueFd vip = Socket(SOCK_STREAM, kDns4, kDnsPort), backend = Socket(SOCK_STREAM, kA4, 53);
  const net::UniqueFd proxied = Socket(SOCK_STREAM, kClient4, kClientPort, kDns4, kDnsPort);
  EXPECT_EQ(Reply(segment_).verdict, kRedirected);
  const net::UniqueFd direct = Socket(SOCK_STREAM, kClient4, kClientPort, kA4, 53);
  EXPECT_EQ(Reply(segment_).verdict, kRedirected) << "the older of two that the backend cannot tell apart";
}

TEST_F(DirectSocketsTest, AListeningSocketIsNoConnection) {
  Split(PacketBuilder(kClient4, kDns4).Tcp(kClientPort, kDnsPort, kTcpSyn).Build());
  const net::UniqueFd listening = Socket(SOCK_STREAM, kClient4, kClientPort);
  EXPECT_EQ(Reply(segment_).verdict, kRedirected);
}

TEST_F(DirectSocketsTest, ADatagramForASocketThatIsConnectedToTheBackendIsLeftAlone) {
  Split(DnsRequest4(1));
  ASSERT_EQ(Reply(DnsReply4(1, kA4)).verdict, kRedirected);
  {
    const net::UniqueFd unconnected = Socket(SOCK_DGRAM, kClient4, kClientPort);
    ExpectUntouched(DnsReply4(9, kA4), {{"dns4:direct", 1}});
  }
  {
    const net::UniqueFd proxied = Socket(SOCK_DGRAM, kClient4, kClientPort, kDns4, kDnsPort);
    EXPECT_EQ(Reply(DnsReply4(9, kA4)).verdict, kRedirected) << "this socket takes nothing from the backend";
  }
  const net::UniqueFd direct = Socket(SOCK_DGRAM, kClient4, kClientPort, kA4, 53);
  ExpectUntouched(DnsReply4(9, kA4), {{"dns4:direct", 1}});
  Bytes no_reply = Text("not of this protocol");
  ExpectUntouched(PacketBuilder(kA4, kClient4).Udp(53, kClientPort, no_reply).Build(), {{"dns4:direct", 1}});
  Split(DnsRequest4(2));
  EXPECT_EQ(Reply(DnsReply4(2, kA4)).verdict, kRedirected) << "a request that waits gets its answer";
}

// Its socket has asked the VIP, and asks the server itself as well. A loser is known by the request that it names.
TEST_F(DirectSocketsTest, AfterAHedgeWhatNamesNoRequestIsTheClientsOwn) {
  Split(DnsRequest4(1));
  const uint32_t request = FindDns(1);
  FireNow(request);
  ASSERT_EQ(Reply(DnsReply4(1, kB4)).verdict, kRedirected);
  Clones(HR_MARK_HEDGE, 1);
  const net::UniqueFd unconnected = Socket(SOCK_DGRAM, kClient4, kClientPort);
  ExpectUntouched(DnsReply4(9, kA4), {{"dns4:direct", 1}});
  EndRetention(request);
  VisitAll();
  ASSERT_EQ(StateOf(request), HR_STATE_FREE);
  ExpectUntouched(DnsReply4(9, kA4), {{"dns4:direct", 1}});
  EXPECT_THAT(Reply(DnsReply4(1, kA4)).changes, Contains(Pair("dns4:late", 1)));
  const net::UniqueFd direct = Socket(SOCK_DGRAM, kClient4, kClientPort, kA4, 53);
  ExpectUntouched(DnsReply4(1, kA4), {{"dns4:direct", 1}});
}

TEST_F(DirectSocketsTest, WhileUntrackedRequestsAreOnTheirWayAnAnswerIsTheVips) {
  ASSERT_TRUE(plane().policy().SetBypass("dns4", true).ok());
  Split(DnsRequest4(1));
  const net::UniqueFd unconnected = Socket(SOCK_DGRAM, kClient4, kClientPort);
  EXPECT_EQ(Reply(DnsReply4(1, kA4)).verdict, kRedirected);
  ASSERT_TRUE(plane().policy().SetBypass("dns4", false).ok());
}

// ---- Flows that a full map has forgotten, and connections that have ended
// ---------------------------------------------

TEST_F(DirectSocketsTest, ASocketThatIsConnectedToTheVipStandsInForAForgottenFlow) {
  // No flow was ever noted: the datagram answers no request that is known, the segment no connection.
  const Bytes answer = DnsReply4(7, kA4);
  {
    const net::UniqueFd unconnected = Socket(SOCK_DGRAM, kClient4, kClientPort);
    ExpectUntouched(answer, {{"host:no_flow", 1}});
  }
  {
    const net::UniqueFd proxied = Socket(SOCK_DGRAM, kClient4, kClientPort, kDns4, kDnsPort);
    const RunResult run = Reply(answer);
    EXPECT_EQ(run.verdict, kRedirected);
    EXPECT_EQ(Read(run.packet).source, kDns4);
  }
  const net::UniqueFd direct_udp = Socket(SOCK_DGRAM, kClient4, kClientPort, kA4, 53);
  ExpectUntouched(answer, {{"host:no_flow", 1}});
  ExpectUntouched(segment_, {{"host:no_flow", 1}});
  const net::UniqueFd vip = Socket(SOCK_STREAM, kDns4, kDnsPort);
  const net::UniqueFd proxied = Socket(SOCK_STREAM, kClient4, kClientPort, kDns4, kDnsPort);
  EXPECT_EQ(Reply(segment_).verdict, kRedirected);
}

// Nothing can be noted of it, so nothing is done about it either.
TEST_F(DirectSocketsTest, AnErrorOfAOneWayServiceWhoseFlowIsForgottenReachesItsClient) {
  const hr_profile one_way = BuiltInProfile("one-way");
  std::memcpy(const_cast<hr_profile *>(&ServiceConfig(kRaw4Service).profile), &one_way, sizeof(one_way));
  const net::UniqueFd proxied = Socket(SOCK_DGRAM, kClient4, kClientPort, kRaw4, kRawPort);
  const Bytes quote = Layer3(PacketBuilder(kClient4, kA4).Udp(kClientPort, kRawPort, Text("line")).Build());
  const RunResult error = Reply(PacketBuilder(kA4, kClient4).IcmpError(3, 3, quote).Build());
  EXPECT_THAT(error.changes, Contains(Pair("raw4.icmp_translated", 1)));
  EXPECT_EQ(BackendState(kRaw4A).health, HR_HEALTHY);
}

// Where the proxy does not serve, others translate the VIP to the same backends.
TEST_F(DirectSocketsTest, AnswersThatNameNoRequestAreTheOwnersOfAVipInPlace) {
  ServiceConfig(kDns4Service).in_place = 1;
  const net::UniqueFd udp = Socket(SOCK_DGRAM, kClient4, kClientPort, kDns4, kDnsPort);
  const net::UniqueFd vip = Socket(SOCK_STREAM, kDns4, kDnsPort);
  const net::UniqueFd tcp = Socket(SOCK_STREAM, kClient4, kClientPort, kDns4, kDnsPort);
  ExpectUntouched(DnsReply4(7, kA4), {{"host:no_flow", 1}});
  ExpectUntouched(segment_, {{"host:no_flow", 1}});
  Split(DnsRequest4(1));
  ExpectUntouched(DnsReply4(7, kA4), {{"dns4:direct", 1}});
  EXPECT_EQ(Reply(DnsReply4(1, kA4)).verdict, kRedirected) << "the proxy's own";
}

class ConnectionsTest : public StrangersTest {
 protected:
  void FromClient(uint8_t flags) {
    number_ += flags == kTcpSyn;  // another connection
    EXPECT_EQ(Split(PacketBuilder(kClient4, kDns4).Tcp(kClientPort, kDnsPort, flags, {}, number_).Build()).verdict,
              kRedirected);
  }
  int FromBackend(uint8_t flags) {
    return Reply(PacketBuilder(kA4, kClient4).Tcp(53, kClientPort, flags, {}, number_).Build()).verdict;
  }
  uint32_t number_ = 1000;
  static constexpr uint8_t kFin = 0x01, kRst = 0x04, kAck = 0x10;
};

TEST_F(ConnectionsTest, UdpAndTcpHaveMapsOfTheirOwn) {
  FromClient(kTcpSyn);
  Split(DnsRequest4(1));
  EXPECT_TRUE(HasFlow(kClient4, kClientPort, IPPROTO_TCP, HR_FLOW_REPLY, kDns4A));
  EXPECT_TRUE(HasFlow(kClient4, kClientPort, IPPROTO_UDP, HR_FLOW_REPLY, kDns4A));
  EXPECT_NE(FlowsOf(IPPROTO_TCP), FlowsOf(IPPROTO_UDP));
}

TEST_F(ConnectionsTest, AConnectionEndsTwoMinutesAfterItsFinOrRst) {
  const struct {
    bool by_client;
    uint8_t flags;
  } ends[] = {{true, kFin | kAck}, {true, kRst}, {false, kFin | kAck}, {false, kRst}};
  for (const auto &end : ends) {
    FromClient(kTcpSyn);
    FromBackend(kTcpSynAck);
    if (end.by_client) {
      FromClient(end.flags);
    } else {
      EXPECT_EQ(FromBackend(end.flags), kRedirected);
    }
    EXPECT_EQ(FromBackend(kAck), kRedirected) << "what is still on its way";
    EXPECT_EQ(FromBackend(kTcpSynAck), kUntouched) << "a direct connection from that port, which has begun since";
    // A forged RST ends nothing: the client goes on.
    AgeFlow(kClient4, kClientPort, IPPROTO_TCP, HR_FLOW_REPLY, kDns4A, 110 * kSecond);
    FromClient(kAck);
    AgeFlow(kClient4, kClientPort, IPPROTO_TCP, HR_FLOW_REPLY, kDns4A, 110 * kSecond);
    EXPECT_EQ(FromBackend(kAck), kRedirected);
    AgeFlow(kClient4, kClientPort, IPPROTO_TCP, HR_FLOW_REPLY, kDns4A, 130 * kSecond);
    EXPECT_EQ(FromBackend(kAck), kUntouched);
    // The same port again.
    FromClient(kTcpSyn);
    EXPECT_EQ(FromBackend(kTcpSynAck), kRedirected);
    AgeFlow(kClient4, kClientPort, IPPROTO_TCP, HR_FLOW_REPLY, kDns4A, 3600 * kSecond);
    EXPECT_EQ(FromBackend(kAck), kRedirected) << "an open connection may be silent for two hours";
  }
}

// The map of flows forgets the least recently used when it is full, which one user's many ports can bring about.
TEST_F(StrangersTest, AnAnswerFindsItsRequestWhenItsFlowIsForgotten) {
  Split(DnsRequest4(1));
  AgeFlow(kClient4, kClientPort, IPPROTO_UDP, HR_FLOW_REPLY, kDns4A, 120 * kSecond);
  const RunResult run = Reply(DnsReply4(1, kA4));
  EXPECT_EQ(run.verdict, kRedirected);
  EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("dns4.won_by_first", 1), Pair("dns4.replies", 1)));
  ExpectUntouched(DnsReply4(2, kA4), {{"host:no_flow", 1}});
  ExpectUntouched(PacketBuilder(kA4, kClient4).Udp(53, kClientPort, Text("no reply")).Build(), {{"host:no_flow", 1}});
}

// ---- Retries after negative replies --------------------------------------------------------------------------------

class RetryBudgetTest : public StrangersTest {
 protected:
  // a refuses; is the request given to another backend? As the one that refuses what another answers, a would soon be
  // asked last (impaired_test.cc): this is about what is refused until then, and always in a cluster.
  bool IsRetried(uint16_t id) {
    BackendLoad(kDns4A).failing = 0;
    Split(DnsRequest4(id));
    last_ = Reply(DnsReply4(id, kA4, kServFail));
    return last_.changes.contains("dns4.nacks_swallowed");
  }
  RunResult last_;
};

TEST_F(RetryBudgetTest, WhereAllBackendsRefuseTheClientsGetTheirRefusals) {
  for (uint16_t id = 1; id <= 20; ++id) ASSERT_TRUE(IsRetried(id)) << id;
  EXPECT_EQ(ServiceState(kDns4Service).owed[HR_DEBT_RETRIES], 20);
  ServiceState(kDns4Service).owed[HR_DEBT_RETRIES] = HR_RETRIES_MAX;
  EXPECT_FALSE(IsRetried(99));
  EXPECT_EQ(last_.verdict, kRedirected) << "to the client";
  EXPECT_EQ(Read(last_.packet).source, kDns4);
  EXPECT_THAT(last_.changes,
              UnorderedElementsAre(Pair("dns4.nacked", 1), Pair("dns4.replies", 1), Pair("dns4:no_retry_budget", 1)));
  EXPECT_EQ(ServiceState(kDns4Service).owed[HR_DEBT_RETRIES], HR_RETRIES_MAX) << "what is not sent is not owed";
}

TEST_F(RetryBudgetTest, ABackendThatRefusesIsMaskedForAsLongAsAnotherAnswers) {
  ServiceState(kDns4Service).owed[HR_DEBT_RETRIES] = HR_RETRIES_MAX - 1;
  for (uint16_t id = 1; id <= 200; ++id) {
    ASSERT_TRUE(IsRetried(id)) << id;
    Clock(last_.packet, {.mark = last_.mark});
    const uint32_t request = FindDns(id);
    ASSERT_EQ(Reply(DnsReply4(id, kB4)).changes.at("dns4.won_by_failover"), 1) << id;
    EndRetention(request);
    VisitAll();
  }
  EXPECT_EQ(ServiceState(kDns4Service).owed[HR_DEBT_RETRIES], 0) << "each such answer pays for eight";
}

// A request that is refused and not given to another backend gets no answer, so answers alone would never pay.
TEST_F(RetryBudgetTest, TimePaysForWhatNoAnswerPays) {
  ServiceState(kDns4Service).owed[HR_DEBT_RETRIES] = HR_RETRIES_MAX;
  ASSERT_FALSE(IsRetried(1));
  Advance(20 * kMillisecond);
  EXPECT_TRUE(IsRetried(2));
  EXPECT_GE(ServiceState(kDns4Service).owed[HR_DEBT_RETRIES], HR_RETRIES_MAX - 2);
  ServiceState(kDns4Service).owed[HR_DEBT_RETRIES] = HR_RETRIES_MAX;
  EXPECT_FALSE(IsRetried(3));
  Advance(3600 * kSecond);
  EXPECT_TRUE(IsRetried(4));
  EXPECT_EQ(ServiceState(kDns4Service).owed[HR_DEBT_RETRIES], 1) << "and no more than is owed";
}

TEST_F(RetryBudgetTest, NamesThatEveryBackendRefusesUseUpNothingWhileOneInEightIsAnswered) {
  ServiceState(kDns4Service).owed[HR_DEBT_RETRIES] = HR_RETRIES_MAX / 2 - 8;
  for (uint16_t id = 1; id <= 160; ++id) {
    ASSERT_TRUE(IsRetried(id)) << id;
    Clock(last_.packet, {.mark = last_.mark});
    const uint32_t request = FindDns(id);
    Reply(DnsReply4(id, kB4, id % 8 != 0 ? kServFail : 0));
    EndRetention(request);
    VisitAll();
  }
}

TEST_F(RetryBudgetTest, AnswersPayNoMoreThanIsOwed) {
  for (uint16_t id = 1; id <= 20; ++id) {
    Split(DnsRequest4(id));
    Reply(DnsReply4(id, kA4));
  }
  EXPECT_EQ(ServiceState(kDns4Service).owed[HR_DEBT_RETRIES], 0);
}

TEST_F(RetryBudgetTest, ARefusalThatForbidsAnotherAttemptOwesNone) {
  Split(HkvRequest4(1));
  const RunResult nack = Reply(HkvReply4(1, kA4, kHkvOverloaded, kHkvNeverHedge));
  EXPECT_EQ(nack.changes.at("hkv4.nacked"), 1) << "it goes to the client";
  EXPECT_EQ(ServiceState(kHkv4Service).owed[HR_DEBT_RETRIES], 0);
}

// An election refuses everything for a while: those requests wait for the next leader, and are not to be used up.
TEST_F(RetryBudgetTest, RefusalsForWantOfALeaderAreNotCounted) {
  ServiceState(kHkv4Service).owed[HR_DEBT_RETRIES] = HR_RETRIES_MAX;
  Split(HkvRequest4(1));
  const RunResult nack = Reply(HkvReply4(1, kA4, kHkvNotLeader));
  EXPECT_THAT(nack.changes, Contains(Pair("hkv4.nacks_swallowed", 1)));
  EXPECT_EQ(ServiceState(kHkv4Service).owed[HR_DEBT_RETRIES], HR_RETRIES_MAX);
}

}  // namespace
}  // namespace hedgerow::packets
