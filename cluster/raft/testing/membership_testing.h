// SPDX-License-Identifier: Apache-2.0
//
// For the tests of changes of membership: node 1 leads nodes 1 to 3, and is asked for a change. The invariants
// check after each step which nodes decide; the simulator does all of this under faults.

#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/raft/testing/test_cluster.h"

namespace hedgerow::raft {

inline MemberChange Add(uint64_t node) { return {.kind = MemberChange::Kind::kAddLearner, .node = NodeId(node)}; }
inline MemberChange Promote(uint64_t node) { return {.kind = MemberChange::Kind::kPromote, .node = NodeId(node)}; }
inline MemberChange Remove(uint64_t node) { return {.kind = MemberChange::Kind::kRemove, .node = NodeId(node)}; }

inline std::vector<uint64_t> Voters(const TestCluster& cluster, uint64_t id) {
  const Configuration& now = cluster.At(id).configuration();
  std::vector<uint64_t> voters;
  for (const Member& member : now.members) {
    if (((now.deciding() >> member.slot) & 1) != 0) voters.push_back(member.id.value());
  }
  std::sort(voters.begin(), voters.end());
  return voters;
}

class Membership : public testing::Test {
 protected:
  Membership() { cluster_.Elect(1); }
  ~Membership() override { EXPECT_THAT(cluster_.violation(), testing::IsEmpty()); }

  ChangeRefusal Ask(uint64_t leader, std::vector<MemberChange> changes) {
    cluster_.Change(leader, std::move(changes));
    return cluster_.Answer().refusal;
  }
  // After a silence long enough for everybody to have forgotten a leader.
  void Stand(uint64_t id) {
    cluster_.Wait(10'000'000'000);
    cluster_.Tick(id);
    cluster_.Deliver();
  }
  // Until everybody has heard that it is done.
  void Done(uint64_t leader) {
    cluster_.Deliver();
    cluster_.HeartbeatRounds(leader, 5);
  }
  void AddLearner(uint64_t id) {
    cluster_.Join(id);
    ASSERT_EQ(Ask(1, {Add(id)}), ChangeRefusal::kNone);
    Done(1);
  }
  void AddFour() {
    AddLearner(4);
    ASSERT_EQ(cluster_.At(4).commit(), cluster_.At(1).commit());
  }
  // The leader's own removal: the joint configuration is committed, and the entry of the new one is appended
  // everywhere. Its acknowledgements are on their way.
  void RemoveLeaderUpToTheLastAcknowledgements() {
    ASSERT_EQ(Ask(1, {Remove(1)}), ChangeRefusal::kNone);
    for (const uint64_t id : {2, 3}) cluster_.Exchange(1, id);
    ASSERT_FALSE(cluster_.At(1).configuration().joint());
    for (const uint64_t id : {2, 3}) cluster_.DeliverOnce(1, id);
  }

  TestCluster cluster_{3};
};

}  // namespace hedgerow::raft
