// SPDX-License-Identifier: Apache-2.0
//
// LAEDGE's rule: two copies to two idle servers, one to one, and what finds none waits in its order.
#include "bench/serve/coordinator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

namespace hedgerow::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<uint8_t> Datagram(uint32_t id, uint8_t tail = 0) {
  return {static_cast<uint8_t>(id), static_cast<uint8_t>(id >> 8), static_cast<uint8_t>(id >> 16),
          static_cast<uint8_t>(id >> 24), tail};
}

class CoordinatorTest : public testing::Test {
 protected:
  void Make(size_t servers, size_t workers, size_t most_queued = 100) {
    coordinator_.emplace(
        Coordinator::Options{.servers = servers, .workers = workers, .most_queued = most_queued, .forget_ns = 1'000},
        [this](size_t server, std::span<const uint8_t> request) { sent_[request[0]].insert(server); },
        [this](const Address&, std::span<const uint8_t> answer) {
          answers_.push_back({answer[0], answer[4]});
        });
  }
  void Ask(uint32_t id, int64_t now_ns = 0) { coordinator_->OnRequest(Datagram(id), Address{}, now_ns); }
  void Answer(size_t server, uint32_t id, uint8_t tail = 0) { coordinator_->OnAnswer(server, Datagram(id, tail), 0); }

  std::optional<Coordinator> coordinator_;
  std::map<uint32_t, std::set<size_t>> sent_;  // Servers by id.
  std::vector<std::pair<int, int>> answers_;   // Ids and tails.
};

TEST_F(CoordinatorTest, TwoIdleServersGetACopyEachAndTheFirstAnswerWins) {
  Make(3, 1);
  Ask(1);
  ASSERT_THAT(sent_[1], SizeIs(2));
  const size_t first = *sent_[1].begin(), second = *sent_[1].rbegin();
  Answer(second, 1, 7);
  Answer(first, 1, 8);
  EXPECT_THAT(answers_, ElementsAre(std::pair(1, 7)));
  EXPECT_EQ(coordinator_->counters().losers, 1u);
}

TEST_F(CoordinatorTest, OneIdleServerGetsTheOnlyCopy) {
  Make(3, 1);
  Ask(1);
  Ask(2);
  EXPECT_THAT(sent_[2], SizeIs(1));
  EXPECT_FALSE(sent_[1].contains(*sent_[2].begin()));
}

TEST_F(CoordinatorTest, WithoutAnIdleServerRequestsWaitInTheirOrder) {
  Make(2, 1);
  Ask(1);
  Ask(2);
  Ask(3);
  EXPECT_EQ(coordinator_->queued(), 2u);
  EXPECT_THAT(sent_[2], IsEmpty());
  Answer(0, 1);
  EXPECT_THAT(sent_[2], ElementsAre(0u)) << "one server is idle";
  EXPECT_THAT(sent_[3], IsEmpty());
  Answer(1, 1);
  EXPECT_THAT(sent_[3], ElementsAre(1u));
  EXPECT_EQ(coordinator_->queued(), 0u);
}

TEST_F(CoordinatorTest, AServerIsIdleWhileItHasFewerRequestsThanWorkers) {
  Make(2, 3);
  for (uint32_t id = 1; id <= 3; ++id) {
    Ask(id);
    EXPECT_THAT(sent_[id], SizeIs(2)) << id;
  }
  Ask(4);
  EXPECT_THAT(sent_[4], IsEmpty());
  Answer(0, 2);
  EXPECT_THAT(sent_[4], ElementsAre(0u));
}

TEST_F(CoordinatorTest, TheServersWithTheFewestRequestsAreAsked) {
  Make(4, 2);
  Ask(1);
  Ask(2);
  std::set<size_t> all = sent_[1];
  all.insert(sent_[2].begin(), sent_[2].end());
  EXPECT_THAT(all, SizeIs(4));
}

TEST_F(CoordinatorTest, ACopyWithoutAnAnswerFreesItsWorkerInTheEnd) {
  Make(1, 1);
  Ask(1, 0);
  Ask(2, 10);
  coordinator_->Forget(999);
  EXPECT_THAT(sent_[2], IsEmpty());
  coordinator_->Forget(1'000);
  EXPECT_THAT(sent_[2], ElementsAre(0u));
  Answer(0, 1);
  EXPECT_THAT(answers_, IsEmpty()) << "it came too late, and must not free a worker twice";
  EXPECT_EQ(coordinator_->counters().stray, 1u);
  EXPECT_EQ(coordinator_->counters().forgotten, 1u);
}

TEST_F(CoordinatorTest, WhatCannotBeKeptIsRefusedAndCounted) {
  Make(1, 1, 1);
  Ask(1);
  Ask(2);
  Ask(3);
  coordinator_->OnRequest(std::vector<uint8_t>{1, 2, 3}, Address{}, 0);
  EXPECT_EQ(coordinator_->counters().refused, 2u);
  EXPECT_EQ(coordinator_->queued(), 1u);
}

}  // namespace
}  // namespace hedgerow::bench
