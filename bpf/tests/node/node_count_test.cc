// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Heartbeats answered by a follower, and what a leader counts: rounds, acknowledgements, contact. It is woken
// only for what moves a quorum.
#include "bpf/tests/node/node_fixture.h"

namespace hedgerow::packets {
namespace {

class NodeCountTest : public NodeTest {
 protected:
  void Lead() {
    Change1([](auto &shared) {
      shared.role = HR_NODE_LEADER;
      shared.raft.leader = kSelf;
      shared.raft.last_index = 100;
    });
  }
  Outcome Ack(uint32_t from, uint64_t index, uint64_t loop_seq = 1, uint32_t accepted = 1) {
    const hr_peer_append_reply reply{.index = index,
                                     .conflict_term = 0,
                                     .conflict_index = 0,
                                     .loop_seq = loop_seq,
                                     .accepted = accepted,
                                     .reserved = 0};
    return Send(HR_PEER_APPEND_REPLY, from, reply);
  }
  Outcome Beat(uint32_t from, uint64_t round, uint64_t matched = 100, uint64_t loop_seq = 1) {
    const hr_peer_heartbeat_reply reply{.round = round, .matched = matched, .loop_seq = loop_seq};
    return Send(HR_PEER_HEARTBEAT_REPLY, from, reply);
  }
  static void ExpectOne(const Outcome &outcome, int action, hr_node_event event) {
    EXPECT_EQ(outcome.action, action);
    EXPECT_EQ(outcome.events, (std::map<int, int64_t>{{event, 1}}));
  }
};

TEST_P(NodeCountTest, R6_UnderAJointConfigurationAMajorityOfEachIsNeeded) {
  Lead();
  Change1([](auto &shared) {
    shared.voters = 0b00111;       // 1, 2, 3
    shared.next_voters = 0b11001;  // 1, 4, 5
  });
  ExpectOne(Ack(2, 50), XDP_DROP, HR_NODE_EVENT_ACK_COUNTED);
  ExpectOne(Ack(3, 50), XDP_DROP, HR_NODE_EVENT_ACK_COUNTED);  // a majority of the old alone
  ExpectOne(Ack(5, 40), XDP_PASS, HR_NODE_EVENT_WOKEN_FOR_COMMIT);
  EXPECT_EQ(node().Shared().quorum_index, 40u);
  ExpectOne(Beat(5, 3), XDP_DROP, HR_NODE_EVENT_HEARTBEAT_COUNTED);
  ExpectOne(Beat(2, 3), XDP_PASS, HR_NODE_EVENT_WOKEN_FOR_ROUND);
}

TEST_P(NodeCountTest, R6_ALearnerIsCountedAndNeverDecides) {
  Lead();
  Change1([](auto &shared) { shared.voters = 0b00111; });
  ExpectOne(Ack(4, 50), XDP_DROP, HR_NODE_EVENT_ACK_COUNTED);
  ExpectOne(Ack(5, 50), XDP_DROP, HR_NODE_EVENT_ACK_COUNTED);
  EXPECT_EQ(node().Shared().members[SlotOf(4)].match, 50u);
  ExpectOne(Ack(2, 30), XDP_PASS, HR_NODE_EVENT_WOKEN_FOR_COMMIT);
  EXPECT_EQ(node().Shared().quorum_index, 30u);
}

// The map of members may still have the address of a member that has left, and the slot may be another's by now.
TEST_P(NodeCountTest, R0_TheStateNamesTheNodeOfEachPosition) {
  Lead();
  Change1([](auto &shared) {
    shared.members[SlotOf(2)].node = 9;
    shared.members[SlotOf(3)].node = 0;
  });
  ExpectPassed(Ack(2, 50), HR_NODE_EVENT_PASSED_NO_MEMBER);
  ExpectPassed(Beat(3, 9), HR_NODE_EVENT_PASSED_NO_MEMBER);
  EXPECT_EQ(node().Shared().members[SlotOf(2)].match, 0u);
}

TEST_P(NodeCountTest, AFollowerAnswersItsLeadersHeartbeat) {
  const hr_peer_heartbeat heartbeat{.round = 7, .commit = 4, .election_timeout_ns = 20'000'000};
  const uint64_t before_ns = MonotonicNs();
  const Outcome outcome = Send(HR_PEER_HEARTBEAT, kLeader, heartbeat);
  ExpectOne(outcome, XDP_TX, HR_NODE_EVENT_HEARTBEAT_ANSWERED);
  EXPECT_EQ(outcome.header.kind, HR_PEER_HEARTBEAT_REPLY);
  EXPECT_EQ(outcome.header.bytes, HR_PEER_HEADER_BYTES + sizeof(hr_peer_heartbeat_reply));
  EXPECT_EQ(outcome.body.heartbeat.round, 7u);
  EXPECT_EQ(outcome.body.heartbeat.matched, kLastIndex);
  EXPECT_EQ(outcome.body.heartbeat.loop_seq, 42u);
  const hr_node_shared shared = node().Shared();
  EXPECT_GE(shared.heard_ns, before_ns);
  EXPECT_EQ(shared.leader_commit, 4u);
  EXPECT_EQ(shared.leader_timeout_ns, 20'000'000u);
}

TEST_P(NodeCountTest, AHeartbeatOfAnotherTermOrNodeIsTheProcesss) {
  const hr_peer_heartbeat heartbeat{.round = 7, .commit = 4, .election_timeout_ns = 20'000'000};
  ExpectPassed(Send(HR_PEER_HEARTBEAT, kLeader, heartbeat, kTerm - 1), HR_NODE_EVENT_PASSED_TERM);
  ExpectPassed(Send(HR_PEER_HEARTBEAT, kLeader, heartbeat, kTerm + 1), HR_NODE_EVENT_PASSED_TERM);
  ExpectPassed(Send(HR_PEER_HEARTBEAT, kPeer, heartbeat), HR_NODE_EVENT_PASSED_TERM);
  Change1([](auto &shared) { shared.lease_until_ns = 1; });
  ExpectPassed(Send(HR_PEER_HEARTBEAT, kLeader, heartbeat), HR_NODE_EVENT_PASSED_LEASE);
}

TEST_P(NodeCountTest, ALeaderIsWokenByTheAcknowledgementThatMovesTheQuorum) {
  Lead();
  ExpectOne(Ack(2, 50), XDP_DROP, HR_NODE_EVENT_ACK_COUNTED);
  ExpectOne(Ack(2, 50), XDP_DROP, HR_NODE_EVENT_ACK_COUNTED);  // the same one twice is no majority
  ExpectOne(Ack(3, 40), XDP_PASS, HR_NODE_EVENT_WOKEN_FOR_COMMIT);
  EXPECT_EQ(node().Shared().quorum_index, 40u);
  ExpectOne(Ack(4, 30), XDP_DROP, HR_NODE_EVENT_ACK_COUNTED);
  ExpectOne(Ack(3, 45), XDP_PASS, HR_NODE_EVENT_WOKEN_FOR_COMMIT);
  ExpectOne(Ack(3, 20), XDP_DROP, HR_NODE_EVENT_ACK_COUNTED);
  const hr_node_shared shared = node().Shared();
  EXPECT_EQ(shared.members[SlotOf(3)].match, 45u) << "an acknowledgement never goes back";
  EXPECT_EQ(shared.members[SlotOf(2)].loop_seq, 1u);
  EXPECT_NE(shared.members[SlotOf(2)].contact_ns, 0u);
}

// It would be the highest for good, and no later commit or round would wake the leader.
TEST_P(NodeCountTest, WhatWasNeverSentCannotBeAnswered) {
  Lead();
  for (const uint64_t index : {kSentIndex + 1, uint64_t{1} << 63, UINT64_MAX})
    ExpectPassed(Ack(2, index), HR_NODE_EVENT_PASSED_MALFORMED);
  for (const uint64_t round : {kSentRound + 1, UINT64_MAX})
    ExpectPassed(Beat(2, round), HR_NODE_EVENT_PASSED_MALFORMED);
  Ack(3, kSentIndex);
  ExpectOne(Ack(2, kSentIndex), XDP_PASS, HR_NODE_EVENT_WOKEN_FOR_COMMIT);
  Beat(3, kSentRound);
  ExpectOne(Beat(2, kSentRound), XDP_PASS, HR_NODE_EVENT_WOKEN_FOR_ROUND);
  kernel().SetSent(kSentIndex + 1, kSentRound);
  Ack(3, kSentIndex + 1);
  ExpectOne(Ack(2, kSentIndex + 1), XDP_PASS, HR_NODE_EVENT_WOKEN_FOR_COMMIT);
}

TEST_P(NodeCountTest, ARefusalAndAFullWindowWakeTheLeader) {
  Lead();
  ExpectOne(Ack(2, 5, 1, 0), XDP_PASS, HR_NODE_EVENT_WOKEN_FOR_ACK);
  Change1([](auto &shared) { shared.every_ack = 1u << SlotOf(2); });
  ExpectOne(Ack(2, 5), XDP_PASS, HR_NODE_EVENT_WOKEN_FOR_ACK);
}

TEST_P(NodeCountTest, ALeaderThatIsAwakeIsToldByAWordAndNotByTheDatagram) {
  Lead();
  Ack(2, 50);
  const uint64_t moved = kernel().Moved();
  kernel().SetAwake(true);
  ExpectOne(Ack(3, 40), XDP_DROP, HR_NODE_EVENT_DOORBELL);
  EXPECT_EQ(node().Shared().quorum_index, 40u);
  EXPECT_EQ(kernel().Moved(), moved + 1);
  ExpectOne(Ack(4, 30), XDP_DROP, HR_NODE_EVENT_ACK_COUNTED);  // moves nothing
  ExpectOne(Beat(2, 3), XDP_DROP, HR_NODE_EVENT_HEARTBEAT_COUNTED);
  EXPECT_EQ(kernel().Moved(), moved + 1);
  ExpectOne(Beat(3, 3), XDP_DROP, HR_NODE_EVENT_DOORBELL);
  ExpectOne(Ack(2, 5, 1, 0), XDP_PASS, HR_NODE_EVENT_WOKEN_FOR_ACK);  // a refusal says more than the state
  kernel().SetAwake(false);
  ExpectOne(Ack(3, 45), XDP_PASS, HR_NODE_EVENT_WOKEN_FOR_COMMIT);
  EXPECT_EQ(kernel().Moved(), moved + 3);
}

TEST_P(NodeCountTest, AnEchoIsNoContact) {
  Lead();
  Ack(2, 5, 9);
  const uint64_t contact_ns = node().Shared().members[SlotOf(2)].contact_ns;
  Ack(2, 6, 9);
  EXPECT_EQ(node().Shared().members[SlotOf(2)].contact_ns, contact_ns);
  Ack(2, 7, 10);
  EXPECT_GT(node().Shared().members[SlotOf(2)].contact_ns, contact_ns);
}

TEST_P(NodeCountTest, ARoundIsCountedAndTheQuorumsWakes) {
  Lead();
  ExpectOne(Beat(2, 3), XDP_DROP, HR_NODE_EVENT_HEARTBEAT_COUNTED);
  ExpectOne(Beat(3, 3), XDP_PASS, HR_NODE_EVENT_WOKEN_FOR_ROUND);
  ExpectOne(Beat(4, 3), XDP_DROP, HR_NODE_EVENT_HEARTBEAT_COUNTED);
  EXPECT_EQ(node().Shared().quorum_round, 3u);
}

TEST_P(NodeCountTest, AFollowerThatKnowsLessThanItAcknowledgedWakesTheLeader) {
  Lead();
  Ack(2, 50);
  ExpectOne(Beat(2, 4, 49), XDP_PASS, HR_NODE_EVENT_WOKEN_FOR_ACK);
}

TEST_P(NodeCountTest, AnswersToAnotherTermOrToAFollowerAreTheProcesss) {
  ExpectPassed(Ack(2, 50), HR_NODE_EVENT_PASSED_ROLE);
  Lead();
  const hr_peer_append_reply reply{
      .index = 5, .conflict_term = 0, .conflict_index = 0, .loop_seq = 1, .accepted = 1, .reserved = 0};
  ExpectPassed(Send(HR_PEER_APPEND_REPLY, 2, reply, kTerm - 1), HR_NODE_EVENT_PASSED_TERM);
  Change1([](auto &shared) { shared.capabilities = HR_NODE_CAN_HEARTBEAT; });
  ExpectPassed(Ack(2, 50), HR_NODE_EVENT_PASSED_FENCED);
}

INSTANTIATE_TEST_SUITE_P(Ip, NodeCountTest, ::testing::Bool(),
                         [](const auto &info) { return info.param ? "v6" : "v4"; });

}  // namespace
}  // namespace hedgerow::packets
