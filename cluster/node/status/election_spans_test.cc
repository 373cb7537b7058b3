// SPDX-License-Identifier: Apache-2.0
//
// Only rounds that a majority has answered are counted, each from when it was asked; durations land in the
// bucket that holds them, and what metrics leave out of the bounds they leave in the counts.
#include "cluster/node/status/election_spans.h"

#include <numeric>
#include <string>

#include "cluster/node/status/metrics.h"
#include "gtest/gtest.h"

namespace hedgerow::node {
namespace {

raft::Outputs Asking(bool pre_vote) {
  raft::Outputs outputs;
  for (const uint64_t peer : {2, 3}) {
    raft::Message message;
    message.to = raft::NodeId(peer);
    message.body = raft::VoteRequest{.asked_term = raft::Term(4), .pre_vote = pre_vote};
    outputs.send.push_back(message);
  }
  return outputs;
}

raft::Outputs Becoming(raft::Role role, raft::Outputs outputs = {}) {
  outputs.role_change = raft::RoleChange{.role = role, .term = raft::Term(4)};
  return outputs;
}

v1::Histogram Of(const ElectionSpans& spans, const std::string& name) {
  NodeStatus status;
  spans.AddTo(status);
  for (v1::Histogram& histogram : status.histograms) {
    if (histogram.name() == name) return histogram;
  }
  ADD_FAILURE() << name;
  return {};
}

uint64_t CountOf(const v1::Histogram& histogram) {
  return std::accumulate(histogram.buckets().begin(), histogram.buckets().end(), histogram.above(),
                         [](uint64_t sum, const v1::Histogram::Bucket& bucket) { return sum + bucket.count(); });
}

v1::Histogram HistogramOf(const operate::Durations& durations) {
  NodeStatus status;
  durations.AddTo(status.histograms, "x");
  return status.histograms[0];
}

TEST(ElectionSpans, BothRoundsOfAWonElectionAreMeasuredApart) {
  ElectionSpans spans;
  spans.Take(Becoming(raft::Role::kPreCandidate, Asking(true)), 1'000'000);
  spans.Take(Becoming(raft::Role::kCandidate), 1'050'000);
  // Asked once the own vote is durable.
  spans.Take(Asking(false), 1'300'000);
  spans.Take(Becoming(raft::Role::kLeader), 1'370'000);
  EXPECT_EQ(CountOf(Of(spans, "pre_vote_quorum")), 1u);
  EXPECT_EQ(Of(spans, "pre_vote_quorum").sum_ns(), 50'000u);
  EXPECT_EQ(CountOf(Of(spans, "vote_quorum")), 1u);
  EXPECT_EQ(Of(spans, "vote_quorum").sum_ns(), 70'000u);
}

TEST(ElectionSpans, ALostRoundIsNotCountedAndTheNextOneIsMeasuredFromItsOwnBeginning) {
  ElectionSpans spans;
  spans.Take(Becoming(raft::Role::kPreCandidate, Asking(true)), 1'000'000);
  spans.Take(Becoming(raft::Role::kFollower), 1'010'000);
  spans.Take(Becoming(raft::Role::kPreCandidate, Asking(true)), 5'000'000);
  spans.Take(Asking(true), 6'000'000);  // nobody has answered: the same again
  spans.Take(Becoming(raft::Role::kCandidate), 6'020'000);
  spans.Take(Asking(false), 6'030'000);
  spans.Take(Becoming(raft::Role::kPreCandidate, Asking(true)), 9'000'000);  // the votes were split
  spans.Take(Becoming(raft::Role::kCandidate), 9'030'000);
  spans.Take(Asking(false), 9'040'000);
  spans.Take(Becoming(raft::Role::kLeader), 9'045'000);
  EXPECT_EQ(CountOf(Of(spans, "pre_vote_quorum")), 2u);
  EXPECT_EQ(Of(spans, "pre_vote_quorum").sum_ns(), 50'000u);
  EXPECT_EQ(CountOf(Of(spans, "vote_quorum")), 1u);
  EXPECT_EQ(Of(spans, "vote_quorum").sum_ns(), 5'000u);
}

TEST(ElectionSpans, ATransferHasNoPreVote) {
  ElectionSpans spans;
  spans.Take(Becoming(raft::Role::kCandidate), 1'000'000);
  spans.Take(Asking(false), 1'100'000);
  spans.Take(Becoming(raft::Role::kLeader), 1'150'000);
  EXPECT_EQ(CountOf(Of(spans, "pre_vote_quorum")), 0u);
  EXPECT_EQ(Of(spans, "vote_quorum").sum_ns(), 50'000u);
}

TEST(ElectionSpans, StepsWithoutVotesDoNotConcernThem) {
  raft::Outputs other;
  other.send.emplace_back().body = raft::Heartbeat{};
  EXPECT_FALSE(ElectionSpans::Concern(other));
  EXPECT_TRUE(ElectionSpans::Concern(Asking(true)));
  EXPECT_TRUE(ElectionSpans::Concern(Asking(false)));
  EXPECT_TRUE(ElectionSpans::Concern(Becoming(raft::Role::kFollower)));
}

TEST(Durations, EachLandsInTheBucketThatHoldsIt) {
  for (uint64_t value :
       {0ull, 1ull, 1'023ull, 1'024ull, 1'151ull, 1'152ull, 70'000ull, 200'000ull, 16'777'215ull, 17'179'869'183ull}) {
    operate::Durations durations;
    durations.Record(value);
    const v1::Histogram histogram = HistogramOf(durations);
    uint64_t below_ns = 0;
    for (const v1::Histogram::Bucket& bucket : histogram.buckets()) {
      ASSERT_GT(bucket.upper_ns(), below_ns);
      EXPECT_EQ(bucket.count(), value <= bucket.upper_ns() && (below_ns == 0 || value > below_ns) ? 1u : 0u) << value;
      if (below_ns >= 1'023) {
        EXPECT_LE(bucket.upper_ns() - below_ns, (below_ns + 1) / 8) << value;
      }
      below_ns = bucket.upper_ns();
    }
    EXPECT_EQ(histogram.above(), 0u);
    EXPECT_EQ(histogram.sum_ns(), value);
    EXPECT_EQ(durations.samples(), 1u);
  }
  operate::Durations durations;
  durations.Record(17'179'869'184);
  EXPECT_EQ(HistogramOf(durations).above(), 1u);
}

TEST(Durations, MetricsHaveFewerBoundsAndEverySample) {
  operate::Durations durations;
  for (uint64_t value = 900; value < 40'000'000'000; value += value / 3) durations.Record(value);
  NodeStatus status;
  durations.AddTo(status.histograms, "x");
  const uint64_t count = CountOf(status.histograms[0]);
  for (const prometheus::MetricFamily& family : BuildFamilies(status, {})) {
    if (family.name != "hedgerow_node_x_seconds") continue;
    const prometheus::ClientMetric::Histogram& shown = family.metric.at(0).histogram;
    EXPECT_EQ(shown.sample_count, count);
    EXPECT_EQ(shown.bucket.size(), 1 + 2 * 24 + 1u);
    EXPECT_EQ(shown.bucket.back().cumulative_count, count);
    EXPECT_NEAR(shown.bucket[2].upper_bound, 2'047e-9, 1e-12);
    uint64_t up_to = 0;
    for (const v1::Histogram::Bucket& bucket : status.histograms[0].buckets())
      if (bucket.upper_ns() <= 2'047) up_to += bucket.count();
    EXPECT_EQ(shown.bucket[2].cumulative_count, up_to);
    return;
  }
  FAIL() << "no such family";
}

}  // namespace
}  // namespace hedgerow::node
