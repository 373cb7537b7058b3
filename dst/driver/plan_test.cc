// SPDX-License-Identifier: Apache-2.0
#include "dst/driver/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::dst {
namespace {

using testing::HasSubstr;

TEST(Plan, SaysWhatTheHostWrote) {
  const absl::StatusOr<Plan> plan = ParsePlan(
      "# seed 7\nseed 7\nload_us 8000000\nclients 2\nsessions 4\ninterval_us 3000\ntimeout_us 1500000\nbug "
      "no_fence\ndisks unsynced\n"
      "fault 1200000 300000 kill leader 3\nfault 2000000 50000 network-fault all 0 loss,20%\n");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->seed, 7u);
  EXPECT_EQ(plan->load_us, 8'000'000u);
  EXPECT_EQ(plan->sessions, 4u);
  EXPECT_EQ(plan->interval_us, 3000u);
  EXPECT_EQ(plan->bug, "no_fence");
  EXPECT_TRUE(plan->unsynced);
  ASSERT_EQ(plan->faults.size(), 2u);
  EXPECT_EQ(plan->faults[0].kind, FaultKind::kKill);
  EXPECT_EQ(plan->faults[0].target, Target::kLeader);
  EXPECT_EQ(plan->faults[0].draw, 3u);
  EXPECT_EQ(plan->faults[1].target, Target::kAll);
  EXPECT_EQ(plan->faults[1].argument, "loss,20%");
}

TEST(Plan, WhatMeansNothingIsNamed) {
  for (const char* line : {"seed seven", "fault 1 2 kill leader", "fault 1 2 kiss leader 0", "fault 1 2 kill king 0",
                           "colour green", "disks round", "fault 1 2 network-fault all 0 loss 20%"}) {
    const absl::StatusOr<Plan> plan = ParsePlan(std::string("load_us 1\n") + line + "\n");
    EXPECT_THAT(std::string(plan.status().message()), HasSubstr("line 2")) << line;
  }
  EXPECT_FALSE(ParsePlan("seed 1\n").ok());
}

}  // namespace
}  // namespace hedgerow::dst
