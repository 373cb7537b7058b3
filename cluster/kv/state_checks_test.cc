// SPDX-License-Identifier: Apache-2.0
//
// What a majority of the voters has is right, each replica comes to that by itself, and nobody is outside by one word.
#include "cluster/kv/state_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::kv {
namespace {

using raft::LogIndex;
using raft::NodeId;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr uint64_t kRight = 111;
constexpr uint64_t kWrong = 222;

class StateChecksTest : public testing::Test {
 protected:
  void Says(uint64_t node, uint64_t fingerprint, uint64_t index = 10) {
    checks_.Count(LogIndex(++at_), LogIndex(index), NodeId(node), fingerprint, voters_);
  }

  raft::Configuration voters_ = raft::Configuration::OfVoters({NodeId(1), NodeId(2), NodeId(3)});
  StateChecks checks_{NodeId(1)};
  uint64_t at_ = 100;
};

TEST_F(StateChecksTest, TwoOfThreeAreRightAndTheThirdIsOutside) {
  checks_.Record(LogIndex(10), kRight);
  Says(3, kWrong);
  Says(2, kRight);
  EXPECT_THAT(checks_.outside(), IsEmpty()) << "one against one";
  Says(1, kRight);
  EXPECT_THAT(checks_.outside(), ElementsAre(Pair(NodeId(3), LogIndex(103))));
  EXPECT_EQ(checks_.wrong_since(), LogIndex());
  EXPECT_EQ(checks_.counters().equal, 1u);
  Says(3, kRight, 20);
  Says(2, kRight, 20);
  EXPECT_THAT(checks_.outside(), IsEmpty()) << "it has been mended";
}

TEST_F(StateChecksTest, ARemovedMemberIsNotOutsideAnyMore) {
  Says(3, StateChecks::kFault);
  ASSERT_THAT(checks_.outside(), ElementsAre(Pair(NodeId(3), LogIndex(101))));
  const raft::Configuration without = raft::Configuration::OfVoters({NodeId(1), NodeId(2)});
  checks_.KeepOnly(without);
  EXPECT_THAT(checks_.outside(), IsEmpty());
  checks_.Count(LogIndex(200), LogIndex(10), NodeId(3), StateChecks::kFault, without);
  EXPECT_THAT(checks_.outside(), IsEmpty()) << "nor by a report that comes late";
}

TEST_F(StateChecksTest, ASnapshotFromBeforeTheDifferenceWasKnownMendsNothing) {
  Says(3, StateChecks::kFault);
  Says(3, StateChecks::kFault);
  checks_.Mended(NodeId(3), LogIndex(100));
  EXPECT_THAT(checks_.outside(), ElementsAre(Pair(NodeId(3), LogIndex(101))))
      << "and a repeated report asks for no newer one";
  checks_.Mended(NodeId(3), LogIndex(101));
  EXPECT_THAT(checks_.outside(), IsEmpty());
}

TEST_F(StateChecksTest, AReplicaKnowsByTheOthersThatItIsOutsideItself) {
  checks_.Record(LogIndex(10), kWrong);
  Says(2, kRight);
  EXPECT_EQ(checks_.wrong_since(), LogIndex());
  Says(3, kRight);
  EXPECT_EQ(checks_.wrong_since(), LogIndex(10));
  EXPECT_EQ(checks_.counters().differ, 1u);
  checks_.StateReplaced();
  EXPECT_EQ(checks_.wrong_since(), LogIndex());
  EXPECT_EQ(checks_.counters().mended, 1u);
}

TEST_F(StateChecksTest, WhatWasNotRecordedIsNotCompared) {
  Says(2, kRight);
  Says(3, kRight);
  EXPECT_EQ(checks_.counters().skipped, 1u);
  EXPECT_EQ(checks_.wrong_since(), LogIndex());
  checks_.Record(LogIndex(20), kWrong);
  checks_.StateReplaced();
  Says(2, kRight, 20);
  Says(3, kRight, 20);
  EXPECT_EQ(checks_.wrong_since(), LogIndex()) << "that was another state's";
}

TEST_F(StateChecksTest, OfTwoNobodyCanTellWhichIsRight) {
  voters_ = raft::Configuration::OfVoters({NodeId(1), NodeId(2)});
  checks_.Record(LogIndex(10), kRight);
  Says(1, kRight);
  EXPECT_EQ(checks_.undecided(), LogIndex());
  Says(2, kWrong);
  EXPECT_EQ(checks_.undecided(), LogIndex(10));
  EXPECT_EQ(checks_.wrong_since(), LogIndex());
  EXPECT_THAT(checks_.outside(), IsEmpty());
}

TEST_F(StateChecksTest, ALearnerCountsForNobodyAndMayBeOutside) {
  voters_.members.push_back({.id = NodeId(4), .slot = 3});
  checks_.Record(LogIndex(10), kRight);
  Says(4, kWrong);
  Says(2, kWrong);
  Says(1, kRight);
  EXPECT_EQ(checks_.wrong_since(), LogIndex()) << "two of the three voters do not agree yet";
  Says(3, kRight);
  EXPECT_THAT(checks_.outside(), ElementsAre(Pair(NodeId(2), LogIndex(104)), Pair(NodeId(4), LogIndex(104))));
  Says(9, kWrong);
  EXPECT_FALSE(checks_.outside().contains(NodeId(9))) << "no member";
}

TEST_F(StateChecksTest, AFaultOfItsOwnMemoryIsBelievedAtOnce) {
  checks_.FoundFault(LogIndex(15));
  EXPECT_EQ(checks_.wrong_since(), LogIndex(15));
  EXPECT_EQ(checks_.counters().faults, 1u);
  Says(2, StateChecks::kFault);
  EXPECT_THAT(checks_.outside(), ElementsAre(Pair(NodeId(2), LogIndex(101))));
}

TEST_F(StateChecksTest, AVoterAloneIsNotRightByItsOwnWord) {
  voters_ = raft::Configuration::OfVoters({NodeId(1)});
  checks_.FoundFault(LogIndex(15));
  checks_.Record(LogIndex(20), kWrong);
  Says(1, kWrong, 20);
  EXPECT_EQ(checks_.wrong_since(), LogIndex(15)) << "a restart makes its state anew";
}

TEST_F(StateChecksTest, WhatIsOverwrittenMeanwhileIsRightAgain) {
  checks_.FoundFault(LogIndex(15));
  checks_.Record(LogIndex(20), kRight);
  Says(2, kRight, 20);
  Says(3, kRight, 20);
  EXPECT_EQ(checks_.wrong_since(), LogIndex());
}

}  // namespace
}  // namespace hedgerow::kv
