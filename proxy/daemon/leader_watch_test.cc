// SPDX-License-Identifier: Apache-2.0
#include "proxy/daemon/leader_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint64_t kS = 1'000'000'000;

class LeaderWatchTest : public testing::Test {
 protected:
  LeaderWatchTest() {
    snapshot_.taken_ns = 1000 * kS;
    snapshot_.services.resize(2);
    snapshot_.services[0].name = "kv";
    snapshot_.services[1].name = "dns";
    snapshot_.services[0].leader.announced_ns = snapshot_.taken_ns;
  }
  // A second later, in which so many older announcements came for kv.
  std::vector<std::string> Second(uint64_t stale) {
    snapshot_.taken_ns += kS;
    snapshot_.services[0].stats.reasons[HR_REASON_ANNOUNCE_STALE] += stale;
    return watch_.Look(snapshot_);
  }

  Snapshot snapshot_;
  LeaderWatch watch_;
};

TEST_F(LeaderWatchTest, AClusterThatOnlyAnnouncesOlderTermsWasSetUpAnew) {
  for (int second = 1; second <= 19; ++second) EXPECT_THAT(Second(500), IsEmpty()) << second;
  // Silent for 10 s, and 10 looks since.
  EXPECT_THAT(Second(500), ElementsAre("kv"));
  EXPECT_THAT(Second(500), IsEmpty()) << "and is not forgotten every second";
}

TEST_F(LeaderWatchTest, WhileTheLeaderIsAnnouncedOlderAnnouncementsMeanNothing) {
  for (int second = 1; second <= 100; ++second) {
    if (second % 9 == 0) snapshot_.services[0].leader.announced_ns = snapshot_.taken_ns;
    EXPECT_THAT(Second(500), IsEmpty()) << second;
  }
}

TEST_F(LeaderWatchTest, UntilItIsForgottenTheOldLeaderIsOutdated) {
  for (int second = 1; second <= 4; ++second) {
    Second(500);
    EXPECT_THAT(watch_.outdated(), IsEmpty()) << second;
  }
  for (int second = 5; second <= 20; ++second) {
    const std::vector<std::string> forgotten = Second(500);
    EXPECT_THAT(watch_.outdated(), ElementsAre("kv")) << second;
    EXPECT_EQ(!forgotten.empty(), second == 20);
  }
  Second(500);
  EXPECT_THAT(watch_.outdated(), ElementsAre("kv")) << "it could not be forgotten";
  snapshot_.services[0].leader.announced_ns = 0;
  Second(500);
  EXPECT_THAT(watch_.outdated(), IsEmpty()) << "it is forgotten";
}

TEST_F(LeaderWatchTest, ALeaderThatIsAnnouncedAgainIsNotOutdated) {
  for (int second = 1; second <= 6; ++second) Second(500);
  EXPECT_THAT(watch_.outdated(), ElementsAre("kv"));
  snapshot_.services[0].leader.announced_ns = snapshot_.taken_ns;
  Second(500);
  EXPECT_THAT(watch_.outdated(), IsEmpty());
}

TEST_F(LeaderWatchTest, ASilentClusterIsNotForgotten) {
  for (int second = 1; second <= 100; ++second) EXPECT_THAT(Second(0), IsEmpty()) << second;
}

TEST_F(LeaderWatchTest, NorIsItForAFewRecordedDatagrams) {
  for (int second = 1; second <= 100; ++second) EXPECT_THAT(Second(second % 9 == 0 ? 0 : 5), IsEmpty()) << second;
}

TEST_F(LeaderWatchTest, ALeaderThatNobodyHasAnnouncedIsTheConfiguredOne) {
  snapshot_.services[0].leader.announced_ns = 0;
  for (int second = 1; second <= 100; ++second) EXPECT_THAT(Second(500), IsEmpty()) << second;
}

}  // namespace
}  // namespace hedgerow
