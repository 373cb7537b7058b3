// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/stall_problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::node {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr uint64_t kSecond = 1'000'000'000;

NodeStatus LeaderOfThree() {
  NodeStatus status;
  status.node = raft::NodeId(1);
  status.role = raft::Role::kLeader;
  status.last_index = raft::LogIndex(20);
  status.commit = raft::LogIndex(12);
  for (const uint64_t id : {1, 2, 3}) status.members.push_back({.id = raft::NodeId(id), .role = "voter"});
  for (const uint64_t id : {2, 3}) {
    status.peers.push_back(
        {.id = raft::NodeId(id), .heard_ago_ns = kSecond / 100, .match = raft::LogIndex(id == 2 ? 12 : 20)});
  }
  return status;
}

TEST(StallProblem, ALogThatMovesIsNone) {
  NodeStatus status = LeaderOfThree();
  status.commit_stalled_ns = kSecond / 10;
  status.disk_stalled_ns = kSecond / 10;
  status.leaderless_ns = kSecond / 2;
  EXPECT_THAT(StallProblems(status), IsEmpty());
}

TEST(StallProblem, NamesTheVotersThatAnswerAndDoNotAcknowledge) {
  NodeStatus status = LeaderOfThree();
  status.commit_stalled_ns = 3 * kSecond;
  EXPECT_THAT(StallProblems(status),
              ElementsAre(AllOf(HasSubstr("for 3.00s while 8 entries wait"), HasSubstr("node 2 answers heartbeats"),
                                Not(HasSubstr("node 3")))));
}

TEST(StallProblem, ADiskThatHangsIsNamedOnTheNodeThatHasIt) {
  EXPECT_THAT(DiskProblem(2 * kSecond), HasSubstr("has not finished for 2.00s"));
  EXPECT_THAT(DiskProblem(kSecond / 10), IsEmpty());
}

TEST(StallProblem, ANodeWithoutALeaderSaysSo) {
  NodeStatus status = LeaderOfThree();
  status.role = raft::Role::kFollower;
  status.leaderless_ns = 5 * kSecond;
  EXPECT_THAT(StallProblems(status), ElementsAre(HasSubstr("no leader is known for 5.00s")));
  status.lost = "its host has rebooted";
  EXPECT_THAT(StallProblems(status), IsEmpty()) << "a lost node knows why";
}

}  // namespace
}  // namespace hedgerow::node
