// SPDX-License-Identifier: Apache-2.0
//
// Clean after a crash: a child process builds an instance and is killed without warning at every step of the
// way; clean must find all of it, touch nothing else, and find nothing the second time.
#include "net/clean.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "net/bpf_program_test.h"
#include "net/bpffs.h"
#include "net/tc/clock_qdisc.h"
#include "net/netlink/in_place.h"
#include "net/netlink/link.h"
#include "net/namespace_test.h"
#include "net/netlink/route.h"
#include "net/netlink/uplink_route.h"
#include "net/tc/tc_attach.h"

namespace hedgerow::net {
namespace {

constexpr char kInstance[] = "clean-test";
constexpr char kBpffs[] = "/tmp/hedgerow-clean-test";
constexpr int kSteps = 12;

IpAddress Ip(absl::string_view text) { return IpAddress::Parse(text).value(); }

// What the daemon does at up. Stops after `steps` of its steps; false when one of them failed.
bool BuildInstance(int steps, Mechanism mechanism, const CountingProgram& program) {
  const std::string pins = PinDir(kBpffs, kInstance);
  const auto attach = [&](const char* name, Direction direction, const char* role) {
    auto attachment = Attachment::Attach({.ifindex = FindLink(name)->ifindex,
                                          .direction = direction,
                                          .mechanism = mechanism,
                                          .instance = kInstance,
                                          .role = role,
                                          .pin_dir = pins},
                                         program.fd());
    return attachment.ok() && attachment->Release().ok();
  };
  const std::function<bool()> all[kSteps] = {
      [&] { return EnsureBpffs(kBpffs).ok(); },
      [&] { return MakePinDir(kBpffs, kInstance).ok(); },
      [&] { return bpf_obj_pin(program.fd(), (pins + "/program").c_str()) == 0; },
      [&] { return CreateVethPair({.name = "hr0", .peer_name = "hr0p", .instance = kInstance}).ok(); },
      [&] {
        return CreateVethPair({.name = "hr0c0", .peer_name = "hr0c1", .instance = kInstance}).ok() &&
               InstallClockQdisc(FindLink("hr0c0")->ifindex, {}).ok();
      },
      [&] { return attach("hr0", Direction::kEgress, "splitter"); },
      [&] { return attach("eth0", Direction::kIngress, "reply"); },
      [&] { return AddSourceAddress(FindLink("hr0")->ifindex, Ip("10.77.0.1")).ok(); },
      [&] {
        return AddVipRoute({.vip = Ip("10.99.0.53"), .ifindex = FindLink("hr0")->ifindex, .source = Ip("10.77.0.1")})
                   .ok() &&
               AddVipRoute({.vip = Ip("fd99::53"), .ifindex = FindLink("hr0")->ifindex, .source = Ip("fd77::1")}).ok();
      },
      [&] {
        return AddVipRule({Ip("10.99.0.53"), 100}).ok() && AddVipRule({Ip("fd99::53"), 100}).ok();
      },
      [&] {
        const auto eth0 = FindLink("eth0");
        return AddUplinkRoute({.vip = Ip("10.99.0.53"), .ifindex = eth0->ifindex, .source = Ip("10.77.0.1")}, eth0->mac)
                   .ok() &&
               AddUplinkRoute({.vip = Ip("fd99::53"), .ifindex = eth0->ifindex, .source = Ip("fd77::1")}, eth0->mac)
                   .ok();
      },
      [&] {
        const Endpoint vip = {Ip("10.99.0.53"), 53};
        return PutInPlaceRules({.instance = kInstance,
                                .interface = "hr0",
                                .known = {vip},
                                .live = {vip},
                                .bridged = {{{Ip("10.77.0.9"), 53}, {2, 0, 0, 0, 0, 1}}}})
            .ok();
      },
  };
  for (int step = 0; step < steps; ++step) {
    if (!all[step]()) return false;
  }
  return true;
}

class CleanTest : public NamespaceTest, public ::testing::WithParamInterface<Mechanism> {
 protected:
  // A host with an uplink and things of others, which must all survive: a filter on the uplink's egress comes
  // later.
  void InHost(const std::function<void()>& body) {
    InNamespace([&] {
      if (GetParam() == Mechanism::kTcx && !*TcxSupported())
        GTEST_SKIP() << "this kernel has no TCX (it came with 6.6)";
      for (const char* command :
           {"mkdir -p /tmp/hedgerow-clean-test", "ip link add eth0 type veth peer name eth0p",
            "ip link set eth0 addrgenmode none", "ip link set eth0p addrgenmode none", "ip link set eth0 up",
            "ip link set eth0p up", "ip addr add 10.77.0.1/24 dev eth0", "ip addr add fd77::1/64 dev eth0 nodad",
            "ip link add foreign0 type bridge", "ip link set foreign0 alias hedgerow:another",
            "ip route add 10.98.0.1/32 dev eth0 proto 72"}) {
        ASSERT_EQ(Shell(command), 0) << command;
      }
      // The kernel's workers add IPv6 routes some time after the address: compare from then on.
      ASSERT_TRUE(WaitFor("ip -6 route show table local | grep -q 'local fd77::1'"));
      before_ = Snapshot();
      body();
      ASSERT_EQ(Shell("rmdir /tmp/hedgerow-clean-test"), 0) << "the bpffs is still mounted, or something is in it";
    });
  }
  // Everything the system's own tools show of links, addresses, routes, qdiscs, filters and TCX.
  static std::string Snapshot() {
    std::string text;
    FILE* pipe = popen(
        "ip -d link show | sed 's/ qlen.*//'; ip addr show | grep -v lft; ip route show table all; ip -6 route "
        "show table all; ip rule; ip -6 rule; ip neigh show nud permanent; "
        "nft list tables; tc qdisc show; tc filter show dev eth0 ingress; tc filter show dev eth0 egress; bpftool net show",
        "r");
    char buffer[4096];
    while (pipe != nullptr && fgets(buffer, sizeof(buffer), pipe) != nullptr) text += buffer;
    if (pipe != nullptr) pclose(pipe);
    EXPECT_GT(text.size(), 500u);
    return text;
  }
  // What the workers do when things go may take a moment, too.
  std::string SettledSnapshot() const {
    std::string now = Snapshot();
    for (int attempt = 0; attempt < 50 && now != before_; ++attempt) {
      usleep(20'000);
      now = Snapshot();
    }
    return now;
  }
  // Runs BuildInstance in a child that kills itself right behind the last step.
  static void BuildAndDie(int steps) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const CountingProgram program("counts");
      if (!BuildInstance(steps, GetParam(), program)) _exit(1);
      kill(getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "a step failed";
  }

  std::string before_;
};

INSTANTIATE_TEST_SUITE_P(Mechanisms, CleanTest, ::testing::Values(Mechanism::kTcx, Mechanism::kClsact),
                         [](const auto& info) { return info.param == Mechanism::kTcx ? "tcx" : "clsact"; });

TEST_P(CleanTest, KilledBehindAnyStepLeavesTheHostAsItWas) {
  InHost([&] {
    for (int steps = 0; steps <= kSteps; ++steps) {
      ASSERT_NO_FATAL_FAILURE(BuildAndDie(steps));
      const CleanReport report = Clean(kInstance, kBpffs);
      EXPECT_THAT(report.failures, ::testing::IsEmpty()) << "after step " << steps;
      EXPECT_EQ(report.removed.empty(), steps == 0) << "after step " << steps;
      EXPECT_EQ(SettledSnapshot(), before_) << "after step " << steps;
      const CleanReport again = Clean(kInstance, kBpffs);
      EXPECT_THAT(again.removed, ::testing::IsEmpty()) << "after step " << steps;
      EXPECT_THAT(again.failures, ::testing::IsEmpty()) << "after step " << steps;
    }
  });
}

TEST_P(CleanTest, ReportNamesEverything) {
  InHost([&] {
    ASSERT_NO_FATAL_FAILURE(BuildAndDie(kSteps));
    EXPECT_THAT(*FindInstances(kBpffs), ::testing::ElementsAre("another", kInstance));
    const CleanReport report = Clean(kInstance, kBpffs);
    const std::string via = GetParam() == Mechanism::kTcx ? "tcx" : "clsact";
    using ::testing::Contains;
    using ::testing::HasSubstr;
    EXPECT_THAT(report.removed, Contains(HasSubstr(via + " ingress of eth0")));
    EXPECT_THAT(report.removed, Contains(HasSubstr(via + " egress of hr0")));
    EXPECT_THAT(report.removed, Contains("route 10.99.0.53 dev hr0"));
    EXPECT_THAT(report.removed, Contains("route fd99::53 dev hr0"));
    EXPECT_THAT(report.removed, Contains(HasSubstr("interface hr0")));
    EXPECT_THAT(report.removed, Contains("nftables hedgerow-clean-test"));
    EXPECT_THAT(report.removed, Contains(HasSubstr("interface hr0c")));
    EXPECT_THAT(report.removed, Contains("pins /tmp/hedgerow-clean-test/hedgerow/clean-test"));
    EXPECT_THAT(report.removed, Contains("bpffs /tmp/hedgerow-clean-test"));
    EXPECT_THAT(*FindInstances(kBpffs), ::testing::ElementsAre("another"));
  });
}

TEST_P(CleanTest, ForeignFilterBesideOursSurvives) {
  InHost([&] {
    ASSERT_NO_FATAL_FAILURE(BuildAndDie(kSteps));
    Shell("tc qdisc add dev eth0 clsact 2>/dev/null");  // With clsact it is there already: ours.
    ASSERT_EQ(Shell("tc filter add dev eth0 ingress prio 100 bpf bytecode '1,6 0 0 0'"), 0);
    const CleanReport report = Clean(kInstance, kBpffs);
    EXPECT_THAT(report.failures, ::testing::IsEmpty());
    EXPECT_EQ(Shell("tc filter show dev eth0 ingress | grep -q 'pref 100 bpf'"), 0);
    EXPECT_NE(Shell("tc filter show dev eth0 ingress | grep -q hedgerow"), 0);
    EXPECT_THAT(Clean(kInstance, kBpffs).removed, ::testing::IsEmpty());
  });
}

// The interface takes its routes along, and not what led packets past other rules and by other interfaces to it.
TEST_P(CleanTest, RulesAndUplinkRoutesOfAnInterfaceThatIsGoneAreFound) {
  InHost([&] {
    ASSERT_NO_FATAL_FAILURE(BuildAndDie(kSteps));
    ASSERT_EQ(Shell("ip link del hr0"), 0);
    const CleanReport report = Clean(kInstance, kBpffs);
    EXPECT_THAT(report.failures, ::testing::IsEmpty());
    EXPECT_THAT(report.removed, ::testing::IsSupersetOf({"routing rule 100 to 10.99.0.53", "route fd99::53 dev eth0"}));
    EXPECT_EQ(SettledSnapshot(), before_);
  });
}

TEST_P(CleanTest, InterfaceRemovedByHandIsNoObstacle) {
  InHost([&] {
    ASSERT_NO_FATAL_FAILURE(BuildAndDie(kSteps));
    ASSERT_EQ(Shell("ip link del hr0; ip link del hr0c0"), 0);
    const CleanReport report = Clean(kInstance, kBpffs);
    EXPECT_THAT(report.failures, ::testing::IsEmpty());
    EXPECT_EQ(SettledSnapshot(), before_);
  });
}

TEST_P(CleanTest, AnotherInstanceIsNotTouched) {
  InHost([&] {
    ASSERT_NO_FATAL_FAILURE(BuildAndDie(kSteps));
    const std::string built = Snapshot();
    const CleanReport report = Clean("nobody", kBpffs);
    EXPECT_THAT(report.removed, ::testing::IsEmpty());
    EXPECT_THAT(report.failures, ::testing::IsEmpty());
    EXPECT_EQ(Snapshot(), built);
    EXPECT_TRUE(std::filesystem::exists(PinDir(kBpffs, kInstance) + "/program"));
    EXPECT_THAT(Clean(kInstance, kBpffs).failures, ::testing::IsEmpty());
  });
}

}  // namespace
}  // namespace hedgerow::net
