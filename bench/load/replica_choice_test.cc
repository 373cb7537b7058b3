// SPDX-License-Identifier: Apache-2.0
//
// The application client's choice of replicas, and its rules for copies at once.
#include "bench/load/replica_choice.h"

#include <gtest/gtest.h>

#include <set>

namespace hedgerow::bench {
namespace {

constexpr CopyRule kIdleRule{.at_once = CopyAtOnce::kIdle, .idle_below = 0.3, .workers = 10};

TEST(ReplicaChoice, RequestsGoWhereTheFewestAreInFlight) {
  ReplicaChoice choice(3, true, {});
  choice.OnSent(0);
  choice.OnSent(0);
  choice.OnSent(1);
  EXPECT_EQ(choice.First(), 2u);
  EXPECT_EQ(choice.Other(2), 1u);
  choice.OnAnswered(0);
  choice.OnAnswered(0);
  EXPECT_EQ(choice.Other(2), 0u);
}

TEST(ReplicaChoice, ReplicasThatAreAlikeTakeTurns) {
  ReplicaChoice choice(3, true, {});
  std::set<size_t> found;
  for (int i = 0; i < 3; ++i) found.insert(choice.First());
  EXPECT_EQ(found.size(), 3u);
}

TEST(ReplicaChoice, WithoutSpreadingTheFirstReplicaLeads) {
  ReplicaChoice choice(2, false, {});
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(choice.First(), 0u);
    choice.OnSent(0);
  }
  EXPECT_EQ(choice.Other(0), 1u);
}

TEST(ReplicaChoice, AReplicaAloneHasNoOther) { EXPECT_EQ(ReplicaChoice(1, true, {}).Other(0), std::nullopt); }

TEST(ReplicaChoice, NeverAndAlwaysDoNotLookAtTheLoad) {
  ReplicaChoice never(2, true, {.at_once = CopyAtOnce::kNever});
  ReplicaChoice always(2, true, {.at_once = CopyAtOnce::kAlways});
  EXPECT_FALSE(never.AtOnce(0, 1));
  for (int i = 0; i < 100; ++i) always.OnSent(0);
  always.OnLoad(1, 255);
  EXPECT_TRUE(always.AtOnce(0, 1));
}

TEST(ReplicaChoice, IdleMeansThatBothHaveFewInFlight) {
  ReplicaChoice choice(2, true, kIdleRule);
  choice.OnSent(0);
  choice.OnSent(0);
  EXPECT_TRUE(choice.AtOnce(0, 1)) << "2 of 10 workers are taken";
  choice.OnSent(0);
  EXPECT_FALSE(choice.AtOnce(0, 1)) << "3 of 10 are the limit";
  EXPECT_FALSE(choice.AtOnce(1, 0)) << "in either order";
  choice.OnAnswered(0);
  EXPECT_TRUE(choice.AtOnce(0, 1));
}

TEST(ReplicaChoice, WhatAReplicaReportsCountsBesideTheClientsOwn) {
  ReplicaChoice choice(2, true, kIdleRule);
  choice.OnLoad(1, 77);  // 30.2 %: other clients' requests.
  EXPECT_FALSE(choice.AtOnce(0, 1));
  choice.OnLoad(1, 76);
  EXPECT_TRUE(choice.AtOnce(0, 1));
}

TEST(ReplicaChoice, ForgottenCopiesAreNotInFlight) {
  ReplicaChoice choice(3, true, kIdleRule);
  for (size_t replica = 0; replica < 3; ++replica) choice.OnSent(replica);
  choice.OnForgotten(0b101);
  EXPECT_EQ(choice.in_flight(0), 0u);
  EXPECT_EQ(choice.in_flight(1), 1u);
  EXPECT_EQ(choice.in_flight(2), 0u);
  choice.OnForgotten(0b111);
  choice.OnForgotten(0b111);
  EXPECT_EQ(choice.in_flight(1), 0u) << "never below none";
}

}  // namespace
}  // namespace hedgerow::bench
