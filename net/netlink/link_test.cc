// SPDX-License-Identifier: Apache-2.0
//
// Links: what we make is as promised, recognisable, and a foreign interface is never touched.
#include "net/netlink/link.h"

#include <net/if.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <vector>

#include "net/namespace_test.h"
#include "net/netlink/netlink.h"
#include "net/netlink/route.h"
#include "net/unique_fd.h"

namespace hedgerow::net {
namespace {

constexpr char kInstance[] = "default";

VethOptions ProxyPair() { return {.name = "hr0", .peer_name = "hr0p", .instance = kInstance, .mtu_bytes = 1400}; }

class LinkTest : public NamespaceTest {};

TEST_F(LinkTest, VethPairIsUpTaggedAndSilent) {
  InNamespace([] {
    const auto pair = CreateVethPair(ProxyPair());
    ASSERT_THAT(pair.status(), IsOk());
    for (const LinkInfo& end : {pair->link, pair->peer}) {
      EXPECT_TRUE(end.up()) << end.name;
      EXPECT_TRUE(end.flags & IFF_NOARP) << end.name;
      EXPECT_TRUE(end.ethernet());
      EXPECT_EQ(end.kind, "veth");
      EXPECT_EQ(end.mtu_bytes, 1400u);
      EXPECT_EQ(end.alias, "hedgerow:default");
      EXPECT_EQ(end.group, OwnerGroup(kInstance));
      EXPECT_EQ(OwnerOf(end), kInstance);
      EXPECT_NE(end.mac, MacAddress{});
      const auto addresses = ListAddresses(end.ifindex);
      ASSERT_THAT(addresses.status(), IsOk());
      EXPECT_TRUE(addresses->empty()) << end.name << " has " << addresses->front().address.ToString();
    }
    EXPECT_EQ(pair->link.peer_ifindex, pair->peer.ifindex);
    EXPECT_EQ(pair->peer.peer_ifindex, pair->link.ifindex);
  });
}

TEST_F(LinkTest, WhatWasChangedIsMadeAgainWhatItWas) {
  InNamespace([] {
    const auto pair = CreateVethPair(ProxyPair());
    ASSERT_THAT(pair.status(), IsOk());
    const auto changed = [&] { return KeepAsMade(pair->link).value(); };
    EXPECT_FALSE(changed());
    for (const char* change : {"down", "arp on", "address 02:00:00:00:00:77"}) {
      SCOPED_TRACE(change);
      ASSERT_EQ(Shell(std::string("ip link set hr0 ") + change), 0);
      EXPECT_TRUE(changed());
      EXPECT_FALSE(changed());
      const auto now = FindLink("hr0");
      ASSERT_THAT(now.status(), IsOk());
      EXPECT_EQ(now->mac, pair->link.mac);
      EXPECT_TRUE(now->up());
      EXPECT_FALSE(now->resolves());
    }
  });
}

TEST_F(LinkTest, TheirAddressesAreSetAndNotDrawnByTheKernel) {
  InNamespace([] {
    const auto pair = CreateVethPair(ProxyPair());
    ASSERT_THAT(pair.status(), IsOk());
    EXPECT_NE(pair->link.mac, pair->peer.mac);
    ASSERT_EQ(Shell("mount -t sysfs sysfs /sys"), 0);  // shows the namespace it is mounted in
    for (const LinkInfo& end : {pair->link, pair->peer}) {
      EXPECT_EQ(end.mac[0] & 3, 2) << "locally administered, unicast";
      // NET_ADDR_SET (linux/netdevice.h): systemd-udevd leaves such alone, and gives others its own.
      EXPECT_EQ(Shell("grep -qx 3 /sys/class/net/" + end.name + "/addr_assign_type"), 0);
    }
  });
}

TEST_F(LinkTest, WhatWasMadeCanBeTakenBackWhenNoDescriptorIsLeft) {
  InNamespace([] {
    ASSERT_THAT(CreateVethPair(ProxyPair()).status(), IsOk());
    std::vector<UniqueFd> others;
    while (others.empty() || others.back().valid()) others.emplace_back(eventfd(0, EFD_CLOEXEC));
    ASSERT_EQ(errno, EMFILE);
    const absl::Status deleted = DeleteOwnedLink("hr0", kInstance);
    others.clear();
    EXPECT_THAT(deleted, IsOk());
    EXPECT_TRUE(absl::IsNotFound(FindLink("hr0").status()));
  });
}

TEST_F(LinkTest, FindsByNameAndNumberAndSaysWhenThereIsNone) {
  InNamespace([] {
    const auto lo = FindLink("lo");
    ASSERT_THAT(lo.status(), IsOk());
    EXPECT_TRUE(lo->flags & IFF_LOOPBACK);
    EXPECT_FALSE(lo->ethernet());
    const auto again = FindLink(lo->ifindex);
    ASSERT_THAT(again.status(), IsOk());
    EXPECT_EQ(again->name, "lo");
    EXPECT_TRUE(absl::IsNotFound(FindLink("nosuch0").status())) << FindLink("nosuch0").status();
    EXPECT_TRUE(absl::IsNotFound(FindLink(4711).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(FindLink("much-too-long-a-name").status()));
    EXPECT_TRUE(absl::IsInvalidArgument(FindLink("a/b").status()));
    EXPECT_TRUE(absl::IsInvalidArgument(FindLink("").status()));
    EXPECT_TRUE(absl::IsInvalidArgument(FindLink(0).status()));
  });
}

TEST_F(LinkTest, TakenNamesAreRefusedAndTheOwnerIsNamed) {
  InNamespace([] {
    ASSERT_EQ(Shell("ip link add hr0p type bridge"), 0);
    EXPECT_THAT(CreateVethPair(ProxyPair()).status(),
                FailsWith(absl::StatusCode::kAlreadyExists, "hr0p exists and is not ours (bridge)"));
    EXPECT_TRUE(absl::IsNotFound(FindLink("hr0").status())) << "half a pair was left behind";
    ASSERT_EQ(Shell("ip link del hr0p"), 0);
    ASSERT_THAT(CreateVethPair(ProxyPair()).status(), IsOk());
    EXPECT_THAT(CreateVethPair(ProxyPair()).status(),
                FailsWith(absl::StatusCode::kAlreadyExists, "belongs to hedgerow instance 'default'"));
  });
}

TEST_F(LinkTest, AKernelWithoutTheModuleIsNamed) {
  InNamespace([] {
    netlink::Request request(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, ifinfomsg{});
    request.PutString(IFLA_IFNAME, "x0");
    const size_t info = request.Begin(IFLA_LINKINFO);
    request.PutString(IFLA_INFO_KIND, "hr-none");
    request.End(info);
    const absl::Status made = netlink::Do(request, "make a link");
    EXPECT_THAT(std::string(made.message()), testing::HasSubstr("lacks the module: restart the host"));
  });
}

TEST_F(LinkTest, DeletesOnlyWhatTheInstanceOwns) {
  InNamespace([] {
    ASSERT_EQ(Shell("ip link add hr0 type bridge"), 0);
    EXPECT_THAT(DeleteOwnedLink("hr0", kInstance), FailsWith(absl::StatusCode::kFailedPrecondition, "not ours"));
    EXPECT_THAT(FindLink("hr0").status(), IsOk());
    ASSERT_EQ(Shell("ip link del hr0"), 0);

    ASSERT_THAT(CreateVethPair(ProxyPair()).status(), IsOk());
    EXPECT_THAT(DeleteOwnedLink("hr0", "other"), FailsWith(absl::StatusCode::kFailedPrecondition, "'default'"));
    EXPECT_THAT(DeleteOwnedLink("hr0", kInstance), IsOk());
    EXPECT_TRUE(absl::IsNotFound(FindLink("hr0p").status()));
    EXPECT_THAT(DeleteOwnedLink("hr0", kInstance), IsOk()) << "removing twice is fine";
  });
}

TEST_F(LinkTest, PairWithoutAliasIsStillRecognised) {
  // What a daemon killed between making and tagging the pair leaves behind.
  InNamespace([] {
    ASSERT_EQ(Shell("ip link add hr0 type veth peer name hr0p"), 0);
    ASSERT_EQ(Shell(("ip link set hr0 group " + std::to_string(OwnerGroup(kInstance))).c_str()), 0);
    EXPECT_THAT(DeleteOwnedLink("hr0", "other"), FailsWith(absl::StatusCode::kFailedPrecondition, "not ours"));
    EXPECT_THAT(DeleteOwnedLink("hr0", kInstance), IsOk());
    EXPECT_TRUE(absl::IsNotFound(FindLink("hr0").status()));
  });
}

TEST_F(LinkTest, LinkLocalAddressAppearsOnAPairThatIsNotOurs) {
  // The counter-proof of VethPairIsUpTaggedAndSilent: this kernel would generate one.
  InNamespace([] {
    ASSERT_EQ(Shell("ip link add hr0 type veth peer name hr0p && ip link set hr0 up && ip link set hr0p up"), 0);
    EXPECT_TRUE(WaitFor("ip -6 address show dev hr0 | grep -q fe80"));
  });
}

TEST_F(LinkTest, MtuAndStateChange) {
  InNamespace([] {
    ASSERT_THAT(CreateVethPair(ProxyPair()).status(), IsOk());
    EXPECT_THAT(SetLinkMtu("hr0", 1280), IsOk());
    EXPECT_EQ(FindLink("hr0")->mtu_bytes, 1280u);
    EXPECT_THAT(SetLinkMtu("hr0", 10), FailsWith(absl::StatusCode::kInvalidArgument, "mtu less than device minimum"));
    EXPECT_THAT(SetLinkDown("hr0"), IsOk());
    EXPECT_FALSE(FindLink("hr0")->up());
    EXPECT_THAT(SetLinkUp("hr0"), IsOk());
    EXPECT_TRUE(FindLink("hr0")->up());
    EXPECT_TRUE(absl::IsNotFound(SetLinkUp("nosuch0")));
  });
}

TEST_F(LinkTest, TxChecksumOffloadSwitches) {
  InNamespace([] {
    ASSERT_THAT(CreateVethPair(ProxyPair()).status(), IsOk());
    const auto is = [](const std::string& name, const std::string& state) {
      return Shell("ethtool -k " + name + " | grep -q '^tx-checksumming: " + state + "'") == 0;
    };
    EXPECT_TRUE(is("hr0", "on"));
    EXPECT_THAT(SetTxChecksumOffload("hr0", false), IsOk());
    EXPECT_TRUE(is("hr0", "off"));
    EXPECT_TRUE(is("hr0p", "on")) << "only the named end changes";
    EXPECT_THAT(SetTxChecksumOffload("hr0", true), IsOk());
    EXPECT_TRUE(is("hr0", "on"));
    EXPECT_TRUE(absl::IsNotFound(SetTxChecksumOffload("nosuch0", false)));
  });
}

TEST_F(LinkTest, ManyPairsComeAndGo) {
  InNamespace([] {
    for (int round = 0; round < 20; ++round) {
      ASSERT_THAT(CreateVethPair(ProxyPair()).status(), IsOk()) << round;
      ASSERT_THAT(DeleteOwnedLink("hr0p", kInstance), IsOk()) << round;
    }
    EXPECT_EQ(ListLinks()->size(), 1u) << "only lo is left";
  });
}

TEST(NetworkSetting, IsReadOrIsNotThere) {
  EXPECT_TRUE(NetworkSetting("ipv4/ip_forward").has_value());
  EXPECT_FALSE(NetworkSetting("ipv4/no_such_setting").has_value());
}

}  // namespace
}  // namespace hedgerow::net
