// SPDX-License-Identifier: Apache-2.0
//
// Each thing that a person should know of becomes one event, and nothing else does.

#include "proxy/page/events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proxy/admin/fake_data_plane.h"

namespace hedgerow {
namespace {

using testing::HasSubstr;

class EventsTest : public testing::Test {
 protected:
  EventsTest() { after_.taken_ns = before_.taken_ns + 1'000'000'000; }
  std::vector<v1::PageEvent> Events() {
    return EventsBetween({before_, facts_before_, 100'000}, {after_, facts_after_, 101'000});
  }
  v1::PageEvent Only() {
    const auto events = Events();
    EXPECT_EQ(events.size(), 1u);
    return events.empty() ? v1::PageEvent() : events[0];
  }
  ServiceSnapshot& dns() { return after_.services[0]; }
  Snapshot before_ = FakeDataPlane().snapshot;
  Snapshot after_ = before_;
  DaemonFacts facts_before_, facts_after_;
};

TEST_F(EventsTest, NothingHappenedIsNoEvent) {
  dns().stats.counters[HR_REQUESTS] += 1000;
  dns().stats.counters[HR_HEDGES] += 10;
  EXPECT_TRUE(Events().empty());
}

TEST_F(EventsTest, AnAnnouncedLeaderIsMarkedWhenItWasWritten) {
  dns().leader.leader = 1;
  dns().leader.term = 8;
  dns().leader.announced_ns = dns().leader.updated_ns = after_.taken_ns - 400'000'000;
  dns().stats.counters[HR_LEADER_CHANGES] = 1;
  const v1::PageEvent event = Only();
  EXPECT_EQ(event.kind(), "leader");
  EXPECT_EQ(event.service(), "dns");
  EXPECT_EQ(event.from(), "a");
  EXPECT_EQ(event.to(), "b");
  EXPECT_EQ(event.term(), 8u);
  EXPECT_EQ(event.at_ms(), 100'600);
  EXPECT_EQ(event.text(), "b leads, after a: announced in term 8");
}

TEST_F(EventsTest, AnOldEntryIsNotDatedBeforeItsSecond) {
  dns().leader.leader = 1;
  dns().leader.updated_ns = 1;
  EXPECT_EQ(Only().at_ms(), 100'000);
}

TEST_F(EventsTest, ThereAndBackWithinASecondIsSeen) {
  dns().stats.counters[HR_LEADER_CHANGES] = 2;
  dns().leader.term = 9;
  const v1::PageEvent event = Only();
  EXPECT_EQ(event.kind(), "leader");
  EXPECT_THAT(event.text(), HasSubstr("a leads again after 2 changes"));
}

TEST_F(EventsTest, ANewTermOfTheSameLeaderIsALesserMark) {
  dns().leader.term = 9;
  dns().leader.announced_ns = 1;
  EXPECT_EQ(Only().kind(), "term");
}

TEST_F(EventsTest, APinSaysWhoseChoiceItIs) {
  dns().leader.leader = 1;
  dns().leader.pinned = 1;
  EXPECT_EQ(Only().text(), "b leads, after a: pinned by an administrator");
  std::swap(before_, after_);
  after_.taken_ns = before_.taken_ns + 1;
  EXPECT_EQ(Only().text(), "a leads, after b: no longer pinned");
}

TEST_F(EventsTest, ASilentBackendIsNamed) {
  dns().backends[0].health = HR_SUSPECT;
  dns().stats.counters[HR_SUSPECTED] += 1;
  v1::PageEvent event = Only();
  EXPECT_EQ(event.kind(), "health");
  EXPECT_EQ(event.backend(), "a");
  EXPECT_EQ(event.to(), "suspect");
  std::swap(before_, after_);
  event = Only();
  EXPECT_EQ(event.to(), "healthy");
  EXPECT_EQ(event.text(), "a answers again");
}

TEST_F(EventsTest, InADryRunNoOtherBackendIsAskedForASilentOne) {
  before_.services[0].dry_run = dns().dry_run = true;
  dns().backends[0].health = HR_SUSPECT;
  EXPECT_EQ(Only().text(), "a is silent: dry run, no other backend is asked");
}

TEST_F(EventsTest, ASilenceShorterThanASecondIsSeen) {
  dns().stats.counters[HR_SUSPECTED] += 3;
  EXPECT_EQ(Only().text(), "a backend was suspect for a moment, 3 times");
}

TEST_F(EventsTest, ProblemsComeAndGo) {
  facts_after_.problems = {{ProblemCode::kUplinkDown, "uplink <b>eth1</b> is gone"}};
  v1::PageEvent event = Only();
  EXPECT_EQ(event.kind(), "problem");
  EXPECT_EQ(event.text(), "uplink_down: uplink <b>eth1</b> is gone");
  std::swap(facts_before_, facts_after_);
  EXPECT_EQ(Only().kind(), "solved");
}

TEST_F(EventsTest, BypassAndRepairsAreTold) {
  dns().bypass = true;
  facts_after_.routes_restored = 2;
  const auto events = Events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind(), "bypass");
  EXPECT_EQ(events[1].text(), "put back what was removed from outside: 2 routes, 0 links");
}

TEST_F(EventsTest, DryRunsAndDrainedBackendsAreTold) {
  dns().dry_run = true;
  dns().backends[1].drained = true;
  auto events = Events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind(), "dry_run");
  EXPECT_EQ(events[0].text(), "dry run begins: nothing is sent twice");
  EXPECT_EQ(events[1].kind(), "drain");
  EXPECT_EQ(events[1].backend(), "b");
  EXPECT_EQ(events[1].text(), "b is drained: it gets nothing new");
  std::swap(before_, after_);
  events = Events();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].text(), "dry run ends");
  EXPECT_EQ(events[1].text(), "b serves again");
}

TEST_F(EventsTest, AServiceThatIsNewHasNoPast) {
  before_.services.erase(before_.services.begin());
  dns().leader.leader = 1;
  EXPECT_TRUE(Events().empty());
}

}  // namespace
}  // namespace hedgerow
