// SPDX-License-Identifier: Apache-2.0
//
// What the core makes of its kernel part's doings: named after the rules of docs/SAFETY.md and the sections
// that apply.
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/raft/check.h"
#include "cluster/raft/testing/test_cluster.h"

namespace hedgerow::raft {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint64_t kMillisecond = 1'000'000;

// A contradiction between the kernel part and the core is a fault of ours, and ends the process.
class KernelEvents : public testing::Test {
 protected:
  KernelEvents() {
    SetCheckFailureHandler([](const char*, int, const char* what) { throw std::logic_error(what); });
    cluster_.Elect(1);
    cluster_.Deliver();
    cluster_.Tick(1);
    cluster_.Deliver();
  }
  ~KernelEvents() override { SetCheckFailureHandler(nullptr); }

  KernelAppended Appended(uint64_t prev, std::vector<std::string> texts, uint64_t commit = 0) {
    const Raft& leader = cluster_.At(1);
    KernelAppended appended{.leader = NodeId(1), .term = leader.term(), .request = {}, .arrived_ns = cluster_.now_ns()};
    appended.request = {.prev_index = LogIndex(prev), .prev_term = leader.term(), .commit = LogIndex(commit)};
    for (std::string& text : texts) {
      appended.request.entries.push_back(
          {.term = leader.term(), .index = LogIndex(++prev), .payload = Payload(std::move(text))});
    }
    return appended;
  }

  TestCluster cluster_{3};
};

TEST_F(KernelEvents, R2_AppendedIsWrittenMatchedAndNotAnswered) {
  cluster_.Step(3, Appended(1, {"a", "b"}, 2));
  EXPECT_EQ(cluster_.At(3).log().last_index(), LogIndex(3));
  EXPECT_EQ(cluster_.At(3).matched(), LogIndex(3));
  EXPECT_EQ(cluster_.At(3).commit(), LogIndex(2));
  EXPECT_THAT(cluster_.Applied(3), ElementsAre("a"));
  EXPECT_THAT(cluster_.network(), IsEmpty());
}

TEST_F(KernelEvents, R2_ARecordThatIsReadAgainAfterARestartIsSkipped) {
  cluster_.Step(3, Appended(1, {"a", "b"}));
  cluster_.Crash(3);
  cluster_.Restart(3);
  cluster_.Step(3, Appended(1, {"a", "b"}));
  EXPECT_FALSE(cluster_.Last().persist.has_value());
  EXPECT_EQ(cluster_.At(3).leader(), NodeId(1)) << "it was this term's leader who sent it";
  cluster_.Step(3, Appended(2, {"b", "c"}));
  EXPECT_EQ(cluster_.At(3).log().last_index(), LogIndex(4));
}

TEST_F(KernelEvents, R1_AGapIsAFault) { EXPECT_THROW(cluster_.Step(3, Appended(2, {"b"})), std::logic_error); }

TEST_F(KernelEvents, R1_AnAppendOfATermThatIsOverIsAFault) {
  const KernelAppended late = Appended(1, {"a"});
  cluster_.Step(3, KernelVoted{.term = Term(9), .candidate = NodeId(2)});
  EXPECT_THROW(cluster_.Step(3, late), std::logic_error);
}

TEST_F(KernelEvents, R7_AVoteOfTheKernelIsTheNodes) {
  cluster_.HoldDisk(3);
  cluster_.Step(3, KernelVoted{.term = Term(5), .candidate = NodeId(2)});
  EXPECT_EQ(cluster_.At(3).term(), Term(5));
  EXPECT_EQ(cluster_.At(3).voted_for(), NodeId(2));
  EXPECT_FALSE(cluster_.At(3).leader().IsSet());
  cluster_.ReleaseDisk(3);
  cluster_.Crash(3);
  cluster_.Restart(3);
  EXPECT_EQ(cluster_.At(3).voted_for(), NodeId(2));
  cluster_.Inject({.from = NodeId(1),
                   .to = NodeId(3),
                   .term = Term(5),
                   .body = VoteRequest{.asked_term = Term(5), .last_index = LogIndex(9), .last_term = Term(4)}});
  cluster_.DeliverOnce(1, 3);
  EXPECT_FALSE(std::get<VoteReply>(cluster_.network().back().body).granted);
}

TEST_F(KernelEvents, R7_ASecondVoteInATermIsAFault) {
  cluster_.Step(3, KernelVoted{.term = Term(5), .candidate = NodeId(2)});
  EXPECT_THROW(cluster_.Step(3, KernelVoted{.term = Term(5), .candidate = NodeId(1)}), std::logic_error);
}

TEST_F(KernelEvents, HeardPutsTheElectionOff) {
  const uint64_t timeout_ns = cluster_.At(3).detector().timeout_ns();
  cluster_.Wait(timeout_ns - kMillisecond);
  const uint64_t heard_ns = cluster_.now_ns();
  cluster_.Wait(kMillisecond);
  const KernelHeard heard{.leader = NodeId(1),
                          .term = cluster_.At(3).term(),
                          .heard_ns = heard_ns,
                          .commit = LogIndex(1),
                          .election_timeout_ns = timeout_ns};
  cluster_.Step(3, heard);
  EXPECT_EQ(cluster_.At(3).election_deadline_ns(), heard_ns + timeout_ns) << "from when it was heard, not from now";
  cluster_.Step(3, heard);
  EXPECT_EQ(cluster_.At(3).election_deadline_ns(), heard_ns + timeout_ns) << "once";
  cluster_.Step(2, KernelHeard{.leader = NodeId(3), .term = heard.term, .heard_ns = heard_ns, .commit = LogIndex(1)});
  EXPECT_LT(cluster_.At(2).election_deadline_ns(), heard_ns + timeout_ns) << "not its leader";
}

TEST_F(KernelEvents, AStalledLeaderIsWaitedForALittleLonger) {
  const Raft& follower = cluster_.At(3);
  const uint64_t timeout_ns = follower.detector().timeout_ns();
  const uint64_t heard_ns = follower.detector().leader_heard_ns();
  const LeaderStalled hint{.leader = NodeId(1), .term = follower.term()};
  const auto would_vote = [&] {
    cluster_.Step(3, Receive{.message = {.from = NodeId(2),
                                         .to = NodeId(3),
                                         .term = follower.term(),
                                         .body = VoteRequest{.asked_term = follower.term().Next(),
                                                             .last_index = LogIndex(9),
                                                             .last_term = follower.term(),
                                                             .pre_vote = true}}});
    return std::get<VoteReply>(cluster_.network().back().body).granted;
  };
  cluster_.Wait(timeout_ns - kMillisecond);
  cluster_.Step(3, hint);
  EXPECT_GE(follower.election_deadline_ns(), cluster_.now_ns() + timeout_ns);
  EXPECT_LE(follower.election_deadline_ns(), cluster_.now_ns() + 2 * timeout_ns);
  EXPECT_EQ(follower.detector().leader_heard_ns(), heard_ns) << "it was not heard";
  cluster_.Wait(timeout_ns - kMillisecond);
  EXPECT_FALSE(would_vote());
  cluster_.Wait(kMillisecond);
  EXPECT_TRUE(would_vote());
}

TEST_F(KernelEvents, LatenessNeverShortensAWait) {
  const Raft& follower = cluster_.At(3);
  const uint64_t wait_ns = follower.election_deadline_ns() - follower.detector().leader_heard_ns();
  uint64_t listened_ns = follower.detector().leader_heard_ns();
  const auto report_stall = [&] {
    cluster_.Step(3, LeaderStalled{.leader = NodeId(1), .term = follower.term()});
    listened_ns = cluster_.now_ns();
  };
  for (int i = 0; i < 5; ++i) {
    cluster_.Wait(3 * kMillisecond);
    report_stall();
    EXPECT_EQ(follower.election_deadline_ns(), listened_ns + wait_ns) << i;
    EXPECT_EQ(follower.detector().stalled_by_ns(), listened_ns - follower.detector().leader_heard_ns());
  }
  // It has been heard since; its kernel's word of before comes afterwards.
  cluster_.Wait(kMillisecond);
  const uint64_t heard_ns = cluster_.now_ns();
  cluster_.Wait(kMillisecond);
  report_stall();
  cluster_.Step(3, KernelHeard{.leader = NodeId(1),
                               .term = follower.term(),
                               .heard_ns = heard_ns,
                               .commit = LogIndex(1),
                               .election_timeout_ns = follower.detector().timeout_ns()});
  EXPECT_EQ(follower.detector().stalled_by_ns(), listened_ns - heard_ns);
  EXPECT_GE(follower.election_deadline_ns(), listened_ns + follower.detector().timeout_ns());
}

TEST_F(KernelEvents, AStalledLeaderLengthensTheTimeoutOnceItIsHeard) {
  const uint64_t timeout_ns = cluster_.At(3).detector().timeout_ns();
  const uint64_t heard_ns = cluster_.now_ns();
  while (cluster_.now_ns() < heard_ns + 2 * timeout_ns) {
    cluster_.Step(3, LeaderStalled{.leader = NodeId(1), .term = cluster_.At(3).term()});
    cluster_.Wait(kMillisecond);
    cluster_.Tick(3);
  }
  ASSERT_EQ(cluster_.At(3).role(), Role::kFollower);
  EXPECT_EQ(cluster_.At(3).detector().timeout_ns(), timeout_ns);
  cluster_.Tick(1);
  cluster_.Deliver();
  EXPECT_GE(cluster_.At(3).detector().timeout_ns(), 3 * timeout_ns);
}

TEST_F(KernelEvents, LatenessEnds) {
  const uint64_t heard_ns = cluster_.now_ns();
  const Options options;
  const uint64_t longest_ns = options.stall_max_floors * options.election_floor_ns;
  while (cluster_.At(3).role() == Role::kFollower && cluster_.now_ns() < heard_ns + 3 * longest_ns) {
    cluster_.Step(3, LeaderStalled{.leader = NodeId(1), .term = cluster_.At(3).term()});
    cluster_.Wait(kMillisecond);
    cluster_.Tick(3);
  }
  EXPECT_EQ(cluster_.At(3).role(), Role::kPreCandidate);
  EXPECT_GE(cluster_.now_ns(), heard_ns + longest_ns);
  EXPECT_LE(cluster_.now_ns(), heard_ns + longest_ns + 2 * cluster_.At(3).detector().timeout_ns());
}

TEST_F(KernelEvents, AStallOfAnotherTermOrLeaderIsIgnored) {
  const uint64_t deadline_ns = cluster_.At(3).election_deadline_ns();
  const Term term = cluster_.At(3).term();
  cluster_.Wait(kMillisecond);
  cluster_.Step(3, LeaderStalled{.leader = NodeId(1), .term = term.Next()});
  cluster_.Step(3, LeaderStalled{.leader = NodeId(1), .term = Term(term.value() - 1)});
  cluster_.Step(3, LeaderStalled{.leader = NodeId(2), .term = term});
  EXPECT_EQ(cluster_.At(3).election_deadline_ns(), deadline_ns);
  cluster_.Step(3, LeaderResigns{.leader = NodeId(1), .term = term, .rank = 1});
  const uint64_t turn_ns = cluster_.At(3).election_deadline_ns();
  cluster_.Step(3, LeaderStalled{.leader = NodeId(1), .term = term});
  EXPECT_EQ(cluster_.At(3).election_deadline_ns(), turn_ns) << "it has resigned";
}

TEST_F(KernelEvents, R6_CountedCommitsAndIsIdempotent) {
  cluster_.Propose(1, "a");
  cluster_.DropAll();
  KernelCounted counted{.term = cluster_.At(1).term()};
  counted.members[1] = {.match = LogIndex(2), .node = NodeId(2)};
  cluster_.Step(1, counted);
  EXPECT_THAT(cluster_.Applied(1), ElementsAre("a"));
  cluster_.Step(1, counted);
  EXPECT_THAT(cluster_.Last().send, IsEmpty());
}

TEST_F(KernelEvents, R7_CountsOfAnotherTermAreNotBelieved) {
  cluster_.Propose(1, "a");
  cluster_.DropAll();
  KernelCounted counted{.term = Term(cluster_.At(1).term().value() - 1)};
  counted.members[1] = {.match = LogIndex(2), .node = NodeId(2)};
  counted.members[2] = {.match = LogIndex(2), .node = NodeId(3)};
  cluster_.Step(1, counted);
  EXPECT_THAT(cluster_.Applied(1), IsEmpty());
}

TEST_F(KernelEvents, R7_VotesCountForWhatWasAsked) {
  cluster_.Isolate(2);
  cluster_.Wait(5'000 * kMillisecond);
  cluster_.Tick(2);
  const Term term = cluster_.At(2).term();
  ASSERT_EQ(cluster_.At(2).role(), Role::kPreCandidate);
  cluster_.Step(2, KernelVotes{.asked_term = term, .pre_vote = true, .members = 1});
  cluster_.Step(2, KernelVotes{.asked_term = term.Next(), .pre_vote = false, .members = 1});
  EXPECT_EQ(cluster_.At(2).role(), Role::kPreCandidate);
  cluster_.HoldDisk(2);
  cluster_.Step(2, KernelVotes{.asked_term = term.Next(), .pre_vote = true, .members = 1});
  ASSERT_EQ(cluster_.At(2).role(), Role::kCandidate);
  // The own vote counts once it is durable, whatever the kernel's mask says.
  cluster_.Step(2, KernelVotes{.asked_term = term.Next(), .pre_vote = false, .members = 1u << 1});
  EXPECT_EQ(cluster_.At(2).role(), Role::kCandidate);
  cluster_.Step(2, KernelVotes{.asked_term = term.Next(), .pre_vote = false, .members = 1u << 2});
  EXPECT_EQ(cluster_.At(2).role(), Role::kCandidate);
  cluster_.ReleaseDisk(2);
  EXPECT_EQ(cluster_.At(2).role(), Role::kLeader);
}

// Dissertation section 6.2, and "progress, not echoes".
TEST_F(KernelEvents, CheckQuorum_AnEchoIsNoSignOfLife) {
  const Term term = cluster_.At(1).term();
  cluster_.Isolate(1);
  const uint64_t timeout_ns = cluster_.At(1).detector().timeout_ns();
  uint64_t loop_seq = 1000;
  const auto answer_for = [&](uint64_t duration_ns, uint64_t step) {
    for (const uint64_t end_ns = cluster_.now_ns() + duration_ns; cluster_.now_ns() < end_ns;) {
      cluster_.TickAtDeadline(1);
      if (cluster_.At(1).role() != Role::kLeader) return;
      cluster_.Step(
          1, Receive{.message = {.from = NodeId(2),
                                 .to = NodeId(1),
                                 .term = term,
                                 .body = HeartbeatReply{.round = 1, .matched = LogIndex(1), .loop_seq = loop_seq}}});
      loop_seq += step;
    }
  };
  answer_for(5 * timeout_ns, 1);
  EXPECT_EQ(cluster_.At(1).role(), Role::kLeader);
  answer_for(5 * timeout_ns, 0);
  EXPECT_EQ(cluster_.At(1).role(), Role::kPreCandidate) << "its process stands still";
}

TEST_F(KernelEvents, CheckQuorum_WhatTheKernelCountedBeforeDoesNotUndoWhatTheProcessSaw) {
  const Term term = cluster_.At(1).term();
  KernelCounted counted{.term = term};
  counted.members[1] = {.match = {}, .round = 0, .loop_seq = 7, .contact_ns = cluster_.now_ns(), .node = NodeId(2)};
  cluster_.Wait(kMillisecond);
  const auto echo = [&] {
    cluster_.Step(1, Receive{.message = {.from = NodeId(2),
                                         .to = NodeId(1),
                                         .term = term,
                                         .body = HeartbeatReply{.round = 1, .matched = LogIndex(1), .loop_seq = 8}}});
  };
  echo();
  const uint64_t contact_ns = cluster_.At(1).detector().peer_heard_ns(1);
  EXPECT_EQ(contact_ns, cluster_.now_ns());
  cluster_.Wait(kMillisecond);
  cluster_.Step(1, counted);
  echo();
  EXPECT_EQ(cluster_.At(1).detector().peer_heard_ns(1), contact_ns);
}

}  // namespace
}  // namespace hedgerow::raft
