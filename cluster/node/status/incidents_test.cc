// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/status/incidents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace hedgerow::node {
namespace {

using raft::StandReason;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kStill_ns = 10 * kMs;

std::vector<std::string> Told(const Incidents& incidents, uint64_t now_ns) {
  NodeStatus status;
  incidents.AddTo(now_ns, status);
  std::vector<std::string> lines;
  for (const v1::Incident& incident : status.incidents)
    lines.push_back(absl::StrCat(incident.ago_ns() / kMs, " ms ago: ", incident.what()));
  return lines;
}

uint64_t Counter(const Incidents& incidents, const std::string& name, const std::string& reason = "") {
  NodeStatus status;
  incidents.AddTo(0, status);
  for (const NodeCounter& counter : status.counters)
    if (counter.name == name && counter.reason == reason) return counter.value;
  ADD_FAILURE() << name;
  return 0;
}

raft::Stand Stand(StandReason reason, uint64_t term, uint64_t leader = 0, uint64_t silent_ms = 0) {
  return {.reason = reason, .term = raft::Term(term), .leader = raft::NodeId(leader), .silent_ns = silent_ms * kMs};
}

TEST(Incidents, SayWhyANodeWantedToLead) {
  Incidents incidents(kStill_ns);
  incidents.Stands(Stand(StandReason::kSilentLeader, 5, 1, 33), 1000 * kMs);
  incidents.Stands(Stand(StandReason::kSilentMajority, 7, 3, 21), 2000 * kMs);
  incidents.Stands(Stand(StandReason::kResigned, 8, 2), 3000 * kMs);
  incidents.Stands(Stand(StandReason::kResigned, 9), 4000 * kMs);
  incidents.Stands(Stand(StandReason::kAsked, 10, 2), 5000 * kMs);
  EXPECT_THAT(Told(incidents, 6000 * kMs),
              ElementsAre("1000 ms ago: wanted to lead in term 10: node 2 hands over",
                          "2000 ms ago: wanted to lead in term 9: the leader resigned",
                          "3000 ms ago: wanted to lead in term 8: node 2 resigned",
                          "4000 ms ago: wanted to lead in term 7: this node led, and no majority was heard for 21.0ms",
                          "5000 ms ago: wanted to lead in term 5: node 1 led and was silent for 33.0ms"));
  EXPECT_EQ(Counter(incidents, "elections_begun", "resigned"), 2u);
  EXPECT_EQ(Counter(incidents, "elections_begun", "no_leader"), 0u);
}

TEST(Incidents, ANodeThatIsCutOffKeepsItsFirstIncident) {
  Incidents incidents(kStill_ns);
  incidents.Stands(Stand(StandReason::kSilentLeader, 5, 1, 33), 1000 * kMs);
  for (uint64_t i = 0; i < 100; ++i) incidents.Stands(Stand(StandReason::kNoLeader, 5), (1040 + 40 * i) * kMs);
  EXPECT_EQ(Told(incidents, 6000 * kMs).size(), 1u);
  EXPECT_EQ(Counter(incidents, "elections_begun", "no_leader"), 100u);
}

TEST(Incidents, OnlyTheLastAreKept) {
  Incidents incidents(kStill_ns);
  for (uint64_t i = 1; i <= 2 * Incidents::kKept; ++i) incidents.Stands(Stand(StandReason::kAsked, i, 1), i * kMs);
  EXPECT_EQ(Told(incidents, 100 * kMs).size(), Incidents::kKept);
  EXPECT_EQ(Told(incidents, 100 * kMs)[0], "84 ms ago: wanted to lead in term 16: node 1 hands over");
}

TEST(Incidents, ALoopThatSleepsAsLongAsItMeantToDoesNotStandStill) {
  Incidents incidents(kStill_ns);
  incidents.TurnBegins(1000 * kMs);
  incidents.Sleeps(1001 * kMs, 1500 * kMs);
  incidents.TurnBegins(1200 * kMs);  // something came
  incidents.Sleeps(1201 * kMs, 1500 * kMs);
  incidents.TurnBegins(1501 * kMs);
  EXPECT_THAT(Told(incidents, 2000 * kMs), IsEmpty());
  EXPECT_EQ(Counter(incidents, "loop_stood_still"), 0u);
}

TEST(Incidents, StandingStillIsALongTurnALateAwakeningAndBothTogether) {
  Incidents incidents(kStill_ns);
  incidents.TurnBegins(1000 * kMs);
  incidents.TurnBegins(1012 * kMs);  // it did not sleep
  incidents.Sleeps(1012 * kMs, 1020 * kMs);
  incidents.TurnBegins(1035 * kMs);  // late by 15
  incidents.Sleeps(1046 * kMs, 1050 * kMs);
  incidents.TurnBegins(1052 * kMs);              // worked for 11, late by 2
  incidents.Sleeps(1052 * kMs, 1052 * kMs - 1);  // what it waited for was due already
  incidents.TurnBegins(1061 * kMs);
  EXPECT_THAT(Told(incidents, 1100 * kMs),
              ElementsAre("48 ms ago: its loop stood still for 13.0ms", "65 ms ago: its loop stood still for 15.0ms",
                          "88 ms ago: its loop stood still for 12.0ms"));
  EXPECT_EQ(Counter(incidents, "loop_stood_still"), 3u);
}

}  // namespace
}  // namespace hedgerow::node
