// SPDX-License-Identifier: Apache-2.0
//
// The watcher tells of each kind of change that can move a backend or a VIP, and not of other traffic on the same
// groups.
#include "net/netlink/watch.h"

#include <poll.h>
#include <sys/socket.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "net/netlink/link.h"
#include "net/netlink/route.h"
#include "net/tc/clock_qdisc.h"
#include "net/namespace_test.h"

namespace hedgerow::net {
namespace {

IpAddress Ip(absl::string_view text) { return IpAddress::Parse(text).value(); }

class WatchTest : public NamespaceTest {
 protected:
  void InHost(const std::function<void()>& body) {
    InNamespace([&] {
      for (const char* command :
           {"echo 1 > /proc/sys/net/ipv6/conf/default/addr_gen_mode",  // no link-local address: its detection ends
                                                                       // seconds later
            "ip link add eth0 type veth peer name eth0p", "ip link set eth0 up", "ip link set eth0p up",
            "ip addr add 10.77.0.1/24 dev eth0", "ip addr add fd77::1/64 dev eth0 nodad"}) {
        ASSERT_EQ(Shell(command), 0) << command;
      }
      ASSERT_TRUE(WaitFor("ip -6 route show table local | grep -q 'local fd77::1 '"));
      eth0_ = FindLink("eth0")->ifindex;
      auto watcher = Watcher::Start();
      ASSERT_THAT(watcher.status(), IsOk());
      watcher_ = std::move(*watcher);
      watcher_->SetInterest(
          {.destinations = {Ip("10.77.0.11"), Ip("fd77::b"), Ip("10.99.0.53")}, .ifindexes = {eth0_}});
      Settle();
      body();
      watcher_.reset();
    });
  }
  // Reads what the kernel's workers still tell of what was made: links and addresses settle within a moment.
  void Settle() {
    for (pollfd ready{.fd = watcher_->fd(), .events = POLLIN, .revents = 0}; poll(&ready, 1, 300) > 0;)
      ASSERT_THAT(watcher_->Drain().status(), IsOk());
  }
  NetworkEvents After(const std::string& command) {
    EXPECT_EQ(Shell(command), 0) << command;
    const auto events = watcher_->Drain();
    EXPECT_THAT(events.status(), IsOk());
    return events.value_or(NetworkEvents{});
  }

  int eth0_ = 0;
  std::optional<Watcher> watcher_;
};

TEST_F(WatchTest, EveryChangeThatCanMoveABackendIsTold) {
  InHost([&] {
    for (const char* command :
         {"ip addr add 10.77.0.2/24 dev eth0", "ip addr del 10.77.0.2/24 dev eth0", "ip link set eth0 mtu 1400",
          "ip link add eth1 type veth peer name eth1p", "ip link set eth1 up; ip link set eth1p up",
          "ip route add 10.77.0.11/32 dev eth1", "ip route add 10.77.0.8/29 dev eth1", "ip route add default dev eth1",
          "ip route add 10.0.0.0/8 dev eth1 table 52", "ip rule add pref 5270 lookup 52",
          "ip -6 route add fd77::/65 dev eth1", "ip -6 rule add pref 5270 lookup 52", "ip route del 10.77.0.11/32",
          "ip link set eth1 down", "ip link del eth1"}) {
      EXPECT_TRUE(After(command).network) << command;
      Settle();
    }
  });
}

TEST_F(WatchTest, RoutesToOthersArePassedOverAndCounted) {
  InHost([&] {
    for (const char* command : {"ip route add 10.98.0.0/16 dev eth0", "ip route add 10.77.0.10/32 dev eth0",
                                "ip route add 10.77.0.12/31 dev eth0", "ip -6 route add fd77:0:0:1::/64 dev eth0",
                                "ip route add 11.77.0.11/32 dev eth0 table 9"}) {
      const NetworkEvents events = After(command);
      EXPECT_FALSE(events.any()) << command;
      EXPECT_GE(events.messages, 1u) << command;
    }
  });
}

TEST_F(WatchTest, ANeighbourOfOursThatFailsOrAnswersIsTold) {
  InHost([&] {
    for (const char* address : {"10.77.0.11", "fd77::b"}) {
      const auto becomes = [&](const char* state) {
        return After(absl::StrCat("ip neigh replace ", address, " dev eth0 ", state));
      };
      EXPECT_TRUE(becomes("lladdr 02:00:00:00:00:0b nud reachable").network) << address;
      EXPECT_FALSE(becomes("lladdr 02:00:00:00:00:0b nud stale").any()) << address;
      EXPECT_TRUE(becomes("nud failed").network) << address;
    }
    EXPECT_FALSE(After("ip neigh replace 10.77.0.12 dev eth0 lladdr 02:00:00:00:00:0c nud reachable").any());
    EXPECT_FALSE(After("ip neigh replace 10.77.0.12 dev eth0 nud failed").any());
  });
}

TEST_F(WatchTest, QdiscsOfOurInterfacesAndNoOthersAreTold) {
  InHost([&] {
    ASSERT_THAT(InstallClockQdisc(eth0_, {}), IsOk());
    Settle();
    EXPECT_TRUE(After("tc qdisc del dev eth0 root").qdiscs);
    ASSERT_EQ(Shell("tc qdisc add dev eth0p root pfifo"), 0);
    EXPECT_FALSE(After("tc qdisc del dev eth0p root").qdiscs);
  });
}

TEST_F(WatchTest, LostMessagesAreTold) {
  InHost([&] {
    const int smallest = 1;
    ASSERT_EQ(setsockopt(watcher_->fd(), SOL_SOCKET, SO_RCVBUF, &smallest, sizeof(smallest)), 0);
    std::string many;
    for (int i = 0; i < 40; ++i) many += "ip route add 10.98.0.0/16 dev eth0; ip route del 10.98.0.0/16; ";
    const NetworkEvents events = After(many);
    EXPECT_TRUE(events.lost && events.any());
    EXPECT_FALSE(After("true").any()) << "told already";
  });
}

TEST_F(WatchTest, OneDrainIsBounded) {
  InHost([&] {
    const int large = 64 << 20;
    ASSERT_EQ(setsockopt(watcher_->fd(), SOL_SOCKET, SO_RCVBUFFORCE, &large, sizeof(large)), 0);
    ASSERT_EQ(
        Shell("for i in $(seq 0 19); do for j in $(seq 0 255); do echo route add 10.98.$i.$j/32 dev eth0; done; done | "
              "ip -batch -"),
        0);
    const auto first = watcher_->Drain();
    ASSERT_THAT(first.status(), IsOk());
    EXPECT_GE(first->messages, Watcher::kDrainMessages);
    EXPECT_LT(first->messages, Watcher::kDrainMessages + 100);
    const auto rest = watcher_->Drain();
    EXPECT_GE(first->messages + rest->messages, 256u * 20);  // and what the kernel says of a link that is just up
    EXPECT_FALSE(first->lost || rest->lost);
  });
}

}  // namespace
}  // namespace hedgerow::net
