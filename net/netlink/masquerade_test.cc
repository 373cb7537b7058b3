// SPDX-License-Identifier: Apache-2.0
//
// A client in a namespace behind MASQUERADE (the container case): which source address the kernel gives its
// packets on their way into the proxy interface, and what AddSourceAddress changes. Records a behaviour of the
// kernel on which the design rests; if it fails on a newer kernel, AddSourceAddress may have become
// unnecessary.
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "net/netlink/link.h"
#include "net/namespace_test.h"
#include "net/netlink/route.h"

namespace hedgerow::net {
namespace {

constexpr uint16_t kPort = 53;

IpAddress Ip(absl::string_view text) { return IpAddress::Parse(text).value(); }

class MasqueradeTest : public NamespaceTest {
 protected:
  // A host with two uplinks (eth1, the older, is the wrong one), a bridge-like interface dk0 to a container's
  // namespace, forwarding, and MASQUERADE for what the container sends.
  void InHost(const std::function<void()>& body) {
    InNamespace([&] {
      if (Shell("command -v nft > /dev/null") != 0) GTEST_SKIP() << "needs nft (package nftables)";
      auto container = NewNetworkNamespace();
      ASSERT_THAT(container.status(), IsOk());
      container_ = std::move(*container);
      const std::string handle = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(container_.get());
      for (const std::string& command : std::vector<std::string>{
               "ip link add eth1 type veth peer name eth1p", "ip link add eth0 type veth peer name eth0p",
               "ip link add dk0 type veth peer name dk1", "ip link set dk1 netns " + handle,
               "for link in eth1 eth1p eth0 eth0p dk0; do ip link set $link up; done",
               "ip addr add 192.168.50.1/24 dev eth1", "ip addr add fd99:50::1/64 dev eth1 nodad",
               "ip addr add 10.77.0.1/24 dev eth0", "ip addr add fd77::1/64 dev eth0 nodad",
               "ip addr add 172.17.0.1/24 dev dk0", "ip addr add fd17::1/64 dev dk0 nodad",
               // These two belong to this test's namespace alone.
               "echo 1 > /proc/sys/net/ipv4/ip_forward", "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding",
               "nft 'add table inet t; add chain inet t p { type nat hook postrouting priority 100; }; "
               "add rule inet t p iifname dk0 masquerade'"}) {
        ASSERT_EQ(Shell(command), 0) << command;
      }
      ASSERT_THAT(
          InContainer([] {
            for (const char* command :
                 {"ip link set dk1 up", "ip addr add 172.17.0.2/24 dev dk1", "ip addr add fd17::2/64 dev dk1 nodad",
                  "ip route add default via 172.17.0.1", "ip -6 route add default via fd17::1"}) {
              if (Shell(command) != 0) return absl::InternalError(command);
            }
            return absl::OkStatus();
          }),
          IsOk());
      const auto pair = CreateVethPair({.name = "hr0", .peer_name = "hr0p", .instance = "masquerade-test"});
      ASSERT_THAT(pair.status(), IsOk());
      hr0_ = pair->link.ifindex;
      hr0p_ = pair->peer.ifindex;
      ASSERT_THAT(AddVipRoute({.vip = Ip("10.99.0.53"), .ifindex = hr0_, .source = Ip("10.77.0.1")}), IsOk());
      ASSERT_THAT(AddVipRoute({.vip = Ip("fd99::53"), .ifindex = hr0_, .source = Ip("fd77::1")}), IsOk());
      body();
    });
  }
  absl::Status InContainer(const std::function<absl::Status()>& body) const {
    return RunInNetworkNamespace(container_.get(), body);
  }
  // Sends a datagram from the container to the VIP and gives the source address that arrives behind hr0.
  std::string SourceSeen(const char* vip_text) const {
    UniqueFd sniffer(socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL)));
    sockaddr_ll at{};
    at.sll_family = AF_PACKET;
    at.sll_protocol = htons(ETH_P_ALL);
    at.sll_ifindex = hr0p_;
    EXPECT_EQ(bind(sniffer.get(), reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
    const timeval second{.tv_sec = 1, .tv_usec = 0};
    setsockopt(sniffer.get(), SOL_SOCKET, SO_RCVTIMEO, &second, sizeof(second));
    const IpAddress vip = Ip(vip_text);
    // Several tries: the neighbours resolve each other first.
    for (int attempt = 0; attempt < 5; ++attempt) {
      EXPECT_THAT(InContainer([&] { return SendDatagram(vip); }), IsOk());
      std::array<uint8_t, 2048> frame;
      for (;;) {
        const ssize_t bytes = recv(sniffer.get(), frame.data(), frame.size(), 0);
        if (bytes < 0) break;
        // Source address and protocol number stand at fixed places: Ethernet 14, IPv4 +12 and +9, IPv6 +8 and
        // +6.
        const bool v4 = frame[12] == 0x08 && frame[13] == 0x00;
        const bool v6 = frame[12] == 0x86 && frame[13] == 0xdd;
        if (vip.is_v4() && v4 && frame[14 + 9] == IPPROTO_UDP) {
          return IpAddress::FromBytes(std::span<const uint8_t>(frame.data() + 26, 4))->ToString();
        }
        if (!vip.is_v4() && v6 && frame[14 + 6] == IPPROTO_UDP) {
          return IpAddress::FromBytes(std::span<const uint8_t>(frame.data() + 22, 16))->ToString();
        }
      }
    }
    return "nothing arrived";
  }
  static absl::Status SendDatagram(const IpAddress& vip) {
    UniqueFd fd(socket(vip.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage to{};
    socklen_t to_bytes = 0;
    if (vip.is_v4()) {
      auto* v4 = reinterpret_cast<sockaddr_in*>(&to);
      v4->sin_family = AF_INET;
      v4->sin_port = htons(kPort);
      std::memcpy(&v4->sin_addr, vip.wire().data(), 4);
      to_bytes = sizeof(*v4);
    } else {
      auto* v6 = reinterpret_cast<sockaddr_in6*>(&to);
      v6->sin6_family = AF_INET6;
      v6->sin6_port = htons(kPort);
      std::memcpy(&v6->sin6_addr, vip.wire().data(), 16);
      to_bytes = sizeof(*v6);
    }
    if (sendto(fd.get(), "q", 1, 0, reinterpret_cast<sockaddr*>(&to), to_bytes) == 1) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, "send from the container");
  }

  UniqueFd container_;
  int hr0_ = 0;
  int hr0p_ = 0;
};

TEST_F(MasqueradeTest, SourceIsTheUplinksOnlyWithItsAddressOnTheProxyInterface) {
  InHost([&] {
    ASSERT_TRUE(WaitFor("test $(ip -6 route show table local | grep -c 'local fd') = 3"));
    EXPECT_EQ(SourceSeen("10.99.0.53"), "192.168.50.1") << "the first interface's address, not the route's src";
    EXPECT_EQ(SourceSeen("fd99::53"), "fd99:50::1") << "the longest common prefix, not the route's src";
    for (const char* address : {"10.77.0.1", "fd77::1"}) ASSERT_THAT(AddSourceAddress(hr0_, Ip(address)), IsOk());
    ASSERT_TRUE(WaitFor("ip -6 route show table local | grep -q 'fd77::1 dev hr0'"));
    EXPECT_EQ(SourceSeen("10.99.0.53"), "10.77.0.1");
    EXPECT_EQ(SourceSeen("fd99::53"), "fd77::1");
  });
}

}  // namespace
}  // namespace hedgerow::net
