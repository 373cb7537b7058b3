// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What BPF_PROG_TEST_RUN cannot show: real sockets through attached programs. Packets of the local stack carry
// partial checksums, redirects really happen, strict reverse-path filtering judges what comes back, and the
// clock's packet circulates. The uplink finishes checksums as a plain device does (tx-checksum off), and its
// other end sees every byte.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "bpf/tests/checksum.h"
#include "bpf/tests/kernel_fixture.h"
#include "bpf/tests/test_links.h"
#include "net/tc/clock_qdisc.h"
#include "net/netlink/route.h"
#include "net/tc/tc_attach.h"

namespace hedgerow::packets {
namespace {

constexpr int kPatienceMs = 3000;  // a busy machine; every wait ends as soon as what it waits for is there
constexpr char kRouter4[] = "10.77.0.254";

void Shell(const std::string &command) { ASSERT_EQ(system(command.c_str()), 0) << command; }

// Addresses, neighbours, routes and strict filtering, once a process.
void SetUpHost() {
  static bool done = false;
  if (done) return;
  done = true;
  const TestLinks &links = TestLinks::Get();
  for (const char *name : {"all", "default", "hr0", "up0"})
    std::ofstream(absl::StrCat("/proc/sys/net/ipv4/conf/", name, "/rp_filter")) << 1;
  Shell("ip address add 10.77.0.1/24 dev up0");
  Shell("ip address add fd77::1/64 dev up0 nodad");
  // The kernel makes the address's own route later, in a work item that waits for the networking lock.
  Shell("for i in $(seq 300); do ip -6 route get fd77::1 | grep -q ^local && exit 0; sleep 0.01; done; exit 1");
  const std::string mac = absl::StrJoin(links.wire.mac, ":", [](std::string *out, uint8_t byte) {
    absl::StrAppend(out, absl::Hex(byte, absl::kZeroPad2));
  });
  for (const char *backend : {kA4, kB4, kC4, kRouter4, kA6, kB6})
    Shell(absl::StrCat("ip neigh replace ", backend, " lladdr ", mac, " dev up0"));
  for (const char *vip : {kDns4, kRaw4, kOnce4, kHkv4, kDns6, kRaw6, kHkv6}) {
    const bool ipv6 = std::string_view(vip).find(':') != std::string_view::npos;
    ASSERT_TRUE(net::AddVipRoute({.vip = net::IpAddress::Parse(vip).value(),
                                  .ifindex = links.proxy.ifindex,
                                  .source = net::IpAddress::Parse(ipv6 ? kClient6 : kClient4).value()})
                    .ok());
  }
  ASSERT_TRUE(net::InstallClockQdisc(links.clock_out.ifindex, {}).ok());
}

// A connected UDP socket, as an unmodified client has it.
class Client {
 public:
  Client(const char *vip, uint16_t port) {
    sockaddr_storage to{};
    socklen_t bytes = 0;
    if (std::string_view(vip).find(':') != std::string_view::npos) {
      auto *in6 = reinterpret_cast<sockaddr_in6 *>(&to);
      in6->sin6_family = AF_INET6;
      in6->sin6_port = htons(port);
      inet_pton(AF_INET6, vip, &in6->sin6_addr);
      bytes = sizeof(*in6);
    } else {
      auto *in = reinterpret_cast<sockaddr_in *>(&to);
      in->sin_family = AF_INET;
      in->sin_port = htons(port);
      inet_pton(AF_INET, vip, &in->sin_addr);
      bytes = sizeof(*in);
    }
    fd_ = net::UniqueFd(socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(fd_.get(), reinterpret_cast<sockaddr *>(&to), bytes), 0);
    sockaddr_storage self{};
    socklen_t self_bytes = sizeof(self);
    getsockname(fd_.get(), reinterpret_cast<sockaddr *>(&self), &self_bytes);
    port_ = ntohs(to.ss_family == AF_INET ? reinterpret_cast<sockaddr_in *>(&self)->sin_port
                                          : reinterpret_cast<sockaddr_in6 *>(&self)->sin6_port);
  }
  void Send(const Bytes &payload) {
    ASSERT_EQ(send(fd_.get(), payload.data(), payload.size(), 0), static_cast<ssize_t>(payload.size()));
  }
  // Empty optional: nothing came; error() says why.
  std::optional<Bytes> Receive(int timeout_ms) {
    const timeval timeout{timeout_ms / 1000, timeout_ms % 1000 * 1000};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    Bytes payload(2048);
    const ssize_t bytes = recv(fd_.get(), payload.data(), payload.size(), 0);
    error_ = bytes < 0 ? errno : 0;
    if (bytes < 0) return std::nullopt;
    payload.resize(static_cast<size_t>(bytes));
    return payload;
  }
  int fd() const { return fd_.get(); }
  int error() const { return error_; }
  uint16_t port() const { return port_; }

 private:
  net::UniqueFd fd_;
  uint16_t port_ = 0;
  int error_ = 0;
};

class LiveTest : public PacketTest {
 protected:
  explicit LiveTest(net::Mechanism mechanism = net::Mechanism::kAuto) : mechanism_(mechanism) { time_stands_ = false; }

  void SetUp() override {
    PacketTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    SetUpHost();
    if (HasFatalFailure()) return;
    const TestLinks &links = TestLinks::Get();
    std::map<std::string, int> programs;
    for (const ProgramInfo &program : plane().reader().Programs()) programs[program.name] = program.fd;
    const std::map<Place, int> places = {{Place::kProxy, links.proxy.ifindex},
                                         {Place::kProxyPeer, links.proxy_peer.ifindex},
                                         {Place::kClock, links.clock_out.ifindex},
                                         {Place::kClockPeer, links.clock_in.ifindex},
                                         {Place::kUplinks, links.uplink.ifindex}};
    for (const Hook &hook : kHooks) {
      if (hook.place == Place::kOthers) continue;  // the wire stands for the network, and there is no other
      net::AttachSpec spec;
      spec.instance = "packets";
      spec.role = hook.program;
      spec.mechanism = mechanism_;
      spec.direction = hook.egress ? net::Direction::kEgress : net::Direction::kIngress;
      spec.ifindex = places.at(hook.place);
      auto attached = net::Attachment::Attach(spec, programs.at(hook.program));
      ASSERT_TRUE(attached.ok()) << hook.program << ": " << attached.status();
      attached_.push_back(*std::move(attached));
    }
    wire_ = Sniffer::Open(links.wire.ifindex);
    ASSERT_NE(wire_, nullptr);
    for (const uint32_t service :
         {kDns4Service, kDns6Service, kRaw4Service, kRaw6Service, kHkv4Service, kHkv6Service}) {
      ServicePolicy(service).delay_ns = 20 * kMillisecond;
      ServiceConfig(service).retention_ns = 100 * kMillisecond;
      ServiceConfig(service).deadline_ns = 2 * kSecond;
    }
  }
  void TearDown() override {
    for (net::Attachment &attachment : attached_) EXPECT_TRUE(attachment.Detach().ok());
    attached_.clear();
    PacketTest::TearDown();
  }

  // The next datagrams of a client's port that leave by the uplink. What else the host sends (neighbour discovery) is
  // passed over.
  std::vector<Bytes> Leaving(uint16_t client_port, size_t count, int timeout_ms = kPatienceMs) {
    std::vector<Bytes> packets;
    const absl::Time end = absl::Now() + absl::Milliseconds(timeout_ms);
    while (packets.size() < count && absl::Now() < end)
      for (Captured &captured : wire_->Take(1, 50)) {
        if (Read(captured.packet).source_port != client_port) continue;
        EXPECT_TRUE(captured.checksum_ready);
        EXPECT_EQ(ChecksumFault(captured.packet), "") << "to " << Read(captured.packet).destination;
        packets.push_back(std::move(captured.packet));
      }
    EXPECT_EQ(packets.size(), count);
    return packets;
  }
  // Waits until the clock is at rest.
  void ExpectRest() {
    for (int i = 0; i < kPatienceMs / 10 && Wheel().running != 0; ++i) usleep(10'000);
    EXPECT_EQ(Wheel().running, 0u);
    EXPECT_EQ(RequestsInUse(), 0u);
    const uint64_t laps = Wheel().laps;
    usleep(100'000);
    EXPECT_EQ(Wheel().laps, laps) << "0 laps at rest";
  }

  std::unique_ptr<Sniffer> wire_;

  // A leader is announced while a request waits that went elsewhere: it gets that one at once, and all that
  // follow.
  void ExpectAnnouncementFollowed(bool ipv6) {
    const uint32_t service = ipv6 ? kHkv6Service : kHkv4Service;
    const char *elected = ipv6 ? kB6 : kC4;
    ServicePolicy(service).delay_ns = kSecond;  // so that it is the announcement that sends it
    Client client(ipv6 ? kHkv6 : kHkv4, kHkvPort);
    const Bytes request = HkvRequest(kHkvWrite, 1, 1, Text("first"));
    client.Send(request);
    for (const Bytes &packet : Leaving(client.port(), 1)) EXPECT_EQ(Read(packet).destination, ipv6 ? kA6 : kA4);
    hr_announcement news = Leading(ipv6 ? kCluster6 : kCluster4, elected, kHkvPort, 1, 1);
    news.cluster_epoch = ipv6 ? kEpoch6 : 0;
    ASSERT_TRUE(wire_->Send(PacketBuilder(elected, ipv6 ? kClient6 : kClient4)
                                .Udp(4802, kAnnouncePort, Seal(news, ipv6 ? kKey6 : kKey4))
                                .Build()));
    for (const Bytes &packet : Leaving(client.port(), 1, 900)) {
      EXPECT_EQ(Read(packet).destination, elected);
      EXPECT_EQ(Read(packet).payload, request);
    }
    ASSERT_TRUE(wire_->Send(
        PacketBuilder(elected, ipv6 ? kClient6 : kClient4).Udp(kHkvPort, client.port(), HkvAnswer(request)).Build()));
    EXPECT_EQ(client.Receive(kPatienceMs), HkvAnswer(request));
    client.Send(HkvRequest(kHkvWrite, 1, 2));
    for (const Bytes &packet : Leaving(client.port(), 1)) EXPECT_EQ(Read(packet).destination, elected);
  }

 private:
  const net::Mechanism mechanism_;
  std::vector<net::Attachment> attached_;
};

// Where the kernel has TCX the others run on it; older kernels have this alone.
class LiveClsactTest : public LiveTest {
 protected:
  LiveClsactTest() : LiveTest(net::Mechanism::kClsact) {}
};

TEST_F(LiveTest, ARequestLeavesAndItsAnswerComesBackPastStrictFiltering) {
  for (const bool ipv6 : {false, true}) {
    SCOPED_TRACE(ipv6 ? "IPv6" : "IPv4");
    ServicePolicy(ipv6 ? kDns6Service : kDns4Service).delay_ns =
        kSecond;  // so that one copy leaves, however busy the machine is
    Client client(ipv6 ? kDns6 : kDns4, kDnsPort);
    const Bytes query = DnsQuery(77, "www.example.org");
    client.Send(query);
    const std::vector<Bytes> sent = Leaving(client.port(), 1);
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(Read(sent[0]).destination, ipv6 ? kA6 : kA4);
    EXPECT_EQ(Read(sent[0]).payload, query);
    ASSERT_TRUE(wire_->Send(PacketBuilder(ipv6 ? kA6 : kA4, ipv6 ? kClient6 : kClient4)
                                .Udp(ipv6 ? kBackendDnsPort6 : kDnsPort, client.port(), DnsAnswer(query))
                                .Build()));
    EXPECT_EQ(client.Receive(kPatienceMs), DnsAnswer(query));
  }
  ExpectRest();
}

TEST_F(LiveTest, TheClockHedgesASilentBackendsRequestAndRestsAgain) {
  for (const bool ipv6 : {false, true}) {
    SCOPED_TRACE(ipv6 ? "IPv6" : "IPv4");
    Client client(ipv6 ? kRaw6 : kRaw4, kRawPort);
    const Bytes payload = Pattern(333, 5);
    client.Send(payload);
    const std::vector<Bytes> sent = Leaving(client.port(), 2);
    ASSERT_EQ(sent.size(), 2u);
    EXPECT_EQ(Read(sent[0]).destination, ipv6 ? kA6 : kA4);
    EXPECT_EQ(Read(sent[1]).destination, ipv6 ? kB6 : kB4);
    EXPECT_EQ(Read(sent[1]).payload, payload);
    auto answer = [&](const char *from) {
      return wire_->Send(PacketBuilder(from, ipv6 ? kClient6 : kClient4).Udp(9000, client.port(), payload).Build());
    };
    ASSERT_TRUE(answer(ipv6 ? kB6 : kB4));
    EXPECT_EQ(client.Receive(kPatienceMs), payload);
    ASSERT_TRUE(answer(ipv6 ? kA6 : kA4));
    EXPECT_EQ(client.Receive(100), std::nullopt) << "a late loser never reaches the client";
  }
  ExpectRest();
}

TEST_F(LiveTest, ANackGoesRoundTheClocksLinkAndLeavesAsTheNextAttempt) {
  ServicePolicy(kDns4Service).delay_ns = kSecond;  // so that it is the nack that releases it
  Client client(kDns4, kDnsPort);
  const Bytes query = DnsQuery(78, "www.example.org");
  client.Send(query);
  Leaving(client.port(), 1);
  ASSERT_TRUE(wire_->Send(PacketBuilder(kA4, kClient4).Udp(kDnsPort, client.port(), DnsAnswer(query, 2)).Build()));
  const std::vector<Bytes> sent = Leaving(client.port(), 1, 900);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(Read(sent[0]).destination, kB4);
  EXPECT_EQ(Read(sent[0]).payload, query);
  ASSERT_TRUE(wire_->Send(PacketBuilder(kB4, kClient4).Udp(kDnsPort, client.port(), DnsAnswer(query)).Build()));
  EXPECT_EQ(client.Receive(kPatienceMs), DnsAnswer(query));
}

TEST_F(LiveTest, BothCopiesAroundASuspectLeaderHaveRightChecksums) {
  for (const bool ipv6 : {false, true}) {
    SCOPED_TRACE(ipv6 ? "IPv6" : "IPv4");
    Silence(ipv6 ? kRaw6A : kRaw4A, 100 * kSecond);
    Client client(ipv6 ? kRaw6 : kRaw4, kRawPort);
    client.Send(Pattern(201, 6));
    std::vector<std::string> to;
    for (const Bytes &packet : Leaving(client.port(), 2)) {
      EXPECT_EQ(Read(packet).payload, Pattern(201, 6));
      to.push_back(Read(packet).destination);
    }
    EXPECT_THAT(to, UnorderedElementsAre(ipv6 ? kA6 : kA4, ipv6 ? kB6 : kB4));
  }
}

TEST_F(LiveTest, ALargeDatagramArrivesInFragmentsAllAtOneBackend) {
  Client client(kRaw4, kRawPort);
  client.Send(Pattern(4000, 7));
  size_t fragments = 0;
  for (int waited_ms = 0; fragments < 3 && waited_ms < kPatienceMs; waited_ms += 50)
    for (const Captured &captured : wire_->Take(1, 50)) {
      if (Read(captured.packet).source != kClient4) continue;
      ++fragments;
      EXPECT_EQ(Read(captured.packet).destination, kA4);
      EXPECT_EQ(ChecksumFault(captured.packet), "");
    }
  EXPECT_EQ(fragments, 3u);
}

TEST_F(LiveTest, TheLastPortUnreachableIsTheClientsConnectionRefused) {
  Client client(kOnce4, kRawPort);
  client.Send({1, 2, 3, 4});
  const std::vector<Bytes> sent = Leaving(client.port(), 1);
  ASSERT_EQ(sent.size(), 1u);
  ASSERT_TRUE(wire_->Send(PacketBuilder(kA4, kClient4).IcmpError(3, 3, Layer3(sent[0])).Build()));
  EXPECT_EQ(client.Receive(kPatienceMs), std::nullopt);
  EXPECT_EQ(client.error(), ECONNREFUSED);
}

TEST_F(LiveTest, ARoutersPathMtuReachesTheClientPastStrictFiltering) {
  Client client(kOnce4, kRawPort);
  client.Send(Pattern(1200, 1));
  const std::vector<Bytes> sent = Leaving(client.port(), 1);
  ASSERT_EQ(sent.size(), 1u);
  Bytes error = PacketBuilder(kRouter4, kClient4).IcmpError(3, 4, Layer3(sent[0]), 1111).Build();
  const net::MacAddress &mac = TestLinks::Get().uplink.mac;  // it stays on the uplink: it must be for this host
  std::copy(mac.begin(), mac.end(), error.begin());
  ASSERT_TRUE(wire_->Send(error));
  int mtu = 0;
  for (int i = 0; i < kPatienceMs / 10 && mtu != 1111; ++i) {
    usleep(10'000);
    send(client.fd(), "once more", 9,
         0);  // a new look-up of the route; or it fails, which tells the client just as well
    socklen_t bytes = sizeof(mtu);
    ASSERT_EQ(getsockopt(client.fd(), IPPROTO_IP, IP_MTU, &mtu, &bytes), 0);
  }
  EXPECT_EQ(mtu, 1111);
}

TEST_F(LiveTest, AnAnnouncedLeaderGetsWhatWaitsAndWhatFollows) {
  for (const bool ipv6 : {false, true}) {
    SCOPED_TRACE(ipv6 ? "IPv6" : "IPv4");
    ExpectAnnouncementFollowed(ipv6);
  }
}

TEST_F(LiveClsactTest, AnAnnouncedLeaderGetsWhatWaitsAndWhatFollows) {
  for (const bool ipv6 : {false, true}) {
    SCOPED_TRACE(ipv6 ? "IPv6" : "IPv4");
    ExpectAnnouncementFollowed(ipv6);
  }
}

TEST_F(LiveTest, AVipAnswersPing) {
  net::UniqueFd raw(socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP));
  ASSERT_TRUE(raw.valid());
  sockaddr_in to{};
  to.sin_family = AF_INET;
  inet_pton(AF_INET, kDns4, &to.sin_addr);
  ASSERT_EQ(connect(raw.get(), reinterpret_cast<sockaddr *>(&to), sizeof(to)), 0);
  const Bytes frame = PacketBuilder(kClient4, kDns4).Echo(false, 99, Text("hello")).Build();
  ASSERT_GT(send(raw.get(), frame.data() + kEthernetBytes + 20, frame.size() - kEthernetBytes - 20, 0), 0);
  const timeval timeout{3, 0};
  setsockopt(raw.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  uint8_t answer[256];
  ASSERT_EQ(recv(raw.get(), answer, sizeof(answer), 0), 20 + 8 + 5);
  EXPECT_EQ(answer[20], ICMP_ECHOREPLY);
}

}  // namespace
}  // namespace hedgerow::packets
