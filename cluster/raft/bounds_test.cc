// SPDX-License-Identifier: Apache-2.0
//
// What a node keeps in memory for others, and for a disk that is behind, is bounded.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "cluster/raft/testing/test_cluster.h"

namespace hedgerow::raft {
namespace {

// How many of so many proposals the leader refuses.
size_t RefusedOf(TestCluster& cluster, int proposals, const std::string& payload) {
  size_t refused = 0;
  for (int i = 0; i < proposals; ++i) {
    cluster.Propose(1, payload);
    refused += cluster.Last().refused_proposals.size();
  }
  return refused;
}

TEST(Raft_Bounds, TheReorderBufferHasABound) {
  Options options;
  options.reorder_buffer_max_appends = 2;
  TestCluster cluster(3, options);
  cluster.Elect(1);
  cluster.ProposeAndLose(1, "lost");
  for (int i = 0; i < 5; ++i) cluster.Propose(1, std::to_string(i));
  cluster.DeliverOnce(1, 2);
  EXPECT_EQ(cluster.At(2).reordered_appends(), 2u);
  cluster.HeartbeatRounds(1, 10);
  EXPECT_EQ(cluster.Applied(2).size(), 6u);
}

// Whoever has proposed it: else each election would leave as much to the next.
TEST(Raft_Bounds, WhatIsUncommittedHasABoundInEntriesAcrossTerms) {
  Options options;
  options.uncommitted_max_entries = 10;
  TestCluster cluster(3, options);
  cluster.SetLog(1, {.term = Term(1), .voted_for = {}}, {1, 1, 1, 1, 1, 1});
  cluster.Elect(1);
  EXPECT_EQ(cluster.At(1).outstanding_entries(), 0u);
  cluster.Isolate(1);
  EXPECT_EQ(RefusedOf(cluster, 100, "x"), 90u);
  EXPECT_EQ(cluster.At(1).outstanding_entries(), 10u);
}

// The highest number wins, so one that cannot be would stay the highest.
TEST(Raft_Bounds, NumbersThatNoMemberCanHaveComeToNothing) {
  TestCluster cluster(3);
  cluster.Elect(1);
  const LogIndex last = cluster.At(1).log().last_index();
  const auto from_two = [&cluster](decltype(Message::body) body) {
    cluster.Inject({.from = NodeId(2), .to = NodeId(1), .term = Term(1), .body = std::move(body)});
    cluster.Deliver();
  };
  for (const LogIndex index : {last.Next(), LogIndex(UINT64_MAX)})
    from_two(AppendReply{.accepted = true, .index = index, .loop_seq = 99});
  for (const uint64_t round : {cluster.At(1).round() + 1, UINT64_MAX})
    from_two(HeartbeatReply{.round = round, .matched = {}, .loop_seq = 98});
  EXPECT_EQ(cluster.At(1).counters().impossible, 4u);
  EXPECT_LT(cluster.At(1).progress()[1].round(), cluster.At(1).round() + 1);
  EXPECT_EQ(cluster.At(1).progress()[1].match(), last);
}

TEST(Raft_Bounds, WhatOnlyTheOthersHaveWrittenHasABound) {
  Options options;
  options.uncommitted_max_entries = 10;
  TestCluster cluster(3, options);
  cluster.Elect(1);
  cluster.HoldDisk(1);
  size_t refused = 0;
  for (int i = 0; i < 100; ++i) {
    refused += RefusedOf(cluster, 1, "x");
    cluster.Deliver();
  }
  EXPECT_EQ(cluster.At(1).commit(), cluster.At(1).log().last_index()) << "the others are a majority";
  EXPECT_EQ(refused, 90u);
  cluster.ReleaseDisk(1);
  EXPECT_EQ(RefusedOf(cluster, 1, "x"), 0u);
}

TEST(Raft_Bounds, WhatIsProposedAndNotCommittedHasABound) {
  Options options;
  options.uncommitted_max_bytes = 1000;
  TestCluster cluster(3, options);
  cluster.Elect(1);
  cluster.Isolate(1);
  EXPECT_GT(RefusedOf(cluster, 100, std::string(100, 'x')), 80u);
  EXPECT_LT(std::count_if(cluster.network().begin(), cluster.network().end(),
                          [](const Message& m) { return std::holds_alternative<AppendRequest>(m.body); }),
            100);
}

}  // namespace
}  // namespace hedgerow::raft
