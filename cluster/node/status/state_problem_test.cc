// SPDX-License-Identifier: Apache-2.0
//
// The node whose data is wrong is named, by itself and by the others.
#include "cluster/node/status/state_problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::node {
namespace {

using raft::LogIndex;
using raft::NodeId;
using ::testing::HasSubstr;

// Of three voters, of which node 3 has another state; as node `self` sees it.
kv::StateChecks Seen(uint64_t self, uint64_t voters = 3) {
  kv::StateChecks checks{NodeId(self)};
  std::vector<NodeId> ids;
  for (uint64_t id = 1; id <= voters; ++id) ids.push_back(NodeId(id));
  const raft::Configuration configuration = raft::Configuration::OfVoters(ids);
  checks.Record(LogIndex(10), self == voters ? 2 : 1);
  for (uint64_t id = 1; id <= voters; ++id)
    checks.Count(LogIndex(10 + id), LogIndex(10), NodeId(id), id == voters ? 2 : 1, configuration);
  return checks;
}

TEST(DivergedProblemTest, TheNodeOutsideSaysSoOfItself) {
  EXPECT_THAT(DivergedProblem(Seen(3)), HasSubstr("since entry 10 at the latest the data of this node is not"));
}

TEST(DivergedProblemTest, TheOthersNameIt) {
  EXPECT_THAT(DivergedProblem(Seen(1)), HasSubstr("the data of node 3 is not that of the majority, as entry 13"));
}

TEST(DivergedProblemTest, OfTwoNeitherIsKnownToBeRight) {
  EXPECT_THAT(DivergedProblem(Seen(1, 2)), HasSubstr("after entry 10 no majority of the voters has the same data"));
}

TEST(DivergedProblemTest, NothingIsSaidWhereNothingIsWrong) {
  EXPECT_EQ(DivergedProblem(kv::StateChecks(NodeId(1))), "");
}

}  // namespace
}  // namespace hedgerow::node
