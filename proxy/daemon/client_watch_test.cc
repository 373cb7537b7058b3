// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proxy/daemon/client_watch.h"

namespace hedgerow {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class ClientWatchTest : public testing::Test {
 protected:
  ClientWatchTest() {
    snapshot_.services.resize(2);
    snapshot_.services[0].name = "dns";
    snapshot_.services[0].backends.resize(2);
    snapshot_.services[1].name = "ntp";
    EXPECT_THAT(Second({}), IsEmpty());
  }
  struct Added {
    uint64_t dropped = 0, requests = 0, unanswered = 0;
  };
  // The problems after a second in which so much was added.
  std::vector<Problem> Second(Added added) {
    ServiceSnapshot& dns = snapshot_.services[0];
    dns.stats.reasons[HR_REASON_NOT_A_CLIENT] += added.dropped;
    dns.stats.counters[HR_REQUESTS] += added.requests;
    dns.stats.counters[HR_UNANSWERED] += added.unanswered;
    return watch_.Look(snapshot_);
  }

  Snapshot snapshot_;
  ClientWatch watch_;
};

TEST_F(ClientWatchTest, ForwardedClientsThatAreNotListedAreAProblemUntilAMinuteAfterTheirLastPacket) {
  EXPECT_THAT(Second({.dropped = 2}), IsEmpty()) << "by mistake";
  const std::vector<Problem> problems = Second({.dropped = 38});
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].code, ProblemCode::kClientsDropped);
  EXPECT_THAT(problems[0].text, HasSubstr("dns: packets"));
  for (size_t i = 1; i < ClientWatch::kSeconds; ++i) EXPECT_EQ(Second({}).size(), 1u) << i;
  EXPECT_THAT(Second({}), IsEmpty());
}

TEST_F(ClientWatchTest, ThatNearlyNothingIsAnsweredIsAProblemOfClientsWhereTheBackendsAreHealthy) {
  EXPECT_THAT(Second({.requests = 90, .unanswered = 90}), IsEmpty()) << "a few names that nothing serves";
  EXPECT_EQ(Second({.requests = 10, .unanswered = 10}).at(0).code, ProblemCode::kClientsUnanswered);
  snapshot_.services[0].backends[1].health = HR_DOWN;
  EXPECT_THAT(Second({}), IsEmpty()) << "the backend is the problem";
  snapshot_.services[0].backends[1].health = HR_HEALTHY;
  EXPECT_EQ(Second({}).size(), 1u);
  EXPECT_THAT(Second({.requests = 12}), IsEmpty()) << "one in nine is answered";
}

}  // namespace
}  // namespace hedgerow
