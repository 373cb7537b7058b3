// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/request_router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace hedgerow::kv {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;
const raft::NodeId kSelf(1);
const raft::NodeId kOther(2);

class RequestRouterTest : public testing::Test {
 protected:
  static Request Write(uint64_t seq, uint64_t timeout_ms = 5000) {
    Request request;
    request.reply_to = {.client = 3, .request = seq};
    request.command.key = {.kind = CommandKind::kWrite, .a = 1, .b = seq};
    request.timeout_ns = timeout_ms * kMillisecond;
    return request;
  }
  template <typename Kind>
  const Kind* Only() {
    return actions_.size() == 1 ? std::get_if<Kind>(&actions_[0]) : nullptr;
  }
  std::vector<Action> Take() { return std::move(actions_); }

  static Request Item(uint64_t id) {
    Request request;
    request.reply_to = {.client = 0, .request = id};
    request.command.key = {.kind = CommandKind::kMemcached, .a = 1, .c = 2, .d = id};
    request.command.item = {.verb = ItemVerb::kAdd, .key = "k" + std::to_string(id), .value = "v"};
    request.timeout_ns = 2000 * kMillisecond;
    return request;
  }
  void ApplyItem(uint64_t now_ns, uint64_t id, uint64_t elapsed_ns = 0, bool of_this_term = true) {
    Command command = Item(id).command;
    command.elapsed_ns = elapsed_ns;
    router_.Applied(now_ns, command.key, state_.Apply(++index_, command), of_this_term, actions_);
  }

  uint64_t index_ = 0;
  StateMachine state_;
  RequestRouter router_{kSelf, state_, {}, 100};
  std::vector<Action> actions_;
};

TEST_F(RequestRouterTest, TheLeaderProposes) {
  router_.LeaderChanged(0, kSelf, actions_);
  router_.Receive(0, 0, Write(1), actions_);
  EXPECT_NE(Only<ProposeCommand>(), nullptr);
}

TEST_F(RequestRouterTest, AStandbyForwardsWithAgeAndOneHop) {
  router_.Receive(0, 0, Write(1), actions_);
  EXPECT_TRUE(actions_.empty()) << "held: there is no leader";
  router_.LeaderChanged(300 * kMillisecond, kOther, actions_);
  const auto* forward = Only<Forward>();
  ASSERT_NE(forward, nullptr);
  EXPECT_EQ(forward->to, kOther);
  EXPECT_EQ(forward->request.age_ns, 300 * kMillisecond);
  EXPECT_EQ(forward->request.hops, 1u);
}

TEST_F(RequestRouterTest, TheOtherNodesAnswerIsHandedOnOnce) {
  router_.LeaderChanged(0, kOther, actions_);
  router_.Receive(0, 0, Write(1), actions_);
  const uint64_t tag = std::get<Forward>(Take().at(0)).tag;
  Answer answer;
  answer.result.values = {"7"};
  router_.ForwardAnswered(0, tag + 1, kOther, answer, actions_);
  router_.ForwardAnswered(0, tag, raft::NodeId(3), answer, actions_);
  EXPECT_TRUE(actions_.empty()) << "of another request, or from somebody who was not asked";
  router_.ForwardAnswered(0, tag, kOther, answer, actions_);
  router_.ForwardAnswered(0, tag, kOther, answer, actions_);
  ASSERT_NE(Only<Answer>(), nullptr);
  EXPECT_EQ(Only<Answer>()->reply_to.request, 1u);
  EXPECT_EQ(Only<Answer>()->result.values[0], "7");
}

TEST_F(RequestRouterTest, WhatTheOtherNodeCouldNotDoIsHeldForTheNextLeader) {
  router_.LeaderChanged(0, kOther, actions_);
  router_.Receive(0, 0, Write(1), actions_);
  const uint64_t tag = std::get<Forward>(Take().at(0)).tag;
  Answer answer;
  answer.kind = Answer::Kind::kNotLeader;
  router_.ForwardAnswered(10 * kMillisecond, tag, kOther, answer, actions_);
  EXPECT_TRUE(actions_.empty());
  router_.LeaderChanged(20 * kMillisecond, kSelf, actions_);
  EXPECT_NE(Only<ProposeCommand>(), nullptr);
}

// Its clock has stood, and what it applies next was committed meanwhile: in one step or in many small ones.
TEST_F(RequestRouterTest, AfterAStandstillNothingWithoutASessionIsTakenForASecond) {
  constexpr uint64_t kSecond = 1000 * kMillisecond;
  for (const uint64_t step_ns : {6 * kSecond, 20 * kMillisecond}) {
    StateMachine state;
    RequestRouter router(kSelf, state, {}, 100);
    const auto pass = [&](uint64_t now_ns, uint64_t elapsed_ns) {
      const Command tick{.key = {.kind = CommandKind::kTick}, .elapsed_ns = elapsed_ns};
      router.Applied(now_ns, tick.key, state.Apply(++index_, tick), false, actions_);
    };
    const auto is_taken = [&](uint64_t now_ns, Request request) {
      actions_.clear();
      router.Receive(now_ns, now_ns, std::move(request), actions_);
      return Only<Forward>() != nullptr;
    };
    router.LeaderChanged(10 * kSecond, kOther, actions_);
    uint64_t id = 0;
    // It starts, and applies what was committed before.
    pass(9 * kSecond, 100 * kSecond);
    pass(9 * kSecond, 100 * kSecond);
    EXPECT_TRUE(is_taken(9 * kSecond, Item(++id))) << "a log that is caught up with is no standstill";
    router.CaughtUp();
    // It runs: an idle minute that is told at its end, a follower that lags a little, a leader's election that
    // is not counted.
    pass(10 * kSecond, kSecond);
    pass(70 * kSecond, 60 * kSecond);
    pass(75 * kSecond, kSecond);
    pass(75 * kSecond, 400 * kMillisecond);
    EXPECT_TRUE(is_taken(75 * kSecond, Item(++id)));
    EXPECT_EQ(router.counters().standstills, 0u);
    const uint64_t on_ns = 75 * kSecond + 1;
    for (uint64_t passed_ns = 0; passed_ns < 6 * kSecond; passed_ns += step_ns) pass(on_ns, step_ns);
    EXPECT_FALSE(is_taken(on_ns, Item(++id)));
    ASSERT_NE(Only<Answer>(), nullptr);
    EXPECT_EQ(Only<Answer>()->kind, Answer::Kind::kNotLeader);
    EXPECT_FALSE(is_taken(on_ns + 999 * kMillisecond, Item(++id)));
    EXPECT_TRUE(is_taken(on_ns + kSecond, Item(++id)));
    EXPECT_EQ(router.counters().standstills, 1u);
    EXPECT_EQ(router.counters().after_standstill, 2u);
    // The clocks run alike again: what once was between them is no second standstill.
    for (uint64_t passed_ns = 2 * kSecond; passed_ns < 6 * kSecond; passed_ns += 500 * kMillisecond)
      pass(on_ns + passed_ns, 500 * kMillisecond);
    EXPECT_TRUE(is_taken(on_ns + 6 * kSecond, Item(++id)));
    // What has a session needs no clock; and another node's is judged there.
    router.StoodStill(100 * kSecond);
    EXPECT_TRUE(is_taken(100 * kSecond, Write(1)));
    EXPECT_FALSE(is_taken(100 * kSecond, Item(++id)));
    router.LeaderChanged(100 * kSecond, kSelf, actions_);
    Request forwarded = Item(++id);
    forwarded.hops = 1;
    actions_.clear();
    router.Receive(100 * kSecond, 100 * kSecond, forwarded, actions_);
    EXPECT_NE(Only<ProposeCommand>(), nullptr);
  }
}

TEST_F(RequestRouterTest, ARequestWithoutASessionSaysWhatWasAppliedWhenItCame) {
  constexpr uint64_t kSecond = 1000 * kMillisecond;
  router_.LeaderChanged(50 * kSecond, kOther, actions_);
  ApplyItem(50 * kSecond, 1, 10 * kSecond);
  router_.Receive(52 * kSecond, 51 * kSecond, Item(2), actions_);
  ASSERT_NE(Only<Forward>(), nullptr);
  EXPECT_EQ(Only<Forward>()->request.command.came_ns, 9 * kSecond) << "less what it waited in the socket";
  // The leader proposes it as its youngest copy came.
  router_.LeaderChanged(52 * kSecond, kSelf, actions_);
  Request copy = Item(2);
  copy.hops = 1;
  copy.command.came_ns = 10 * kSecond - 1;
  router_.Receive(52 * kSecond, 52 * kSecond, copy, actions_);
  EXPECT_EQ(router_.MayBeProposed(52 * kSecond, copy.command.key, actions_).came_ns, 10 * kSecond - 1);
}

TEST_F(RequestRouterTest, AForwardedRequestIsNotForwardedAgain) {
  router_.LeaderChanged(0, kOther, actions_);
  Request request = Write(1);
  request.hops = 1;
  router_.Receive(0, 0, request, actions_);
  ASSERT_NE(Only<Answer>(), nullptr);
  EXPECT_EQ(Only<Answer>()->kind, Answer::Kind::kNotLeader);
  EXPECT_EQ(Only<Answer>()->leader_hint, kOther);
}

TEST_F(RequestRouterTest, ItIsHeldForASecondAtMost) {
  router_.Receive(0, 0, Write(1), actions_);
  router_.Tick(999 * kMillisecond, actions_);
  EXPECT_TRUE(actions_.empty());
  router_.Tick(1000 * kMillisecond, actions_);
  ASSERT_NE(Only<Answer>(), nullptr);
  EXPECT_EQ(Only<Answer>()->kind, Answer::Kind::kNotLeader);
}

TEST_F(RequestRouterTest, ItIsHeldNoLongerThanItsClientWaits) {
  router_.Receive(0, 0, Write(1, 100), actions_);
  EXPECT_EQ(router_.next_deadline_ns(), 100 * kMillisecond);
}

TEST_F(RequestRouterTest, TheLeaderRefusesACopyThatIsTooOld) {
  router_.LeaderChanged(0, kSelf, actions_);
  Request request = Write(1);
  request.hops = 1;
  request.age_ns = 1600 * kMillisecond;
  router_.Receive(0, 0, request, actions_);
  ASSERT_NE(Only<Answer>(), nullptr);
  EXPECT_EQ(Only<Answer>()->kind, Answer::Kind::kNotLeader);
}

TEST_F(RequestRouterTest, TimeInAStoppedNodesSocketCounts) {
  router_.LeaderChanged(0, kSelf, actions_);
  router_.Receive(3000 * kMillisecond, 0, Write(1), actions_);
  EXPECT_EQ(Only<ProposeCommand>(), nullptr);
}

TEST_F(RequestRouterTest, WhateverNodeAppliesAnswersWhoWaitsThere) {
  router_.LeaderChanged(0, kOther, actions_);
  router_.Receive(0, 0, Write(1), actions_);
  router_.Receive(0, 0, Write(1), actions_);
  Take();
  router_.Applied(0, Write(1).command.key, {.code = ResultCode::kOk, .session = 0, .values = {"1"}}, false, actions_);
  ASSERT_EQ(actions_.size(), 2u);
  EXPECT_EQ(std::get<Answer>(actions_[0]).result.values[0], "1");
  EXPECT_EQ(router_.waiting(), 0u);
}

TEST_F(RequestRouterTest, WhatIsAppliedAlreadyIsAnsweredFromTheTable) {
  state_.Apply(1, {.key = {.kind = CommandKind::kOpen, .a = 9}, .session = {.id = 1}});
  Command command = Write(1).command;
  state_.Apply(2, command);
  router_.Receive(0, 0, Write(1), actions_);
  ASSERT_NE(Only<Answer>(), nullptr);
  EXPECT_EQ(Only<Answer>()->kind, Answer::Kind::kResult);
}

TEST_F(RequestRouterTest, ANewLeaderGetsWhatTheFormerOneHad) {
  router_.LeaderChanged(0, kOther, actions_);
  router_.Receive(0, 0, Write(1), actions_);
  Take();
  router_.LeaderChanged(100 * kMillisecond, raft::NodeId(), actions_);
  EXPECT_TRUE(actions_.empty());
  router_.LeaderChanged(200 * kMillisecond, kSelf, actions_);
  EXPECT_NE(Only<ProposeCommand>(), nullptr);
}

TEST_F(RequestRouterTest, WhatWaitsIsHandedToANewLeaderLittleByLittle) {
  RouterOptions options;
  options.forwards_max = 2;
  RequestRouter router(kSelf, state_, options, 100);
  for (uint64_t seq = 1; seq <= 5; ++seq) router.Receive(0, 0, Write(seq), actions_);
  router.LeaderChanged(0, kOther, actions_);
  std::vector<Action> first = Take();
  ASSERT_EQ(first.size(), 2u);
  router.ForwardAnswered(1, std::get<Forward>(first[0]).tag, kOther, Answer{}, actions_);
  ASSERT_EQ(actions_.size(), 2u) << "an answer, and the next one";
  EXPECT_EQ(std::get<Forward>(actions_[1]).request.command.key.b, 3u);
  Take();
  EXPECT_EQ(router.next_deadline_ns(), options.forward_slot_ns);
  router.Tick(options.forward_slot_ns + 1, actions_);
  EXPECT_EQ(Take().size(), 2u) << "what is not answered may be lost";
  EXPECT_EQ(router.counters().forwards_queued, 3u);
  router.LeaderChanged(options.forward_slot_ns + 2, kOther, actions_);
  EXPECT_EQ(Take().size(), 2u) << "another term's is another's";
}

TEST_F(RequestRouterTest, WhatWaitsForRoomInTheLogIsRefusedAsOverload) {
  router_.LeaderChanged(0, kSelf, actions_);
  router_.Receive(0, 0, Write(1), actions_);
  Take();
  router_.Queued(Write(1).command.key);
  router_.Tick(999 * kMillisecond, actions_);
  EXPECT_TRUE(actions_.empty());
  router_.Tick(1000 * kMillisecond, actions_);
  ASSERT_NE(Only<Answer>(), nullptr);
  EXPECT_EQ(Only<Answer>()->result.code, ResultCode::kOverloaded);
  EXPECT_EQ(router_.MayBeProposed(1001 * kMillisecond, Write(1).command.key, actions_).command, nullptr);
}

TEST_F(RequestRouterTest, OfWhatMayStandInAFormerLogNobodySaysThatNothingWasDone) {
  router_.LeaderChanged(0, kSelf, actions_);
  router_.Receive(0, 0, Write(1), actions_);
  ASSERT_NE(router_.MayBeProposed(0, Write(1).command.key, actions_).command, nullptr);
  router_.LeaderChanged(0, raft::NodeId(), actions_);
  router_.LeaderChanged(0, kSelf, actions_);
  Take();
  router_.Queued(Write(1).command.key);
  router_.Tick(1000 * kMillisecond, actions_);
  ASSERT_NE(Only<Answer>(), nullptr);
  EXPECT_EQ(Only<Answer>()->kind, Answer::Kind::kNotLeader);
}

TEST_F(RequestRouterTest, WhoHandsOverTooLongSaysThatItDoesNotLead) {
  router_.LeaderChanged(0, kSelf, actions_);
  router_.Receive(0, 0, Write(1), actions_);
  Take();
  router_.HandsOver(true);
  router_.Queued(Write(1).command.key);
  router_.Tick(1000 * kMillisecond, actions_);
  ASSERT_NE(Only<Answer>(), nullptr);
  EXPECT_EQ(Only<Answer>()->kind, Answer::Kind::kNotLeader) << "another node may be asked";
}

TEST_F(RequestRouterTest, EveryCopyThatWaitsForRoomIsToldSoAndNoneIsLeftWithoutAWord) {
  router_.LeaderChanged(0, kSelf, actions_);
  router_.Receive(0, 0, Write(1), actions_);
  router_.Receive(0, 0, Write(1), actions_);
  ASSERT_EQ(Take().size(), 1u) << "proposed once";
  router_.Queued(Write(1).command.key);
  router_.Receive(300 * kMillisecond, 300 * kMillisecond, Write(1), actions_);
  EXPECT_TRUE(Take().empty());
  router_.Tick(1000 * kMillisecond, actions_);
  EXPECT_EQ(Take().size(), 2u);
  router_.Tick(1300 * kMillisecond, actions_);
  ASSERT_NE(Only<Answer>(), nullptr) << "a second after it came, like the others";
  EXPECT_EQ(Only<Answer>()->result.code, ResultCode::kOverloaded);
  EXPECT_EQ(router_.waiting(), 0u);
}

TEST_F(RequestRouterTest, WhatWaitsIsBoundedInBytes) {
  RouterOptions options;
  options.waiting_max_bytes = 200'000;
  RequestRouter router(kSelf, state_, options, 100);
  for (uint64_t id = 1; id <= 4; ++id) {
    Request request = Item(id);
    request.command.item.value = std::string(60'000, 'v');
    router.Receive(0, 0, request, actions_);
  }
  EXPECT_EQ(router.waiting(), 3u);
  EXPECT_GT(router.waiting_bytes(), 180'000u);
  ASSERT_NE(Only<Answer>(), nullptr);
  EXPECT_EQ(Only<Answer>()->result.code, ResultCode::kOverloaded);
  Take();
  router.Tick(2000 * kMillisecond, actions_);
  EXPECT_EQ(router.waiting_bytes(), 0u);
}

// The network has doubled the datagram of a client that sends it once.
TEST_F(RequestRouterTest, ACopyThatDoesNotFitDoesNotSayThatNothingWasDoneByTheOneThatWaits) {
  RouterOptions options;
  options.waiting_max = 1;
  RequestRouter router(kSelf, state_, options, 100);
  router.LeaderChanged(0, kSelf, actions_);
  router.Receive(0, 0, Write(1), actions_);
  EXPECT_NE(Only<ProposeCommand>(), nullptr);
  Take();
  router.Receive(0, 0, Write(1), actions_);
  EXPECT_TRUE(Take().empty());
  router.Receive(0, 0, Write(2), actions_);
  ASSERT_NE(Only<Answer>(), nullptr);
  EXPECT_EQ(Only<Answer>()->result.code, ResultCode::kOverloaded);
  EXPECT_EQ(router.counters().overloaded, 2u);
}

TEST_F(RequestRouterTest, AFewBytesThatAskForMuchTakeNoMemory) {
  RouterOptions options;
  options.items_max_bytes = 100'000;
  options.items_at_once_max_bytes = 150'000;
  RequestRouter router(kSelf, state_, options, 100);
  Command large = Item(1).command;
  large.item.value = std::string(60'000, 'v');
  state_.Apply(++index_, large);
  const auto read = [&](size_t times) {
    Request request;
    request.item_keys.assign(times, "k1");
    request.timeout_ns = 2000 * kMillisecond;
    router.Receive(0, 0, request, actions_);
    const uint64_t tag = std::get<StartRead>(Take().at(0)).tag;
    router.ReadReady(tag, actions_);
    return std::get<Answer>(Take().at(0));
  };
  const Answer hundredfold = read(100);
  EXPECT_EQ(hundredfold.kind, Answer::Kind::kResult);
  EXPECT_EQ(hundredfold.result.code, ResultCode::kTooLarge);
  EXPECT_TRUE(hundredfold.items.empty());
  EXPECT_EQ(read(1).items.size(), 1u);
  EXPECT_EQ(read(1).items.size(), 1u);
  EXPECT_EQ(read(1).result.code, ResultCode::kOverloaded) << "a third in one go";
  router.BeginAnswers();
  EXPECT_EQ(read(1).items.size(), 1u);
}

TEST_F(RequestRouterTest, AllCopiesOfARefusedProposalAreTold) {
  router_.LeaderChanged(0, kSelf, actions_);
  router_.Receive(0, 0, Write(1), actions_);
  router_.Receive(0, 0, Write(1), actions_);
  ASSERT_EQ(Take().size(), 1u);
  ASSERT_NE(router_.MayBeProposed(0, Write(1).command.key, actions_).command, nullptr);
  router_.ProposalRefused(0, Write(1).command.key, raft::RefusalReason::kOverloaded, actions_);
  EXPECT_EQ(actions_.size(), 2u);
  EXPECT_EQ(router_.waiting(), 0u);
}

TEST_F(RequestRouterTest, ACopyThatGrewTooOldInTheQueueIsNotProposed) {
  router_.LeaderChanged(0, kSelf, actions_);
  router_.Receive(0, 0, Write(1), actions_);
  Take();
  EXPECT_EQ(router_.MayBeProposed(1600 * kMillisecond, Write(1).command.key, actions_).command, nullptr);
  EXPECT_NE(Only<Answer>(), nullptr);
}

// Its own table may not yet have what superseded the request, if it leads for a moment only, or no more.
TEST_F(RequestRouterTest, TheLeaderAsksTheLogAboutAMemcachedCopyThatItsTableKnows) {
  router_.LeaderChanged(0, kSelf, actions_);
  ApplyItem(1000 * kMillisecond, 1);
  router_.Receive(1000 * kMillisecond, 1000 * kMillisecond, Item(1), actions_);
  EXPECT_NE(Only<ProposeCommand>(), nullptr);
}

// A former leader's entry of the same id: the client may have sent another request since, whose entry is behind that
// one.
TEST_F(RequestRouterTest, AMemcachedRequestIsAnsweredByNoEntryOfAFormerLeader) {
  router_.LeaderChanged(0, kSelf, actions_);
  router_.Receive(0, 0, Item(1), actions_);
  ASSERT_NE(router_.MayBeProposed(0, Item(1).command.key, actions_).command, nullptr);
  Take();
  ApplyItem(1, 1, 0, /*of_this_term=*/false);
  EXPECT_TRUE(actions_.empty());
  ApplyItem(2, 1);
  EXPECT_NE(Only<Answer>(), nullptr);
}

TEST_F(RequestRouterTest, TheYoungestCopySaysHowOldARequestIs) {
  router_.LeaderChanged(0, kSelf, actions_);
  Request late = Item(1);
  late.hops = 1;
  late.age_ns = 700 * kMillisecond;
  router_.Receive(0, 0, late, actions_);
  router_.Receive(100 * kMillisecond, 100 * kMillisecond, Item(1), actions_);
  const RequestRouter::Wanted wanted = router_.MayBeProposed(150 * kMillisecond, Item(1).command.key, actions_);
  ASSERT_NE(wanted.command, nullptr);
  EXPECT_EQ(wanted.age_ns, 50 * kMillisecond);
}

// An answer under its id would be taken for the other request's.
TEST_F(RequestRouterTest, ALateCopyOfASupersededRequestIsCountedAndNotAnswered) {
  router_.LeaderChanged(0, kSelf, actions_);
  router_.Receive(0, 0, Item(1), actions_);
  ASSERT_NE(router_.MayBeProposed(0, Item(1).command.key, actions_).command, nullptr);
  Take();
  router_.Applied(1, Item(1).command.key, {.code = ResultCode::kSuperseded, .session = 0, .values = {}}, true,
                  actions_);
  EXPECT_TRUE(actions_.empty());
  EXPECT_EQ(router_.waiting(), 0u);
  EXPECT_EQ(router_.counters().superseded, 1u);
}

TEST_F(RequestRouterTest, AStandbyAsksTheLeaderSinceIdsAreUsedAgain) {
  router_.LeaderChanged(0, kOther, actions_);
  ApplyItem(1000 * kMillisecond, 1);
  router_.Receive(1000 * kMillisecond, 1000 * kMillisecond, Item(1), actions_);
  ASSERT_NE(Only<Forward>(), nullptr);
  const uint64_t tag = Only<Forward>()->tag;
  Take();
  ApplyItem(1001 * kMillisecond, 1);
  EXPECT_TRUE(actions_.empty()) << "it lags, and this may have been done long ago under the same id";
  Answer answer;
  answer.result.code = ResultCode::kNotStored;
  router_.ForwardAnswered(1002 * kMillisecond, tag, kOther, answer, actions_);
  ASSERT_NE(Only<Answer>(), nullptr);
  EXPECT_EQ(Only<Answer>()->result.code, ResultCode::kNotStored);
}

TEST_F(RequestRouterTest, AMemcachedRequestThatItProposedIsAnsweredOnceItIsApplied) {
  router_.LeaderChanged(0, kSelf, actions_);
  router_.Receive(0, 0, Item(1), actions_);
  router_.Receive(0, 0, Item(1), actions_);
  EXPECT_EQ(Take().size(), 1u) << "proposed once";
  ApplyItem(1 * kMillisecond, 1);
  EXPECT_EQ(actions_.size(), 2u) << "and answered twice";
}

// Its client may repeat it for a minute and no longer, and must know whether it may write something else instead.
TEST_F(RequestRouterTest, AWriteWithoutASessionThatMayStandInSomeLogIsNotRefused) {
  Request write = Write(1, 3000);
  write.command.key = {.kind = CommandKind::kWindowed, .a = 9};
  router_.LeaderChanged(0, kSelf, actions_);
  router_.Receive(0, 0, write, actions_);
  ASSERT_NE(router_.MayBeProposed(0, write.command.key, actions_).command, nullptr);
  Take();
  router_.LeaderChanged(100 * kMillisecond, raft::NodeId(), actions_);
  router_.Tick(3000 * kMillisecond, actions_);
  EXPECT_TRUE(actions_.empty());
  EXPECT_EQ(router_.waiting(), 0u);
}

// "no leader" promises a memcached client that this copy did nothing.
TEST_F(RequestRouterTest, AMemcachedCopyThatMayStandInSomeLogIsNotRefused) {
  router_.LeaderChanged(0, kSelf, actions_);
  router_.Receive(0, 0, Item(1), actions_);
  router_.MayBeProposed(0, Item(1).command.key, actions_);
  Take();
  router_.LeaderChanged(100 * kMillisecond, raft::NodeId(), actions_);
  router_.Receive(100 * kMillisecond, 100 * kMillisecond, Item(2), actions_);
  router_.Tick(2000 * kMillisecond, actions_);
  ASSERT_NE(Only<Answer>(), nullptr);
  EXPECT_EQ(Only<Answer>()->reply_to.request, 2u) << "nobody has seen that one";
  EXPECT_EQ(Only<Answer>()->kind, Answer::Kind::kNotLeader);
  EXPECT_EQ(router_.waiting(), 0u);
}

TEST_F(RequestRouterTest, ANodeThatForwardedAMemcachedCopyIsTold) {
  router_.LeaderChanged(0, kSelf, actions_);
  Request forwarded = Item(1);
  forwarded.hops = 1;
  router_.Receive(0, 0, forwarded, actions_);
  router_.MayBeProposed(0, Item(1).command.key, actions_);
  Take();
  router_.LeaderChanged(100 * kMillisecond, raft::NodeId(), actions_);
  router_.Tick(2000 * kMillisecond, actions_);
  EXPECT_NE(Only<Answer>(), nullptr) << "it judges for itself";
}

// Anybody can send one datagram ten thousand times while nobody leads.
TEST_F(RequestRouterTest, ManyCopiesOfOneWriteDoNotHoldUpANewLeader) {
  constexpr int kCopies = 16'000;
  for (int i = 0; i < kCopies; ++i) router_.Receive(0, 0, Write(1), actions_);
  ASSERT_EQ(router_.waiting(), size_t{kCopies});
  const auto begin = std::chrono::steady_clock::now();
  router_.LeaderChanged(1, kSelf, actions_);
  EXPECT_NE(Only<ProposeCommand>(), nullptr);
  router_.Applied(2, Write(1).command.key, Result(), true, actions_);
  EXPECT_EQ(router_.waiting(), 0u);
  // With each looked for among all others it took 13 s.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

TEST_F(RequestRouterTest, WritesThatComeToNothingAreCountedUntilOneIsDone) {
  const uint64_t second = 1000 * kMillisecond;
  router_.Receive(0, 0, Write(1), actions_);
  router_.Tick(second, actions_);  // held for a leader, and refused
  router_.LeaderChanged(second, kOther, actions_);
  router_.Receive(second, second, Write(2, 1000), actions_);
  router_.Tick(3 * second, actions_);  // forwarded, and not answered in its client's time
  EXPECT_EQ(router_.failing().writes, 2u);
  EXPECT_EQ(router_.failing().since_ns, second);
  EXPECT_EQ(router_.failing().last_ns, 3 * second);
  Take();
  router_.Receive(3 * second, 3 * second, Write(3), actions_);
  Answer full;
  full.result.code = ResultCode::kOverloaded;
  router_.ForwardAnswered(4 * second, std::get<Forward>(Take().at(0)).tag, kOther, full, actions_);
  EXPECT_EQ(router_.failing().writes, 3u) << "refused for want of room in the tables";
  Request forwarded = Write(4);
  forwarded.hops = 1;
  router_.Receive(4 * second, 4 * second, forwarded, actions_);
  EXPECT_EQ(router_.failing().writes, 3u) << "the node that forwarded it counts it";
  Take();
  router_.Receive(4 * second, 4 * second, Write(5), actions_);
  router_.ForwardAnswered(5 * second, std::get<Forward>(Take().at(0)).tag, kOther, Answer(), actions_);
  EXPECT_EQ(router_.failing().writes, 0u);
}

TEST_F(RequestRouterTest, ItemsAreReadTogetherAndEndedOnesAreMissing) {
  ApplyItem(0, 1);
  ApplyItem(0, 2);
  Command brief = Item(3).command;
  brief.item.life_s = 1;
  state_.Apply(++index_, brief);
  ApplyItem(0, 4, 1000 * kMillisecond);
  Request read;
  read.reply_to = {.client = 0, .request = 9};
  read.item_keys = {"k2", "none", "k3", "k1"};
  read.timeout_ns = 2000 * kMillisecond;
  router_.Receive(0, 0, read, actions_);
  ASSERT_NE(Only<StartRead>(), nullptr);
  const uint64_t tag = Only<StartRead>()->tag;
  Take();
  router_.ReadReady(tag, actions_);
  ASSERT_NE(Only<Answer>(), nullptr);
  EXPECT_EQ(Only<Answer>()->kind, Answer::Kind::kItems);
  ASSERT_EQ(Only<Answer>()->items.size(), 2u);
  EXPECT_EQ(Only<Answer>()->items[0].first, "k2");
  EXPECT_EQ(Only<Answer>()->items[0].second.unique, 2u);
  EXPECT_EQ(Only<Answer>()->items[1].first, "k1");
}

TEST_F(RequestRouterTest, AReadWithoutALeaderIsRefusedAndNotForgotten) {
  Request items, key;
  items.item_keys = {"k"};
  key.read_key = "k";
  for (Request& read : std::array{items, key}) {
    read.timeout_ns = 2000 * kMillisecond;
    router_.Receive(0, 0, read, actions_);
    ASSERT_NE(Only<StartRead>(), nullptr);
    EXPECT_EQ(Only<StartRead>()->deadline_ns, 1000 * kMillisecond) << "it takes no place after that";
    Take();
    router_.Tick(999 * kMillisecond, actions_);
    EXPECT_TRUE(actions_.empty());
    router_.Tick(1000 * kMillisecond, actions_);
    ASSERT_NE(Only<Answer>(), nullptr);
    EXPECT_EQ(Only<Answer>()->kind, Answer::Kind::kNotLeader);
    EXPECT_EQ(router_.waiting(), 0u);
    Take();
  }
}

TEST_F(RequestRouterTest, AReadIsCountedAtItsPlacesUntilItIsAnsweredRefusedOrForgotten) {
  const auto counted = [this] { return std::array{router_.reads().all, size_t{router_.reads().at[7]}}; };
  const auto receive = [this](uint64_t timeout_ms) {
    Request read;
    read.read_key = "k";
    read.timeout_ns = timeout_ms * kMillisecond;
    read.counted_at = {7, 65'535};
    router_.Receive(0, 0, read, actions_);
    return std::get<StartRead>(Take().at(0)).tag;
  };
  router_.LeaderChanged(0, kOther, actions_);
  const uint64_t answered = receive(60'000);
  const uint64_t refused = receive(60'000);
  receive(60'000);  // its client gives up
  receive(500);     // the same
  router_.LeaderChanged(0, raft::NodeId(), actions_);
  receive(60'000);  // refused after a second
  EXPECT_THAT(counted(), testing::ElementsAre(5, 5));
  router_.ReadReady(answered, actions_);
  router_.ReadRefused(refused, actions_);
  EXPECT_THAT(counted(), testing::ElementsAre(3, 3));
  router_.Tick(1000 * kMillisecond, actions_);
  EXPECT_THAT(counted(), testing::ElementsAre(1, 1)) << "one taken under a leader waits as long as its client does";
  router_.Tick(60'000 * kMillisecond, actions_);
  EXPECT_THAT(counted(), testing::ElementsAre(0, 0));
  EXPECT_EQ(router_.reads().at[65'535], 0u);
}

TEST_F(RequestRouterTest, AReadWhoseClientHasGivenUpIsForgotten) {
  Request read;
  read.read_key = "k";
  read.timeout_ns = 500 * kMillisecond;
  router_.Receive(0, 0, read, actions_);
  Take();
  router_.Tick(500 * kMillisecond, actions_);
  EXPECT_TRUE(actions_.empty());
  EXPECT_EQ(router_.waiting(), 0u);
}

}  // namespace
}  // namespace hedgerow::kv
