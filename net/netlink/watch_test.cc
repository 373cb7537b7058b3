// SPDX-License-Identifier: Apache-2.0
//
// The watcher sees each loss we must mend, also those the kernel keeps quiet about, and nothing else.
#include "net/netlink/watch.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>

#include "net/tc/clock_qdisc.h"
#include "net/namespace_test.h"

namespace hedgerow::net {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

IpAddress Ip(absl::string_view text) { return IpAddress::Parse(text).value(); }

class WatchTest : public NamespaceTest {
 protected:
  void InHost(const std::function<void()>& body) {
    InNamespace([&] {
      for (const char* command :
           {"ip link add eth0 type veth peer name eth0p", "ip link set eth0 up", "ip link set eth0p up",
            "ip addr add 10.77.0.1/24 dev eth0", "ip addr add fd77::1/64 dev eth0 nodad"}) {
        ASSERT_EQ(Shell(command), 0) << command;
      }
      const auto pair = CreateVethPair({.name = "hr0", .peer_name = "hr0p", .instance = "watch-test"});
      ASSERT_THAT(pair.status(), IsOk());
      hr0_ = pair->link.ifindex;
      eth0_ = FindLink("eth0")->ifindex;
      spec_ = {.ifindexes = {hr0_, eth0_},
               .routes = {{.vip = Ip("10.99.0.53"), .ifindex = hr0_, .source = Ip("10.77.0.1")},
                          {.vip = Ip("fd99::53"), .ifindex = hr0_, .source = Ip("fd77::1")}},
               .addresses = {{.ifindex = eth0_, .address = Ip("10.77.0.1")},
                             {.ifindex = eth0_, .address = Ip("fd77::1")}}};
      for (const VipRoute& route : spec_.routes) ASSERT_THAT(AddVipRoute(route), IsOk());
      auto watcher = Watcher::Start(spec_);
      ASSERT_THAT(watcher.status(), IsOk());
      watcher_ = std::move(*watcher);
      EXPECT_THAT(Events(), IsEmpty());
      body();
      watcher_.reset();
    });
  }
  // The pending events as text, interface numbers replaced by names.
  std::vector<std::string> Events() {
    pollfd ready{.fd = watcher_->fd(), .events = POLLIN, .revents = 0};
    poll(&ready, 1, 50);
    return Names(watcher_->Drain());
  }
  std::vector<std::string> Names(const absl::StatusOr<std::vector<WatchEvent>>& events) const {
    EXPECT_THAT(events.status(), IsOk());
    std::vector<std::string> names;
    for (const WatchEvent& event : *events) {
      std::string text = event.ToString();
      for (const auto& [ifindex, name] : {std::pair(hr0_, "hr0"), std::pair(eth0_, "eth0")}) {
        const std::string number = "interface number " + std::to_string(ifindex);
        if (const size_t at = text.find(number); at != std::string::npos) text.replace(at, number.size(), name);
      }
      names.push_back(text);
    }
    return names;
  }

  int hr0_ = 0;
  int eth0_ = 0;
  WatchSpec spec_;
  std::optional<Watcher> watcher_;
};

TEST_F(WatchTest, RemovedRouteIsReportedOnceAndAgainAfterItWasRestored) {
  InHost([&] {
    for (int round = 0; round < 2; ++round) {
      ASSERT_EQ(Shell("ip route del 10.99.0.53"), 0);
      EXPECT_THAT(Events(), ElementsAre("route gone, hr0, VIP 10.99.0.53"));
      EXPECT_THAT(Events(), IsEmpty());
      ASSERT_THAT(AddVipRoute(spec_.routes[0]), IsOk());
      EXPECT_THAT(Events(), IsEmpty());
    }
    ASSERT_EQ(Shell("ip -6 route del fd99::53"), 0);
    EXPECT_THAT(Events(), ElementsAre("route gone, hr0, VIP fd99::53"));
  });
}

TEST_F(WatchTest, RouteSilentlyLostWithTheUplinksAddressIsReported) {
  InHost([&] {
    ASSERT_EQ(Shell("ip addr del 10.77.0.1/24 dev eth0"), 0);
    EXPECT_THAT(Events(), ElementsAre("address gone, eth0, 10.77.0.1", "route gone, hr0, VIP 10.99.0.53"));
    ASSERT_EQ(Shell("ip addr add 10.77.0.1/24 dev eth0"), 0);
    EXPECT_THAT(Events(), ElementsAre("address back, eth0, 10.77.0.1"));
    EXPECT_THAT(AddVipRoute(spec_.routes[0]), IsOk());
    EXPECT_THAT(Events(), IsEmpty());
  });
}

TEST_F(WatchTest, UplinksAddressIsWatchedAlsoWhereTheRouteSurvivesItsLoss) {
  InHost([&] {
    ASSERT_THAT(AddSourceAddress(hr0_, Ip("10.77.0.1")), IsOk());
    EXPECT_THAT(Events(), IsEmpty());
    ASSERT_EQ(Shell("ip addr del 10.77.0.1/24 dev eth0"), 0);
    EXPECT_THAT(Events(), ElementsAre("address gone, eth0, 10.77.0.1"));
    EXPECT_EQ(ListVipRoutes()->size(), 2u);
  });
}

TEST_F(WatchTest, DownAndUpOfOurLinkIsSeenEvenWhenItIsOver) {
  InHost([&] {
    ASSERT_EQ(Shell("ip link set hr0 down; ip link set hr0 up"), 0);
    // Both routes went down with the link, without a message for IPv4.
    EXPECT_THAT(Events(), ElementsAre("interface down, hr0", "interface up, hr0",
                                      "route gone, hr0, VIP 10.99.0.53", "route gone, hr0, VIP fd99::53"));
  });
}

TEST_F(WatchTest, MtuAndQdiscChangesAreSeen) {
  InHost([&] {
    ASSERT_EQ(Shell("ip link set eth0 mtu 1400"), 0);
    EXPECT_THAT(Events(), ElementsAre("MTU changed, eth0, now 1400 bytes"));
    ASSERT_THAT(InstallClockQdisc(hr0_, {}), IsOk());
    Events();  // Replacing the default qdisc counts as a removal.
    ASSERT_EQ(Shell("tc qdisc del dev hr0 root"), 0);
    EXPECT_THAT(Events(), ElementsAre("qdisc or filter removed, hr0"));
  });
}

TEST_F(WatchTest, AnotherHardwareAddressAndArpAreSeen) {
  InHost([&] {
    ASSERT_EQ(Shell("ip link set hr0 address 02:00:00:00:00:77"), 0);
    EXPECT_THAT(Events(), ElementsAre("hardware address or ARP changed, hr0"));
    ASSERT_EQ(Shell("ip link set hr0 arp off"), 0);
    Events();
    ASSERT_EQ(Shell("ip link set hr0 arp on"), 0);
    EXPECT_THAT(Events(), ElementsAre("hardware address or ARP changed, hr0"));
  });
}

TEST_F(WatchTest, VanishedInterfacesAreSeen) {
  InHost([&] {
    ASSERT_EQ(Shell("ip link del hr0"), 0);
    // A veth goes down before it goes away.
    EXPECT_THAT(Events(), ElementsAre("interface down, hr0", "interface gone, hr0",
                                      "route gone, hr0, VIP 10.99.0.53", "route gone, hr0, VIP fd99::53"));
    ASSERT_EQ(Shell("ip link del eth0"), 0);
    EXPECT_THAT(Events(), UnorderedElementsAre("interface down, eth0", "interface gone, eth0",
                                               "address gone, eth0, 10.77.0.1", "address gone, eth0, fd77::1"));
    EXPECT_THAT(Events(), IsEmpty());
  });
}

TEST_F(WatchTest, OthersBusinessIsNotOurs) {
  InHost([&] {
    ASSERT_EQ(
        Shell("ip link add br9 type bridge; ip link set br9 up; ip addr add 192.168.9.1/24 dev br9; "
              "ip route add 10.98.0.0/16 dev br9; ip link set eth0 master br9; ip link set eth0 nomaster; "
              "ip route del 10.98.0.0/16; ip link del br9"),
        0);
    EXPECT_THAT(Events(), IsEmpty());
  });
}

TEST_F(WatchTest, OverflowIsReportedAndTheLossBehindItFound) {
  InHost([&] {
    const int smallest = 1;
    ASSERT_EQ(setsockopt(watcher_->fd(), SOL_SOCKET, SO_RCVBUF, &smallest, sizeof(smallest)), 0);
    for (int i = 0; i < 40; ++i) {
      ASSERT_EQ(Shell("ip addr add 192.168.77.1/24 dev eth0; ip addr del 192.168.77.1/24 dev eth0"), 0);
    }
    ASSERT_EQ(Shell("ip route del 10.99.0.53; ip link set eth0 mtu 1300"), 0);
    EXPECT_THAT(Events(), ElementsAre("events lost", "MTU changed, eth0, now 1300 bytes",
                                      "route gone, hr0, VIP 10.99.0.53"));
    EXPECT_THAT(Events(), IsEmpty());
  });
}

TEST_F(WatchTest, CheckAllFindsWhatIsMissingAndStartTellsOfIt) {
  InHost([&] {
    ASSERT_EQ(Shell("ip route del 10.99.0.53; ip link set hr0 mtu 1400"), 0);
    EXPECT_THAT(Names(watcher_->CheckAll()),
                ElementsAre("MTU changed, hr0, now 1400 bytes", "route gone, hr0, VIP 10.99.0.53"));
    EXPECT_THAT(Events(), IsEmpty()) << "told already";
    auto late = Watcher::Start(spec_);
    ASSERT_THAT(late.status(), IsOk());
    EXPECT_THAT(Names(late->Drain()), ElementsAre("route gone, hr0, VIP 10.99.0.53"));
    WatchSpec nowhere = spec_;
    nowhere.ifindexes.push_back(4711);
    EXPECT_TRUE(absl::IsNotFound(Watcher::Start(nowhere).status()));
  });
}

}  // namespace
}  // namespace hedgerow::net
