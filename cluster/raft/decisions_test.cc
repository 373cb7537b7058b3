// SPDX-License-Identifier: Apache-2.0
//
// The shared decisions, by themselves.
#include "bpf/node/raft/decisions_abi.h"

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace hedgerow::raft {
namespace {

constexpr hr_raft_state kState = {.term = 5, .voted_for = 0, .leader = 0, .last_index = 10, .last_term = 4};

hr_raft_vote_request From(__u64 candidate, __u64 term) {
  return {.term = term, .candidate = candidate, .last_index = 10, .last_term = 4, .transfer_term = 0};
}

TEST(Decisions, ALaterLastTermBeatsALongerLog) {
  EXPECT_TRUE(hr_raft_log_up_to_date(&kState, 1, 5));
  EXPECT_TRUE(hr_raft_log_up_to_date(&kState, 10, 4));
  EXPECT_FALSE(hr_raft_log_up_to_date(&kState, 9, 4));
  EXPECT_FALSE(hr_raft_log_up_to_date(&kState, 99, 3));
}

TEST(Decisions, AVoteIsForOneCandidateOfThisTerm) {
  hr_raft_state state = kState;
  const hr_raft_vote_request request = From(2, 5);
  EXPECT_EQ(hr_raft_may_vote(&state, &request, 0), HR_RAFT_YES);
  state.voted_for = 2;
  EXPECT_EQ(hr_raft_may_vote(&state, &request, 0), HR_RAFT_YES) << "the same again";
  state.voted_for = 3;
  EXPECT_EQ(hr_raft_may_vote(&state, &request, 0), HR_RAFT_VOTE_TAKEN);
  state.voted_for = 0;
  state.leader = 3;
  EXPECT_EQ(hr_raft_may_vote(&state, &request, 0), HR_RAFT_VOTE_TAKEN) << "the term has a leader";
  const hr_raft_vote_request old = From(2, 4);
  EXPECT_EQ(hr_raft_may_vote(&kState, &old, 0), HR_RAFT_STALE_TERM);
  const hr_raft_vote_request newer = From(2, 6);
  EXPECT_EQ(hr_raft_may_vote(&kState, &newer, 0), HR_RAFT_NEWER_TERM);
}

TEST(Decisions, AHeardLeaderIsClungToUnlessItAsked) {
  hr_raft_vote_request request = From(2, 6);
  EXPECT_EQ(hr_raft_may_vote(&kState, &request, 1), HR_RAFT_LEADER_ALIVE);
  EXPECT_EQ(hr_raft_may_pre_vote(&kState, &request, 1), HR_RAFT_LEADER_ALIVE);
  request.transfer_term = 4;
  EXPECT_EQ(hr_raft_may_vote(&kState, &request, 1), HR_RAFT_LEADER_ALIVE) << "another leader asked";
  request.transfer_term = 5;
  EXPECT_EQ(hr_raft_may_vote(&kState, &request, 1), HR_RAFT_NEWER_TERM);
  EXPECT_EQ(hr_raft_may_pre_vote(&kState, &request, 1), HR_RAFT_YES);
}

TEST(Decisions, AppendNeedsTheEntryBefore) {
  hr_raft_append append{.term = 5, .prev_index = 10, .prev_term = 4};
  EXPECT_EQ(hr_raft_may_append(&kState, &append, 4), HR_RAFT_YES);
  EXPECT_EQ(hr_raft_may_append(&kState, &append, 3), HR_RAFT_CONFLICT);
  append.prev_index = 11;
  EXPECT_EQ(hr_raft_may_append(&kState, &append, 0), HR_RAFT_GAP);
  append.term = 4;
  EXPECT_EQ(hr_raft_may_append(&kState, &append, 0), HR_RAFT_STALE_TERM);
  append = {.term = 5, .prev_index = 0, .prev_term = 0};
  EXPECT_EQ(hr_raft_may_append(&kState, &append, 0), HR_RAFT_YES) << "before the first entry";
}

__u64 KthLargest(const __u64 reached[HR_RAFT_MAX_MEMBERS], __u32 voters) {
  std::vector<__u64> counted;
  for (int i = 0; i < HR_RAFT_MAX_MEMBERS; ++i) {
    if ((voters >> i) & 1) counted.push_back(reached[i]);
  }
  std::sort(counted.begin(), counted.end(), std::greater<>());
  return counted.empty() ? 0 : counted[counted.size() / 2];
}

TEST(Decisions, TheQuorumValueIsTheKthLargestOfTheVotersAndOfBothIfTheyAreJoint) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 20'000; ++round) {
    __u64 reached[HR_RAFT_MAX_MEMBERS];
    for (__u64& value : reached) value = random() % 10;
    const __u32 voters = random() % 256;
    ASSERT_EQ(hr_raft_quorum_value(reached, voters, 0), KthLargest(reached, voters)) << "voters " << voters;
    const __u32 next_voters = 1 + random() % 255;
    ASSERT_EQ(hr_raft_quorum_value(reached, voters, next_voters),
              std::min(KthLargest(reached, voters), KthLargest(reached, next_voters)))
        << "voters " << voters << " and " << next_voters;
  }
}

TEST(Decisions, AMemberWithoutAVoteDoesNotCount) {
  EXPECT_TRUE(hr_raft_is_quorum(0b011, 0b111));
  EXPECT_FALSE(hr_raft_is_quorum(0b001, 0b111));
  EXPECT_FALSE(hr_raft_is_quorum(0b1001, 0b0111));
  EXPECT_FALSE(hr_raft_is_quorum(0b0011, 0b1111)) << "half is no majority";
}

TEST(Decisions, JointConfigurationsNeedAMajorityOfEach) {
  EXPECT_TRUE(hr_raft_is_joint_quorum(0b00011, 0b00111, 0));
  EXPECT_FALSE(hr_raft_is_joint_quorum(0b00011, 0b00111, 0b11100));
  EXPECT_FALSE(hr_raft_is_joint_quorum(0b11000, 0b00111, 0b11100));
  EXPECT_TRUE(hr_raft_is_joint_quorum(0b01110, 0b00111, 0b11100)) << "a member of both counts in both";
}

TEST(Decisions, OnlyTheOwnTermMovesTheCommit) {
  EXPECT_TRUE(hr_raft_moves_commit(5, 7, 8, 5));
  EXPECT_FALSE(hr_raft_moves_commit(5, 7, 8, 4));
  EXPECT_FALSE(hr_raft_moves_commit(5, 7, 7, 5));
  EXPECT_FALSE(hr_raft_moves_commit(5, 7, 6, 5));
}

}  // namespace
}  // namespace hedgerow::raft
