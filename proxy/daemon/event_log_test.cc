// SPDX-License-Identifier: Apache-2.0
//
// What an operator reads in the log of a proxy whose leader stalls.

#include "proxy/daemon/event_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proxy/admin/fake_data_plane.h"

namespace hedgerow {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class EventLogTest : public testing::Test {
 protected:
  EventLogTest() { EXPECT_THAT(Next(), IsEmpty()) << "what happened before is not known"; }
  ServiceSnapshot& dns() { return now_.services[0]; }
  std::vector<std::string> Next(uint64_t seconds = 1) {
    now_.taken_ns += seconds * 1'000'000'000;
    std::vector<std::string> texts;
    for (const EventLog::Line& line : log_.Lines(now_, facts_, 1'000))
      texts.push_back(absl::StrCat(line.warning ? "! " : "", line.text));
    return texts;
  }

  EventLog log_;
  DaemonFacts facts_;
  Snapshot now_ = FakeDataPlane().snapshot;
};

TEST_F(EventLogTest, SaysSuspicionAndFailoverAndTheirEnd) {
  dns().backends[0].health = HR_SUSPECT;
  EXPECT_THAT(Next(), ElementsAre("! dns: a is suspect: requests go to it and to a standby"));
  dns().backends[0].health = HR_DOWN;
  EXPECT_THAT(Next(), ElementsAre("! dns: a is down: requests go to a standby"));
  EXPECT_THAT(Next(), IsEmpty());
  dns().backends[0].health = HR_HEALTHY;
  EXPECT_THAT(Next(), ElementsAre("dns: a answers again"));
}

TEST_F(EventLogTest, SaysWhatAnAdministratorDid) {
  dns().bypass = true;
  dns().backends[1].drained = true;
  dns().leader.pinned = 1;
  EXPECT_THAT(Next(), ElementsAre("dns: a is pinned by an administrator", "dns: bypass switched on: no hedging",
                                  "dns: b is drained: it gets nothing new"));
  dns().leader.pinned = 0;
  EXPECT_THAT(Next(), ElementsAre("dns: a is no longer pinned"));
}

TEST_F(EventLogTest, ShortSuspicionsAreToldNowAndThen) {
  dns().stats.counters[HR_SUSPECTED] += 2;
  EXPECT_THAT(Next(), ElementsAre("dns: backends were suspect for less than a second, 2 times"));
  dns().stats.counters[HR_SUSPECTED] += 3;
  EXPECT_THAT(Next(), IsEmpty());
  dns().stats.counters[HR_SUSPECTED] += 1;
  EXPECT_THAT(Next(10), ElementsAre("dns: backends were suspect for less than a second, 4 times"));
}

}  // namespace
}  // namespace hedgerow
