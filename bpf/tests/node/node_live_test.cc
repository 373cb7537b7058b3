// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The programs attached, over a real veth between two network namespaces: an answer really arrives at a peer's
// socket, native and generic; a veth that loses answers is noticed; a broadcast really reaches every member,
// whole checksums and all, also where the device finishes none.
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/if_link.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "bpf/tests/checksum.h"
#include "bpf/tests/node/node_fixture.h"
#include "bpf/tests/sniffer.h"
#include "net/netlink/link.h"
#include "net/namespace_test.h"
#include "node.skel.h"

namespace hedgerow::packets {
namespace {

using net::IsOk;
using offload::AttachOptions;
using offload::BpfKernel;
using offload::XdpChoice;

socklen_t SocketAddress(const std::string &address, bool ipv6, sockaddr_storage &storage) {
  storage = {};
  if (ipv6) {
    auto &in6 = reinterpret_cast<sockaddr_in6 &>(storage);
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(kPeerPort);
    inet_pton(AF_INET6, address.c_str(), &in6.sin6_addr);
    return sizeof(in6);
  }
  auto &in4 = reinterpret_cast<sockaddr_in &>(storage);
  in4.sin_family = AF_INET;
  in4.sin_port = htons(kPeerPort);
  inet_pton(AF_INET, address.c_str(), &in4.sin_addr);
  return sizeof(in4);
}

net::UniqueFd BoundSocket(const std::string &address, bool ipv6, uint16_t port = kPeerPort) {
  net::UniqueFd descriptor(socket(ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage storage{};
  const socklen_t bytes = SocketAddress(address, ipv6, storage);
  (ipv6 ? reinterpret_cast<sockaddr_in6 &>(storage).sin6_port : reinterpret_cast<sockaddr_in &>(storage).sin_port) =
      htons(port);
  EXPECT_EQ(bind(descriptor.get(), reinterpret_cast<sockaddr *>(&storage), bytes), 0) << strerror(errno);
  return descriptor;
}

// As an administrator would, by the link's number.
bool DetachFromOutside(bpf_program *program) {
  bpf_prog_info wanted{};
  uint32_t bytes = sizeof(wanted);
  if (bpf_obj_get_info_by_fd(bpf_program__fd(program), &wanted, &bytes) != 0) return false;
  uint32_t id = 0;
  while (bpf_link_get_next_id(id, &id) == 0) {
    const net::UniqueFd link(bpf_link_get_fd_by_id(id));
    bpf_link_info info{};
    bytes = sizeof(info);
    if (!link.valid() || bpf_obj_get_info_by_fd(link.get(), &info, &bytes) != 0) continue;
    if (info.prog_id == wanted.id) return bpf_link_detach(link.get()) == 0;
  }
  return false;
}

std::unique_ptr<BpfKernel> OpenKernel(bool ipv6) {
  const hr_node_config config = NodeConfig(ipv6);
  auto kernel = BpfKernel::Open({.cluster_id = config.cluster_id,
                                 .keys = {NodeKey()},
                                 .self = config.self,
                                 .address = config.address,
                                 .port = kPeerPort,
                                 .instance = "live"});
  EXPECT_THAT(kernel.status(), IsOk());
  if (!kernel.ok()) return nullptr;
  for (uint32_t node = 1; node <= kNodes; ++node) {
    (*kernel)->SetMember(SlotOf(node), MemberOf(node, ipv6));
    (*kernel)->SetIncarnation(SlotOf(node), IncarnationOf(node), 0);
  }
  hr_node_control adopt{};
  adopt.operation = HR_NODE_ADOPT;
  adopt.incarnation = kOwnIncarnation;
  (*kernel)->Control(adopt);
  hr_node_control open{};
  open.operation = HR_NODE_OPEN;
  open.incarnation = kOwnIncarnation;
  open.shared = FollowerShared(MonotonicNs());
  (*kernel)->Control(open);
  EXPECT_EQ(open.result, uint32_t{HR_NODE_DONE});
  return *std::move(kernel);
}

class NodeLiveTest : public net::NamespaceTest, public ::testing::WithParamInterface<bool> {
 protected:
  bool ipv6() const { return GetParam(); }

  // up0 with the node's address here, wire0 with the leader's in the other namespace.
  void Connect(int peer) {
    Run(absl::StrCat("ip link add up0 type veth peer name wire0 netns /proc/", getpid(), "/fd/", peer));
    Address("up0", kSelf);
    ASSERT_THAT(net::RunInNetworkNamespace(peer,
                                           [&] {
                                             Address("wire0", kLeader);
                                             return absl::OkStatus();
                                           }),
                IsOk());
    ASSERT_TRUE(WaitFor("ip link show up0 | grep -q LOWER_UP"));
  }
  void Address(const std::string &link, uint32_t node) {
    Run(absl::StrCat("ip addr add ", AddressOf(node, ipv6()), ipv6() ? "/64 nodad" : "/24", " dev ", link));
    Run(absl::StrCat("ip link set ", link, " up"));
  }
  static void Run(const std::string &command) { EXPECT_EQ(Shell(command), 0) << command; }

  // A heartbeat from the leader's socket: does its answer arrive?
  bool Answered(int peer) {
    bool answered = false;
    EXPECT_THAT(net::RunInNetworkNamespace(
                    peer,
                    [&] {
                      const net::UniqueFd leader = BoundSocket(AddressOf(kLeader, ipv6()), ipv6());
                      const hr_peer_heartbeat body{.round = 7, .commit = 4, .election_timeout_ns = 20'000'000};
                      const Bytes datagram = SealPeer(PeerHead(HR_PEER_HEARTBEAT, kLeader, ++number_), BodyBytes(body));
                      sockaddr_storage to{};
                      const socklen_t bytes = SocketAddress(AddressOf(kSelf, ipv6()), ipv6(), to);
                      EXPECT_EQ(sendto(leader.get(), datagram.data(), datagram.size(), 0,
                                       reinterpret_cast<sockaddr *>(&to), bytes),
                                static_cast<ssize_t>(datagram.size()));
                      pollfd waiting{.fd = leader.get(), .events = POLLIN, .revents = 0};
                      if (poll(&waiting, 1, 500) != 1) return absl::OkStatus();
                      Bytes answer(2000);
                      answer.resize(static_cast<size_t>(
                          std::max<ssize_t>(0, recv(leader.get(), answer.data(), answer.size(), 0))));
                      hr_peer_header header{};
                      std::memcpy(&header, answer.data(), std::min(sizeof(header), answer.size()));
                      EXPECT_EQ(header.kind, HR_PEER_HEARTBEAT_REPLY);
                      EXPECT_EQ(header.tag, hr_siphash_sealed(&kNodeKey, answer.data(), answer.size()));
                      answered = true;
                      return absl::OkStatus();
                    }),
                IsOk());
    return answered;
  }
  // Neighbours are resolved by the first attempts.
  bool AnsweredAtLast(int peer) {
    for (int attempt = 0; attempt < 5; ++attempt)
      if (Answered(peer)) return true;
    return false;
  }
  uint64_t number_ = 0;
};

TEST_P(NodeLiveTest, ANativeAnswerArrivesWhereTheOtherEndHasAProgram) {
  InNamespace([&] {
    const auto peer = net::NewNetworkNamespace();
    ASSERT_THAT(peer.status(), IsOk());
    Connect(peer->get());
    const auto kernel = OpenKernel(ipv6());
    ASSERT_NE(kernel, nullptr);
    net::UniqueFd pass;
    ASSERT_THAT(
        net::RunInNetworkNamespace(peer->get(),
                                   [&] {
                                     LIBBPF_OPTS(bpf_link_create_opts, options, .flags = XDP_FLAGS_DRV_MODE);
                                     pass.Reset(bpf_link_create(bpf_program__fd(kernel->skeleton()->progs.hr_xdp_pass),
                                                                net::FindLink("wire0")->ifindex, BPF_XDP, &options));
                                     return absl::OkStatus();
                                   }),
        IsOk());
    ASSERT_TRUE(pass.valid());
    kernel->Attach({.mode = XdpChoice::kNative});
    EXPECT_TRUE(kernel->Xdp().on) << kernel->Xdp().detail;
    EXPECT_EQ(kernel->Xdp().detail, "native XDP on up0");
    EXPECT_TRUE(AnsweredAtLast(peer->get()));
    EXPECT_GT(kernel->Counters().events[HR_NODE_EVENT_HEARTBEAT_ANSWERED], 0u);
    // Taken off by somebody: noticed, and attached again.
    EXPECT_TRUE(DetachFromOutside(kernel->skeleton()->progs.hr_node_xdp));
    EXPECT_FALSE(kernel->Xdp().on);
    EXPECT_EQ(kernel->Xdp().detail, "taken off up0 by somebody");
    kernel->Attach({.mode = XdpChoice::kNative});
    EXPECT_TRUE(kernel->Xdp().on);
    EXPECT_TRUE(AnsweredAtLast(peer->get()));
  });
}

TEST_P(NodeLiveTest, OnAVethGenericXdpAnswersWithoutAProgramAtTheOtherEnd) {
  InNamespace([&] {
    const auto peer = net::NewNetworkNamespace();
    ASSERT_THAT(peer.status(), IsOk());
    Connect(peer->get());
    const auto kernel = OpenKernel(ipv6());
    ASSERT_NE(kernel, nullptr);
    kernel->Attach({.mode = XdpChoice::kNative});
    EXPECT_EQ(kernel->Xdp().detail, "native XDP on up0");
    EXPECT_FALSE(AnsweredAtLast(peer->get())) << "this kernel's veth needs no program at the other end";
    kernel->Detach();
    kernel->Attach({});
    EXPECT_TRUE(kernel->Xdp().on);
    EXPECT_EQ(kernel->Xdp().detail, "generic XDP on up0 (a veth copies each datagram for native XDP)");
    EXPECT_TRUE(AnsweredAtLast(peer->get()));
    kernel->Detach();
    EXPECT_FALSE(kernel->Xdp().on);
    EXPECT_FALSE(Answered(peer->get()));
  });
}

TEST_P(NodeLiveTest, AHookThatCannotBeTakenSaysWhy) {
  InNamespace([&] {
    const auto kernel = OpenKernel(ipv6());
    ASSERT_NE(kernel, nullptr);
    kernel->Attach({});
    EXPECT_FALSE(kernel->Xdp().on);
    EXPECT_THAT(kernel->Xdp().detail, testing::HasSubstr("no interface has the address"));
    Run("ip link add up0 type veth peer name wire0");
    Address("up0", kSelf);
    LIBBPF_OPTS(bpf_link_create_opts, options, .flags = XDP_FLAGS_DRV_MODE);
    const net::UniqueFd other(bpf_link_create(bpf_program__fd(kernel->skeleton()->progs.hr_xdp_pass),
                                              net::FindLink("up0")->ifindex, BPF_XDP, &options));
    ASSERT_TRUE(other.valid());
    kernel->Attach({});
    EXPECT_FALSE(kernel->Xdp().on);
    EXPECT_THAT(kernel->Xdp().detail, testing::HasSubstr("has an XDP program already"));
    EXPECT_TRUE(kernel->Broadcast().on) << kernel->Broadcast().detail;
  });
}

struct Copy {
  std::string destination;
  uint8_t last_mac_byte;
  auto operator<=>(const Copy &) const = default;
};

TEST_P(NodeLiveTest, ABroadcastReachesEveryMemberOfItsMask) {
  for (const net::Mechanism mechanism : {net::Mechanism::kAuto, net::Mechanism::kClsact}) {
    for (const bool offload : {true, false}) {
      InNamespace([&] {
        Run("ip link add up0 type veth peer name wire0; ip link set wire0 up; ip addr flush dev wire0");
        Address("up0", kSelf);
        ASSERT_THAT(net::SetTxChecksumOffload("up0", offload), IsOk());
        const auto kernel = OpenKernel(ipv6());
        ASSERT_NE(kernel, nullptr);
        const auto link = net::FindLink("up0");
        for (uint32_t node = 2; node <= 7; ++node) {
          hr_node_peer member = MemberOf(node, ipv6());
          member.flags = HR_NODE_PEER_MAC;
          member.ifindex = static_cast<uint32_t>(link->ifindex);
          member.port_be = htons(static_cast<uint16_t>(kPeerPort + node));
          const uint8_t mac[6] = {2, 0, 0, 0, 9, static_cast<uint8_t>(node)};
          std::memcpy(member.mac, mac, 6);
          std::copy(link->mac.begin(), link->mac.end(), member.mac + 6);
          kernel->SetMember(SlotOf(node), member);
        }
        EXPECT_EQ(kernel->Reachable(), 0x7eu);
        Run(absl::StrCat("ip neigh replace ", AddressOf(2, ipv6()), " lladdr 02:00:00:00:09:02 dev up0"));
        kernel->Attach({.xdp = false, .tc = mechanism});
        ASSERT_TRUE(kernel->Broadcast().on) << kernel->Broadcast().detail;
        const auto sniffer = Sniffer::Open(net::FindLink("wire0")->ifindex);
        ASSERT_NE(sniffer, nullptr);
        const net::UniqueFd sender = BoundSocket(AddressOf(kSelf, ipv6()), ipv6(), 5000);
        for (uint32_t peers = 2; peers <= 6; ++peers) {
          for (const size_t body_bytes : {0, 1, 2, 3, 63, 700, ipv6() ? 1387 : 1407}) {  // up to the MTU
            uint32_t mask = 0;
            for (uint32_t node = 2; node < 2 + peers; ++node) mask |= 1u << SlotOf(node);
            hr_peer_header header = PeerHead(HR_PEER_HEARTBEAT, kSelf, 1);
            header.to = 0;
            const Bytes datagram = SealPeer(header, Pattern(body_bytes, 7));
            const uint32_t mark = HR_NODE_MARK_BROADCAST | mask;
            ASSERT_EQ(setsockopt(sender.get(), SOL_SOCKET, SO_MARK, &mark, sizeof(mark)), 0);
            sockaddr_storage to{};
            const socklen_t bytes = SocketAddress(AddressOf(2, ipv6()), ipv6(), to);
            sniffer->Take(0, 0);
            ASSERT_EQ(
                sendto(sender.get(), datagram.data(), datagram.size(), 0, reinterpret_cast<sockaddr *>(&to), bytes),
                static_cast<ssize_t>(datagram.size()));
            std::set<Copy> seen;
            size_t copies = 0;
            for (int round = 0; round < 20 && copies < peers; ++round) {
              for (const Captured &captured : sniffer->Take(peers, 100)) {
                const PacketView view = Read(captured.packet);
                if (view.source_port != kPeerPort) continue;  // neighbour discovery and the like
                ++copies;
                seen.insert({view.destination, captured.packet[5]});
                EXPECT_EQ(view.payload, datagram);
                EXPECT_EQ(view.destination_port, kPeerPort + captured.packet[5]);
                EXPECT_EQ(captured.mark, 0u);
                EXPECT_EQ(view.source, AddressOf(kSelf, ipv6()));
                EXPECT_TRUE(offload || captured.checksum_ready);
                EXPECT_EQ(captured.checksum_ready ? ChecksumFault(captured.packet) : "", "") << body_bytes;
              }
            }
            std::set<Copy> expected;
            for (uint32_t node = 2; node < 2 + peers; ++node)
              expected.insert({AddressOf(node, ipv6()), static_cast<uint8_t>(node)});
            EXPECT_EQ(seen, expected);
            EXPECT_EQ(copies, peers);
          }
        }
        const hr_node_stats stats = kernel->Counters();
        EXPECT_EQ(stats.events[HR_NODE_EVENT_BROADCAST], 5u * 7);
        EXPECT_EQ(stats.events[HR_NODE_EVENT_BROADCAST_COPIES], (2u + 3 + 4 + 5 + 6) * 7);
        EXPECT_EQ(stats.events[HR_NODE_EVENT_BROADCAST_FAILED], 0u);
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ip, NodeLiveTest, ::testing::Bool(),
                         [](const auto &info) { return info.param ? "v6" : "v4"; });

}  // namespace
}  // namespace hedgerow::packets
