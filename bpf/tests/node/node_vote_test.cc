// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Votes: pre-votes, refusals, votes given (told to the process through the ring), ignored, and counted by
// candidates.
#include "bpf/tests/node/node_fixture.h"

namespace hedgerow::packets {
namespace {

class NodeVoteTest : public NodeTest {
 protected:
  static hr_peer_vote_request Request(uint64_t term, bool pre_vote, uint64_t last_index = kLastIndex) {
    return {.asked_term = term,
            .last_index = last_index,
            .last_term = kTerm,
            .transfer_term = 0,
            .pre_vote = pre_vote,
            .reserved = 0};
  }
  Outcome Ask(const hr_peer_vote_request &request, uint32_t from = kPeer) {
    return Send(HR_PEER_VOTE_REQUEST, from, request, request.pre_vote ? request.asked_term - 1 : request.asked_term);
  }
  void ExpectVote(const Outcome &outcome, hr_node_event event, bool granted, uint64_t asked_term, uint64_t term) {
    ASSERT_EQ(outcome.action, XDP_TX);
    EXPECT_EQ(outcome.events, (std::map<int, int64_t>{{event, 1}}));
    EXPECT_EQ(outcome.header.kind, HR_PEER_VOTE_REPLY);
    EXPECT_EQ(outcome.header.bytes, HR_PEER_HEADER_BYTES + sizeof(hr_peer_vote_reply));
    EXPECT_EQ(outcome.header.term, term);
    EXPECT_EQ(outcome.body.vote.asked_term, asked_term);
    EXPECT_EQ(outcome.body.vote.granted, granted ? 1u : 0u);
  }
};

TEST_P(NodeVoteTest, APreVoteIsAnsweredAndPromisesNothing) {
  ExpectVote(Ask(Request(kTerm + 1, true)), HR_NODE_EVENT_PRE_VOTE_ANSWERED, true, kTerm + 1, kTerm);
  ExpectVote(Ask(Request(kTerm + 1, true), 4), HR_NODE_EVENT_PRE_VOTE_ANSWERED, true, kTerm + 1, kTerm);
  ExpectVote(Ask(Request(kTerm + 1, true, kLastIndex - 1)), HR_NODE_EVENT_PRE_VOTE_ANSWERED, false, kTerm + 1, kTerm);
  EXPECT_EQ(node().Shared().raft.voted_for, 0u);
  EXPECT_TRUE(node().TakeAll().empty());
}

TEST_P(NodeVoteTest, ANodeThatHeardTheLeaderLatelyGivesNone) {
  Change1([](auto &shared) {
    shared.heard_ns = MonotonicNs();
    shared.election_timeout_ns = 60'000'000'000;
  });
  ExpectVote(Ask(Request(kTerm + 1, true)), HR_NODE_EVENT_PRE_VOTE_ANSWERED, false, kTerm + 1, kTerm);
  const Outcome ignored = Ask(Request(kTerm + 1, false));
  EXPECT_EQ(ignored.action, XDP_DROP);
  EXPECT_EQ(ignored.events, (std::map<int, int64_t>{{HR_NODE_EVENT_VOTE_IGNORED, 1}}));
  hr_peer_vote_request waived = Request(kTerm + 1, false);
  waived.transfer_term = kTerm;
  ExpectVote(Ask(waived), HR_NODE_EVENT_VOTE_GRANTED, true, kTerm + 1, kTerm + 1);
}

TEST_P(NodeVoteTest, AVoteIsGivenOnceATermAndToldToTheProcess) {
  ExpectVote(Ask(Request(kTerm + 1, false)), HR_NODE_EVENT_VOTE_GRANTED, true, kTerm + 1, kTerm + 1);
  const hr_node_shared shared = node().Shared();
  EXPECT_EQ(shared.raft.term, kTerm + 1);
  EXPECT_EQ(shared.raft.voted_for, kPeer);
  EXPECT_EQ(shared.raft.leader, 0u);
  std::vector<offload::RingRecord> records = node().TakeAll();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].head.kind, HR_NODE_RECORD_VOTE);
  EXPECT_EQ(records[0].head.from, kPeer);
  EXPECT_EQ(records[0].head.term, kTerm + 1);
  EXPECT_TRUE(records[0].datagram.empty());
  ExpectVote(Ask(Request(kTerm + 1, false), 4), HR_NODE_EVENT_VOTE_REFUSED, false, kTerm + 1, kTerm + 1);
  ExpectVote(Ask(Request(kTerm + 1, false)), HR_NODE_EVENT_VOTE_GRANTED, true, kTerm + 1, kTerm + 1);
}

TEST_P(NodeVoteTest, AnOlderTermOrLogIsRefused) {
  ExpectVote(Ask(Request(kTerm - 1, false)), HR_NODE_EVENT_VOTE_REFUSED, false, kTerm - 1, kTerm);
  ExpectPassed(Ask(Request(kTerm + 1, false, kLastIndex - 1)), HR_NODE_EVENT_PASSED_TERM);
  ExpectVote(Ask(Request(kTerm, false)), HR_NODE_EVENT_VOTE_REFUSED, false, kTerm,
             kTerm);  // the term has a leader
}

TEST_P(NodeVoteTest, WithoutTheRightToGrantItIsTheProcesss) {
  Change1([](auto &shared) { shared.capabilities &= ~uint32_t{HR_NODE_CAN_GRANT}; });
  ExpectPassed(Ask(Request(kTerm + 1, false)), HR_NODE_EVENT_PASSED_FENCED);
  ExpectVote(Ask(Request(kTerm - 1, false)), HR_NODE_EVENT_VOTE_REFUSED, false, kTerm - 1, kTerm);
  Change1([](auto &shared) { shared.capabilities = 0; });
  ExpectPassed(Ask(Request(kTerm + 1, true)), HR_NODE_EVENT_PASSED_FENCED);
}

TEST_P(NodeVoteTest, TheProcessIsToldOfAPreVoteWhereTheKernelMayNotVote) {
  Change1([](auto &shared) {
    shared.capabilities &= ~uint32_t{HR_NODE_CAN_GRANT};
    shared.tell_suspicion = 1;
  });
  ExpectPassed(Ask(Request(kTerm + 1, true)), HR_NODE_EVENT_PASSED_SUSPICION);
  ExpectVote(Ask(Request(kTerm + 1, true, kLastIndex - 1)), HR_NODE_EVENT_PRE_VOTE_ANSWERED, false, kTerm + 1, kTerm);
  Change1([](auto &shared) { shared.capabilities |= HR_NODE_CAN_GRANT; });
  ExpectVote(Ask(Request(kTerm + 1, true)), HR_NODE_EVENT_PRE_VOTE_ANSWERED, true, kTerm + 1, kTerm);
}

TEST_P(NodeVoteTest, ATermThatElectionsCannotHaveReachedIsTheProcesss) {
  Change1([](auto &shared) { shared.term_max = kTerm + 3; });
  const Outcome beyond = Ask(Request(kTerm + 4, false));
  EXPECT_EQ(beyond.action, XDP_PASS);
  EXPECT_EQ(beyond.events, (std::map<int, int64_t>{{HR_NODE_EVENT_PASSED_TERM, 1}}));
  EXPECT_EQ(node().Shared().raft.term, kTerm);
  ExpectVote(Ask(Request(kTerm + 3, false)), HR_NODE_EVENT_VOTE_GRANTED, true, kTerm + 3, kTerm + 3);
}

TEST_P(NodeVoteTest, AMalformedRequestIsTheProcesss) {
  hr_peer_vote_request request = Request(kTerm + 1, false);
  request.pre_vote = 2;
  ExpectPassed(Send(HR_PEER_VOTE_REQUEST, kPeer, request), HR_NODE_EVENT_PASSED_MALFORMED);
  ExpectPassed(Send(HR_PEER_VOTE_REQUEST, kPeer, Request(kTerm + 2, false), kTerm), HR_NODE_EVENT_PASSED_MALFORMED);
}

// Its process would not hear of a leader that it has voted for here, and one that doubts would go on for ever.
TEST_P(NodeVoteTest, TheProcessRefusesFormerMembers) {
  Change1([](auto &shared) { shared.members[SlotOf(kPeer)].node = 0; });
  ExpectPassed(Ask(Request(kTerm + 1, true)), HR_NODE_EVENT_PASSED_NO_MEMBER);
  ExpectPassed(Ask(Request(kTerm + 1, false)), HR_NODE_EVENT_PASSED_NO_MEMBER);
  EXPECT_EQ(node().Shared().raft.term, kTerm);
  EXPECT_TRUE(node().TakeAll().empty());
}

TEST_P(NodeVoteTest, NeitherCandidateNorLeaderGives) {
  Change1([](auto &shared) { shared.role = HR_NODE_CANDIDATE; });
  ExpectPassed(Ask(Request(kTerm + 1, false)), HR_NODE_EVENT_PASSED_ROLE);
}

// Each vote may complete a split, which its process alone can see.
TEST_P(NodeVoteTest, ACandidateIsWokenByEachVote) {
  Change1([](auto &shared) {
    shared.role = HR_NODE_CANDIDATE;
    shared.raft.voted_for = kSelf;
    shared.raft.leader = 0;
  });
  const Outcome outcome =
      Send(HR_PEER_VOTE_REPLY, kPeer, hr_peer_vote_reply{.asked_term = kTerm, .pre_vote = 0, .granted = 1});
  EXPECT_EQ(outcome.action, XDP_PASS);
  EXPECT_EQ(outcome.events, (std::map<int, int64_t>{{HR_NODE_EVENT_WOKEN_FOR_VOTES, 1}}));
  EXPECT_EQ(node().Shared().votes, 1u << SlotOf(kPeer));
}

TEST_P(NodeVoteTest, AnEarlierCandidateIsWokenByTheMajority) {
  Change1([](auto &shared) {
    shared.role = HR_NODE_PRE_CANDIDATE;
    shared.raft.leader = 0;
  });
  const hr_peer_vote_reply yes{.asked_term = kTerm + 1, .pre_vote = 1, .granted = 1};
  Outcome outcome = Send(HR_PEER_VOTE_REPLY, kPeer, yes);
  EXPECT_EQ(outcome.action, XDP_DROP);
  EXPECT_EQ(outcome.events, (std::map<int, int64_t>{{HR_NODE_EVENT_VOTE_COUNTED, 1}}));
  outcome = Send(HR_PEER_VOTE_REPLY, kPeer, yes);  // the same voter again is no majority
  EXPECT_EQ(outcome.action, XDP_DROP);
  outcome = Send(HR_PEER_VOTE_REPLY, 4, yes);
  EXPECT_EQ(outcome.action, XDP_PASS);
  EXPECT_EQ(outcome.events, (std::map<int, int64_t>{{HR_NODE_EVENT_WOKEN_FOR_VOTES, 1}}));
  EXPECT_EQ(node().Shared().votes, 1u << SlotOf(kPeer) | 1u << SlotOf(4));
  hr_peer_vote_reply other = yes;
  other.granted = 0;
  ExpectPassed(Send(HR_PEER_VOTE_REPLY, 5, other), HR_NODE_EVENT_PASSED_TERM);
  other = yes;
  other.asked_term = kTerm - 1;
  ExpectPassed(Send(HR_PEER_VOTE_REPLY, 5, other), HR_NODE_EVENT_PASSED_TERM);
}

INSTANTIATE_TEST_SUITE_P(Ip, NodeVoteTest, ::testing::Bool(),
                         [](const auto &info) { return info.param ? "v6" : "v4"; });

}  // namespace
}  // namespace hedgerow::packets
