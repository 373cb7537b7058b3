// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/request_desk.h"

#include <gtest/gtest.h>

namespace hedgerow::kv {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;
const raft::NodeId kSelf(1);
const raft::NodeId kOther(2);

class RequestDeskTest : public testing::Test {
 protected:
  static Request Write(uint64_t seq, uint64_t patience_ms = 5000) {
    Request request;
    request.reply_to = {.client = 3, .request = seq};
    request.command.key = {.kind = CommandKind::kWrite, .a = 1, .b = seq};
    request.patience_ns = patience_ms * kMillisecond;
    return request;
  }
  template <typename Kind>
  const Kind* Only() {
    return actions_.size() == 1 ? std::get_if<Kind>(&actions_[0]) : nullptr;
  }
  std::vector<Action> Take() { return std::move(actions_); }

  StateMachine state_;
  RequestDesk desk_{kSelf, state_, {}, 100};
  std::vector<Action> actions_;
};

TEST_F(RequestDeskTest, TheLeaderProposes) {
  desk_.LeaderChanged(0, kSelf, actions_);
  desk_.Receive(0, 0, Write(1), actions_);
  EXPECT_NE(Only<ProposeCommand>(), nullptr);
}

TEST_F(RequestDeskTest, AStandbyForwardsWithAgeAndOneHop) {
  desk_.Receive(0, 0, Write(1), actions_);
  EXPECT_TRUE(actions_.empty()) << "held: there is no leader";
  desk_.LeaderChanged(300 * kMillisecond, kOther, actions_);
  const auto* forward = Only<Forward>();
  ASSERT_NE(forward, nullptr);
  EXPECT_EQ(forward->to, kOther);
  EXPECT_EQ(forward->request.age_ns, 300 * kMillisecond);
  EXPECT_EQ(forward->request.hops, 1u);
}

TEST_F(RequestDeskTest, TheOtherNodesAnswerIsHandedOnOnce) {
  desk_.LeaderChanged(0, kOther, actions_);
  desk_.Receive(0, 0, Write(1), actions_);
  const uint64_t tag = std::get<Forward>(Take().at(0)).tag;
  Answer answer;
  answer.result.values = {"7"};
  desk_.ForwardAnswered(0, tag + 1, kOther, answer, actions_);
  desk_.ForwardAnswered(0, tag, raft::NodeId(3), answer, actions_);
  EXPECT_TRUE(actions_.empty()) << "of another request, or from somebody who was not asked";
  desk_.ForwardAnswered(0, tag, kOther, answer, actions_);
  desk_.ForwardAnswered(0, tag, kOther, answer, actions_);
  ASSERT_NE(Only<Answer>(), nullptr);
  EXPECT_EQ(Only<Answer>()->reply_to.request, 1u);
  EXPECT_EQ(Only<Answer>()->result.values[0], "7");
}

TEST_F(RequestDeskTest, WhatTheOtherNodeCouldNotDoIsHeldForTheNextLeader) {
  desk_.LeaderChanged(0, kOther, actions_);
  desk_.Receive(0, 0, Write(1), actions_);
  const uint64_t tag = std::get<Forward>(Take().at(0)).tag;
  Answer answer;
  answer.kind = Answer::Kind::kNotLeader;
  desk_.ForwardAnswered(10 * kMillisecond, tag, kOther, answer, actions_);
  EXPECT_TRUE(actions_.empty());
  desk_.LeaderChanged(20 * kMillisecond, kSelf, actions_);
  EXPECT_NE(Only<ProposeCommand>(), nullptr);
}

TEST_F(RequestDeskTest, AForwardedRequestIsNotForwardedAgain) {
  desk_.LeaderChanged(0, kOther, actions_);
  Request request = Write(1);
  request.hops = 1;
  desk_.Receive(0, 0, request, actions_);
  ASSERT_NE(Only<Answer>(), nullptr);
  EXPECT_EQ(Only<Answer>()->kind, Answer::Kind::kNotLeader);
  EXPECT_EQ(Only<Answer>()->leader_hint, kOther);
}

TEST_F(RequestDeskTest, ItIsHeldForASecondAtMost) {
  desk_.Receive(0, 0, Write(1), actions_);
  desk_.Tick(999 * kMillisecond, actions_);
  EXPECT_TRUE(actions_.empty());
  desk_.Tick(1000 * kMillisecond, actions_);
  ASSERT_NE(Only<Answer>(), nullptr);
  EXPECT_EQ(Only<Answer>()->kind, Answer::Kind::kNotLeader);
}

TEST_F(RequestDeskTest, ItIsHeldNoLongerThanItsClientWaits) {
  desk_.Receive(0, 0, Write(1, 100), actions_);
  EXPECT_EQ(desk_.next_deadline_ns(), 100 * kMillisecond);
}

TEST_F(RequestDeskTest, TheLeaderRefusesACopyThatIsTooOld) {
  desk_.LeaderChanged(0, kSelf, actions_);
  Request request = Write(1);
  request.hops = 1;
  request.age_ns = 1600 * kMillisecond;
  desk_.Receive(0, 0, request, actions_);
  ASSERT_NE(Only<Answer>(), nullptr);
  EXPECT_EQ(Only<Answer>()->kind, Answer::Kind::kNotLeader);
}

TEST_F(RequestDeskTest, TimeInAStoppedNodesSocketCounts) {
  desk_.LeaderChanged(0, kSelf, actions_);
  desk_.Receive(3000 * kMillisecond, 0, Write(1), actions_);
  EXPECT_EQ(Only<ProposeCommand>(), nullptr);
}

TEST_F(RequestDeskTest, WhateverNodeAppliesAnswersWhoWaitsThere) {
  desk_.LeaderChanged(0, kOther, actions_);
  desk_.Receive(0, 0, Write(1), actions_);
  desk_.Receive(0, 0, Write(1), actions_);
  Take();
  desk_.Applied(Write(1).command.key, {.code = ResultCode::kOk, .session = 0, .values = {"1"}}, actions_);
  ASSERT_EQ(actions_.size(), 2u);
  EXPECT_EQ(std::get<Answer>(actions_[0]).result.values[0], "1");
  EXPECT_EQ(desk_.waiting(), 0u);
}

TEST_F(RequestDeskTest, WhatIsAppliedAlreadyIsAnsweredFromTheTable) {
  state_.Apply(1, {.key = {.kind = CommandKind::kOpen, .a = 9}, .operations = {}});
  Command command = Write(1).command;
  state_.Apply(2, command);
  desk_.Receive(0, 0, Write(1), actions_);
  ASSERT_NE(Only<Answer>(), nullptr);
  EXPECT_EQ(Only<Answer>()->kind, Answer::Kind::kResult);
}

TEST_F(RequestDeskTest, ANewLeaderGetsWhatTheFormerOneHad) {
  desk_.LeaderChanged(0, kOther, actions_);
  desk_.Receive(0, 0, Write(1), actions_);
  Take();
  desk_.LeaderChanged(100 * kMillisecond, raft::NodeId(), actions_);
  EXPECT_TRUE(actions_.empty());
  desk_.LeaderChanged(200 * kMillisecond, kSelf, actions_);
  EXPECT_NE(Only<ProposeCommand>(), nullptr);
}

}  // namespace
}  // namespace hedgerow::kv
