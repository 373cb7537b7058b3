// SPDX-License-Identifier: Apache-2.0
#include "cluster/offload/shared_state.h"

#include <algorithm>
#include <array>

namespace hedgerow::offload {
namespace {

static_assert(static_cast<uint32_t>(raft::Role::kFollower) == HR_NODE_FOLLOWER);
static_assert(static_cast<uint32_t>(raft::Role::kPreCandidate) == HR_NODE_PRE_CANDIDATE);
static_assert(static_cast<uint32_t>(raft::Role::kCandidate) == HR_NODE_CANDIDATE);
static_assert(static_cast<uint32_t>(raft::Role::kLeader) == HR_NODE_LEADER);

// The process is woken for what moves the quorum beyond what it knows, its own part put aside: that is its
// disk's to say, and the process's to ask.
void FillLeaders(const raft::Raft& raft, hr_node_shared& shared) {
  std::array<__u64, HR_RAFT_MAX_MEMBERS> matches{};
  std::array<__u64, HR_RAFT_MAX_MEMBERS> rounds{};
  for (size_t i = 0; i < matches.size(); ++i) {
    if (i == raft.self()) matches[i] = rounds[i] = UINT64_MAX;
    if (((raft.peers() >> i) & 1) == 0) continue;
    const raft::Progress& progress = raft.progress()[i];
    hr_node_member& member = shared.members[i];
    matches[i] = member.match = progress.match().value();
    rounds[i] = member.round = progress.round();
    member.loop_seq = raft.detector().peer_loop_seq(i);
    member.contact_ns = raft.detector().peer_heard_ns(i);
  }
  shared.every_ack = EveryAckForKernel(raft);
  shared.quorum_index = hr_raft_quorum_value(matches.data(), shared.voters, shared.next_voters);
  shared.quorum_round = hr_raft_quorum_value(rounds.data(), shared.voters, shared.next_voters);
}

// A member in no mask is counted and never decides (R6); a former member has no place at all.
void FillMembers(const raft::Raft& raft, hr_node_shared& shared) {
  const raft::Configuration& configuration = raft.configuration();
  shared.config_epoch = configuration.epoch;
  shared.voters = configuration.voters;
  shared.next_voters = configuration.next_voters;
  shared.self = static_cast<uint32_t>(raft.self());
  for (const raft::Member& member : configuration.members) {
    if (((raft.peers() >> member.slot) & 1) == 0 && member.slot != raft.self()) continue;
    shared.members[member.slot].node = static_cast<uint32_t>(member.id.value());
  }
}

}  // namespace

uint32_t RoleForKernel(raft::Role role) { return static_cast<uint32_t>(role); }

raft::LogIndex MatchedForKernel(const raft::Raft& raft) { return std::min(raft.matched(), raft.durable()); }

uint32_t EveryAckForKernel(const raft::Raft& raft) {
  uint32_t members = 0;
  if (raft.role() != raft::Role::kLeader) return members;
  for (size_t i = 0; i < raft.progress().size(); ++i) {
    if (((raft.peers() >> i) & 1) == 0) continue;
    const raft::Progress& progress = raft.progress()[i];
    // Something waits for room in its window, which each acknowledgement makes; or a probe is out, whose answer
    // may be about nothing new and still is what the pipeline waits for.
    const bool waits = progress.next() <= raft.log().last_index() && !progress.MaySend(raft.options());
    if (waits || !progress.replicates()) members |= 1u << i;
  }
  return members;
}

hr_node_shared SharedStateOf(const raft::Raft& raft) {
  hr_node_shared shared{};
  shared.raft = {.term = raft.term().value(),
                 .voted_for = raft.voted_for().value(),
                 .leader = raft.leader().value(),
                 .last_index = raft.log().last_index().value(),
                 .last_term = raft.log().last_term().value()};
  shared.matched = MatchedForKernel(raft).value();
  shared.heard_ns = raft.detector().leader_heard_ns();
  shared.election_timeout_ns = raft.detector().timeout_ns() + raft.detector().stalled_by_ns();
  shared.leader_timeout_ns = raft.detector().leader_timeout_ns();
  FillMembers(raft, shared);
  shared.role = RoleForKernel(raft.role());
  shared.votes = raft.votes();
  if (raft.role() == raft::Role::kLeader) FillLeaders(raft, shared);
  return shared;
}

}  // namespace hedgerow::offload
