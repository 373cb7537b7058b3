// SPDX-License-Identifier: Apache-2.0
//
// Reads that no leader confirms: a majority says where its logs end (docs/SAFETY.md, R8).
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/raft/testing/membership_testing.h"

namespace hedgerow::raft {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class MajorityReads : public testing::Test {
 protected:
  // Node 1 leads, and each node has applied "a".
  void Start(uint64_t nodes) {
    cluster_ = std::make_unique<TestCluster>(nodes);
    cluster_->Elect(1);
    cluster_->Propose(1, "a");
    cluster_->Deliver();
    cluster_->HeartbeatRounds(1, 2);
    reads_ = std::make_unique<ReadLog>(*cluster_);
  }
  ~MajorityReads() override { EXPECT_THAT(cluster_->violation(), IsEmpty()); }

  // The leader is asked, and then all members.
  uint64_t AskAll(uint64_t reader) {
    cluster_->Step(reader, Read{.tag = ++tag_, .deadline_ns = UINT64_MAX});
    cluster_->DropAll();
    cluster_->TickAtDeadline(reader);
    return tag_;
  }
  // How long the leader is asked alone.
  uint64_t LeaderWait_ns() {
    const uint64_t began_ns = cluster_->now_ns();
    AskAll(3);
    cluster_->Deliver();
    return cluster_->now_ns() - began_ns;
  }
  Message AnswerOf(uint64_t member, uint64_t reader) {
    for (const Message& message : cluster_->network()) {
      if (message.from == NodeId(member) && std::holds_alternative<LastEntry>(message.body)) return message;
    }
    ADD_FAILURE() << member << " has not answered " << reader;
    return {};
  }

  Message QuestionOf(uint64_t reader) {
    for (const Message& message : cluster_->network()) {
      if (message.from == NodeId(reader) && std::holds_alternative<ReadIndexRequest>(message.body)) return message;
    }
    ADD_FAILURE() << reader << " has not asked";
    return {.body = ReadIndexRequest{}};
  }

  std::unique_ptr<TestCluster> cluster_;
  std::unique_ptr<ReadLog> reads_;
  uint64_t tag_ = 1000;
};

TEST_F(MajorityReads, AFollowerDoesWithoutALeaderThatDoesNotAnswer) {
  Start(3);
  cluster_->Crash(1);
  const uint64_t began_ns = cluster_->now_ns();
  const uint64_t tag = AskAll(3);
  EXPECT_EQ(cluster_->now_ns() - began_ns, Options().read_leader_ns);
  cluster_->Deliver();
  EXPECT_THAT(reads_->ready, ElementsAre(tag));
  const uint64_t next = cluster_->Read(3);
  cluster_->Deliver();
  EXPECT_THAT(reads_->ready, ElementsAre(tag, next)) << "the next one asks all members at once";
}

TEST_F(MajorityReads, ALeaderThatAnswersIsAskedAlone) {
  Start(3);
  AskAll(3);
  cluster_->Deliver();
  cluster_->Read(3);
  ASSERT_EQ(cluster_->network().size(), 1u);
  EXPECT_EQ(cluster_->network().front().to, NodeId(1));
}

TEST_F(MajorityReads, AMinorityIsNotEnough) {
  Start(5);
  for (const uint64_t gone : {1, 4, 5}) cluster_->Crash(gone);
  AskAll(3);
  cluster_->Deliver();
  EXPECT_THAT(reads_->ready, IsEmpty());
  EXPECT_THAT(reads_->tail, IsEmpty());
  cluster_->Restart(5);
  cluster_->TickAtDeadline(3);
  cluster_->Deliver();
  EXPECT_EQ(reads_->ready.size(), 1u);
}

TEST_F(MajorityReads, ALearnerDoesNotCount) {
  Start(3);
  cluster_->Join(4);
  cluster_->Change(1, {Add(4)});
  cluster_->Deliver();
  cluster_->HeartbeatRounds(1, 5);
  for (const uint64_t gone : {1, 2}) cluster_->Crash(gone);
  AskAll(3);
  cluster_->Deliver();
  EXPECT_THAT(reads_->ready, IsEmpty());
  AskAll(4);
  cluster_->Restart(2);
  for (const uint64_t reader : {3, 4}) cluster_->TickAtDeadline(reader);
  cluster_->Deliver();
  EXPECT_EQ(reads_->ready.size(), 2u) << "it may ask";
}

// It may be committed: the reader does not know.
TEST_F(MajorityReads, WhatTheReadersOwnLogHoldsBeyondWhatItHasAppliedMatters) {
  Start(3);
  cluster_->Propose(1, "b");
  for (const uint64_t id : {2, 3}) cluster_->DeliverOnce(1, id);
  cluster_->Crash(1);
  const uint64_t tag = AskAll(3);
  cluster_->Deliver();
  EXPECT_THAT(reads_->ready, IsEmpty());
  ASSERT_EQ(reads_->tail.size(), 1u);
  EXPECT_EQ(reads_->tail[0].tag, tag);
  EXPECT_EQ(reads_->tail[0].up_to, (EntryId{.index = LogIndex(3), .term = Term(1)}));
  cluster_->Step(3, Read{.tag = tag, .deadline_ns = UINT64_MAX, .up_to = reads_->tail[0].up_to});
  EXPECT_THAT(reads_->ready, IsEmpty());
  cluster_->Elect(2);
  cluster_->HeartbeatRounds(2, 2);
  EXPECT_THAT(reads_->ready, ElementsAre(tag));
}

TEST_F(MajorityReads, WhatAnotherLogHoldsIsWaitedFor) {
  Start(3);
  cluster_->Propose(1, "b");
  cluster_->DeliverOnce(1, 2);
  cluster_->Exchange(2, 1);
  ASSERT_THAT(cluster_->Applied(1), ElementsAre("a", "b")) << "and may have been read there";
  cluster_->Crash(1);
  cluster_->DropAll();
  const uint64_t tag = AskAll(3);
  cluster_->Deliver();
  EXPECT_THAT(reads_->ready, IsEmpty());
  EXPECT_THAT(reads_->tail, IsEmpty());
  cluster_->Elect(2);
  cluster_->HeartbeatRounds(2, 2);
  EXPECT_THAT(reads_->ready, ElementsAre(tag));
  EXPECT_THAT(cluster_->Applied(3), ElementsAre("a", "b"));
}

// Three entries that only node 2 has besides the leader, and that the next leader's no-op replaces.
TEST_F(MajorityReads, ATailThatIsOverwrittenEndsTheWait) {
  Start(5);
  for (const char* lost : {"x", "y", "z"}) cluster_->Propose(1, lost);
  cluster_->DeliverOnce(1, 2);
  cluster_->DropAll();
  cluster_->Crash(1);
  const uint64_t tag = AskAll(3);
  cluster_->Deliver();
  ASSERT_THAT(reads_->ready, IsEmpty());
  cluster_->Crash(2);
  cluster_->Elect(3);
  cluster_->HeartbeatRounds(3, 2);
  EXPECT_EQ(cluster_->At(3).applied(), LogIndex(3)) << "before the end of node 2's log";
  EXPECT_THAT(reads_->ready, ElementsAre(tag));
}

TEST_F(MajorityReads, AnAnswerUnderAnotherConfigurationDoesNotCount) {
  Start(3);
  cluster_->Crash(1);
  AskAll(3);
  cluster_->DeliverOnce(3, 2);
  Message answer = AnswerOf(2, 3);
  cluster_->DropAll();
  ++answer.config_epoch;
  cluster_->Inject(answer);
  cluster_->Deliver();
  EXPECT_THAT(reads_->ready, IsEmpty());
  --answer.config_epoch;
  cluster_->Inject(answer);
  cluster_->Deliver();
  EXPECT_EQ(reads_->ready.size(), 1u);
}

// Its majorities need not meet those of the configuration that is committed in its place.
TEST_F(MajorityReads, AConfigurationThatMayBeGoneBackFromConfirmsNothing) {
  Start(3);
  cluster_->Join(4);
  cluster_->Change(1, {Add(4)});
  for (const uint64_t id : {2, 3}) cluster_->DeliverOnce(1, id);
  cluster_->DropAll();
  cluster_->Crash(1);
  AskAll(3);
  const Message question = QuestionOf(3);
  cluster_->Inject({.from = NodeId(2),
                    .to = NodeId(3),
                    .term = question.term,
                    .config_epoch = question.config_epoch,
                    .body = LastEntry{.id = std::get<ReadIndexRequest>(question.body).id,
                                      .last = {.index = cluster_->At(2).log().last_index(), .term = Term(1)}}});
  cluster_->Deliver();
  EXPECT_THAT(reads_->ready, IsEmpty());
  EXPECT_THAT(reads_->tail, IsEmpty());
  cluster_->Elect(2);
  cluster_->HeartbeatRounds(2, 3);
  EXPECT_EQ(reads_->ready.size(), 1u);
}

TEST_F(MajorityReads, AnAnswerToAnEarlierQuestionDoesNotFit) {
  Start(3);
  cluster_->Crash(1);
  AskAll(3);
  cluster_->DeliverOnce(3, 2);
  const Message late = AnswerOf(2, 3);
  cluster_->DropAll();
  cluster_->Read(3);
  cluster_->TickAtDeadline(3);
  cluster_->DropAll();
  cluster_->Inject(late);
  cluster_->Deliver();
  EXPECT_THAT(reads_->ready, IsEmpty());
}

// As the candidate's request for votes does not (dissertation section 4.2.3).
TEST_F(MajorityReads, AQuestionOfANewerTermDisturbsNoLeaderAndNoFollower) {
  Start(3);
  AskAll(3);
  Message question = QuestionOf(3);
  cluster_->DropAll();
  question.term = question.term.Next();
  for (const uint64_t member : {1, 2}) {
    question.to = NodeId(member);
    cluster_->Inject(question);
  }
  cluster_->Deliver();
  EXPECT_EQ(cluster_->At(1).role(), Role::kLeader);
  for (const uint64_t member : {1, 2}) EXPECT_EQ(cluster_->At(member).term(), Term(1));
}

TEST_F(MajorityReads, ReadsThatWaitForTheNextQuestionAreAskedForWhenThoseOfTheLastExpire) {
  Start(3);
  cluster_->Step(3, Read{.tag = 1, .deadline_ns = cluster_->now_ns() + 1});
  cluster_->Step(3, Read{.tag = 2, .deadline_ns = UINT64_MAX});
  cluster_->DropAll();
  cluster_->Wait(1);
  cluster_->Tick(3);
  cluster_->Deliver();
  EXPECT_THAT(reads_->ready, ElementsAre(2));
}

TEST_F(MajorityReads, ALeaderIsGivenTwiceTheTimeThatItTakesOtherwise) {
  Start(3);
  const auto answered_after = [this](uint64_t delay_ns) {
    cluster_->Read(3);
    cluster_->Wait(delay_ns);
    cluster_->Deliver();
  };
  constexpr uint64_t kFar_ns = 3'000'000;
  for (int i = 0; i < 100; ++i) answered_after(kFar_ns);
  EXPECT_NEAR(static_cast<double>(LeaderWait_ns()), 2 * kFar_ns, kFar_ns / 10);
  for (int i = 0; i < 100; ++i) answered_after(50'000);
  answered_after(400'000'000);
  EXPECT_EQ(LeaderWait_ns(), Options().read_leader_ns) << "one stall teaches nothing";
}

// Node 2 and the reader are a majority, and quicker than the leader.
TEST_F(MajorityReads, HowLongALeaderTakesIsLearnedFromTheAnswerToALaterQuestionAndForgottenWithTheLeader) {
  Start(3);
  constexpr uint64_t kFar_ns = 3'000'000;
  for (int i = 0; i < 100; ++i) {
    const uint64_t answered_ns = cluster_->now_ns() + kFar_ns;
    cluster_->Read(3);
    if (cluster_->At(3).next_deadline_ns() < answered_ns) {
      cluster_->TickAtDeadline(3);
      cluster_->Exchange(3, 2);
      cluster_->Read(3);
      cluster_->Exchange(3, 2);
    }
    cluster_->Wait(answered_ns - cluster_->now_ns());
    cluster_->Read(1);  // a round is under way: the last question of node 3 waits for the next one
    cluster_->DeliverOnce(3, 1);
    cluster_->Deliver();
  }
  EXPECT_NEAR(static_cast<double>(LeaderWait_ns()), 2 * kFar_ns, kFar_ns / 10);
  cluster_->Elect(2);
  EXPECT_EQ(LeaderWait_ns(), Options().read_leader_ns);
}

// The leader has "b", as node 3 has, and no majority.
TEST_F(MajorityReads, TheLeadersLateAnswerEndsTheWaitForATail) {
  Start(3);
  cluster_->Propose(1, "b");
  cluster_->DeliverOnce(1, 3);
  cluster_->DropAll();
  const uint64_t first = AskAll(3);
  const ReadId first_question = std::get<ReadIndexRequest>(QuestionOf(3).body).id;
  const auto majority_answers = [this](uint64_t tag) {
    cluster_->Exchange(3, 2);
    ASSERT_EQ(reads_->tail.back().tag, tag);
    cluster_->Step(3, Read{.tag = tag, .deadline_ns = UINT64_MAX, .up_to = reads_->tail.back().up_to});
    cluster_->DropAll();
  };
  majority_answers(first);
  const uint64_t second = cluster_->Read(3);
  const Message second_question = QuestionOf(3);
  majority_answers(second);
  EXPECT_THAT(reads_->ready, IsEmpty());
  const auto leader_answers = [&](ReadId id) {
    cluster_->Inject({.from = NodeId(1),
                      .to = NodeId(3),
                      .term = Term(1),
                      .config_epoch = second_question.config_epoch,
                      .body = ReadIndexReply{.id = id, .index = LogIndex(2)}});
    cluster_->Deliver();
  };
  leader_answers(first_question);
  EXPECT_THAT(reads_->ready, ElementsAre(first)) << "the other read came after that question";
  leader_answers(std::get<ReadIndexRequest>(second_question.body).id);
  EXPECT_THAT(reads_->ready, ElementsAre(first, second));
  EXPECT_EQ(cluster_->At(3).commit(), LogIndex(2));
}

TEST(LeaderReads, OnlyTheLastQuestionOfEachFollowerWaits) {
  LeaderReads reads;
  for (const uint64_t number : {1, 2, 3}) {
    for (const uint64_t origin : {2, 3}) reads.Add({.origin = NodeId(origin), .local = {}, .id = {1, number}});
    reads.Add({.origin = {}, .local = {.tag = number}, .id = {}});
  }
  EXPECT_EQ(reads.size(), 5u) << "each of its own";
  reads.StartRound(1, LogIndex(7));
  for (const LedRead& read : reads.TakeConfirmed(1)) EXPECT_EQ(read.id.number, read.origin.IsSet() ? 3u : 0u);
}

}  // namespace
}  // namespace hedgerow::raft
