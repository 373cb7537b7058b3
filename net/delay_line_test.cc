// SPDX-License-Identifier: Apache-2.0
//
// The delay line as an interface's queueing discipline: installed whole or not at all. How long it really holds
// packets is measured in proxy/daemon/delay_trial_test.cc.
#include "net/delay_line.h"

#include <string>

#include "net/clock_qdisc.h"
#include "net/link.h"
#include "net/namespace_test.h"

namespace hedgerow::net {

// For the names of tests.
void PrintTo(DelayLineKind kind, std::ostream* out) { *out << ToString(kind); }

namespace {

constexpr uint64_t kMillisecond = 1'000'000;

class DelayLineTest : public NamespaceTest, public testing::WithParamInterface<DelayLineKind> {
 protected:
  void OnLink(const std::function<void(int ifindex)>& body) {
    InNamespace([&] {
      const auto pair = CreateVethPair({.name = "hr0d0", .peer_name = "hr0d1", .instance = "line-test"});
      ASSERT_THAT(pair.status(), IsOk());
      body(pair->link.ifindex);
    });
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, DelayLineTest,
                         testing::Values(DelayLineKind::kNetem, DelayLineKind::kFq, DelayLineKind::kHtb),
                         [](const auto& info) { return std::string(ToString(info.param)); });

TEST_P(DelayLineTest, IsInstalledAndRemovedWholeOrTheKernelLacksIt) {
  OnLink([](int ifindex) {
    const DelayLineOptions options{.kind = GetParam(), .delay_ns = {10 * kMillisecond, 5 * kMillisecond}};
    const absl::Status installed = InstallDelayLine(ifindex, options);
    if (installed.ok()) {
      EXPECT_TRUE(HasDelayLine(ifindex, GetParam()).value());
      EXPECT_TRUE(absl::IsAlreadyExists(InstallDelayLine(ifindex, options)));
      EXPECT_TRUE(HasDelayLine(ifindex, GetParam()).value()) << "a second try must not remove the first's";
    } else {
      EXPECT_TRUE(absl::IsNotFound(installed)) << installed;
      EXPECT_NE(GetParam(), DelayLineKind::kHtb) << "every kernel has it";
    }
    EXPECT_THAT(RemoveDelayLine(ifindex), IsOk());
    EXPECT_THAT(RemoveDelayLine(ifindex), IsOk());
    EXPECT_EQ(Shell("tc qdisc show dev hr0d0 | grep -qE 'htb|netem|prio|fq'"), 256) << "a qdisc was left";
  });
}

TEST_P(DelayLineTest, TooManyDelaysAndImpossibleOnesAreRefusedAndLeaveNothing) {
  OnLink([](int ifindex) {
    std::vector<uint64_t> many;
    for (uint64_t i = 1; i <= kDelayLineClassesMax + 1; ++i) many.push_back(i * kMillisecond);
    std::vector<std::vector<uint64_t>> bad = {{}, {kDelayLineMin_ns - 1}};
    if (GetParam() == DelayLineKind::kFq) {
      bad.push_back({kDelayLineFqMax_ns + 1});
    } else {
      bad.push_back(many);
    }
    for (const auto& delay_ns : bad) {
      EXPECT_TRUE(
          absl::IsInvalidArgument(InstallDelayLine(ifindex, {.kind = GetParam(), .delay_ns = delay_ns})));
      EXPECT_FALSE(HasDelayLine(ifindex, GetParam()).value());
    }
  });
}

}  // namespace
}  // namespace hedgerow::net
