// SPDX-License-Identifier: Apache-2.0
#include "proxy/daemon/copy_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kS = 1'000'000'000;

class CopyWatchTest : public testing::Test {
 protected:
  CopyWatchTest() {
    snapshot_.taken_ns = 1000 * kS;
    snapshot_.services.resize(1);
    snapshot_.services[0].name = "dns";
    stats().reasons[HR_REASON_HEDGE_FAILED] = 100;  // of an earlier daemon's time
    EXPECT_THAT(watch_.Look(snapshot_), IsEmpty());
  }
  hr_stats& stats() { return snapshot_.services[0].stats; }
  std::vector<Problem> After(uint64_t seconds, uint64_t failed, uint64_t sent = 0) {
    snapshot_.taken_ns += seconds * kS;
    stats().reasons[HR_REASON_HEDGE_FAILED] += failed;
    stats().counters[HR_EXTRA_SENDS] += sent;
    return watch_.Look(snapshot_);
  }

  Snapshot snapshot_;
  CopyWatch watch_;
};

TEST_F(CopyWatchTest, CopiesThatAllFailAreAProblemUntilOneLeaves) {
  EXPECT_THAT(After(1, 2), IsEmpty()) << "a link that flaps";
  const std::vector<Problem> problems = After(5, 1);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_THAT(problems[0].ToString(), HasSubstr("nothing_hedged: dns: none of the last 3 copies"));
  EXPECT_EQ(After(30, 0).size(), 1u) << "nothing has wanted a copy since";
  EXPECT_EQ(After(1, 7).size(), 1u);
  EXPECT_THAT(After(1, 0, 1), IsEmpty());
}

TEST_F(CopyWatchTest, WhereSomeLeaveItIsNone) {
  for (int second = 0; second < 20; ++second) EXPECT_THAT(After(1, 50, 1), IsEmpty());
}

TEST_F(CopyWatchTest, ItIsForgottenWhereNothingWantsCopies) {
  EXPECT_EQ(After(1, 3).size(), 1u);
  EXPECT_EQ(After(60, 0).size(), 1u);
  EXPECT_THAT(After(1, 0), IsEmpty());
}

}  // namespace
}  // namespace hedgerow
