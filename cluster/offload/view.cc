// SPDX-License-Identifier: Apache-2.0
#include "cluster/offload/view.h"

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
void FillLeaders(const raft::Raft& raft, hr_node_view& view) {
  std::array<__u64, HR_RAFT_MAX_MEMBERS> matches{};
  std::array<__u64, HR_RAFT_MAX_MEMBERS> rounds{};
  for (size_t i = 0; i < raft.progress().size(); ++i) {
    const raft::Progress& progress = raft.progress()[i];
    view.members[i] = {.match = progress.match().value(),
                       .round = progress.round(),
                       .replied_ns = 0,
                       .loop_seq = progress.loop_seq(),
                       .contact_ns = progress.contact_ns()};
    const bool self = i == raft.self();
    matches[i] = self ? UINT64_MAX : view.members[i].match;
    rounds[i] = self ? UINT64_MAX : view.members[i].round;
  }
  view.every_ack = EveryAckForKernel(raft);
  view.quorum_index = hr_raft_quorum_value(matches.data(), view.voters);
  view.quorum_round = hr_raft_quorum_value(rounds.data(), view.voters);
}

}  // namespace

uint32_t RoleForKernel(raft::Role role) { return static_cast<uint32_t>(role); }

raft::LogIndex VerifiedForKernel(const raft::Raft& raft) { return std::min(raft.verified(), raft.durable()); }

uint32_t EveryAckForKernel(const raft::Raft& raft) {
  uint32_t members = 0;
  if (raft.role() != raft::Role::kLeader) return members;
  for (size_t i = 0; i < raft.progress().size(); ++i) {
    const raft::Progress& progress = raft.progress()[i];
    // Something waits for room in its window, which each acknowledgement makes; or a probe is out, whose answer
    // may be about nothing new and still is what the pipeline waits for.
    const bool waits = progress.next() <= raft.log().last_index() && !progress.MaySend(raft.options());
    if (i != raft.self() && (waits || progress.probing())) members |= 1u << i;
  }
  return members;
}

hr_node_view ViewOf(const raft::Raft& raft) {
  hr_node_view view{};
  view.raft = {.term = raft.term().value(),
               .voted_for = raft.voted_for().value(),
               .leader = raft.leader().value(),
               .last_index = raft.log().last_index().value(),
               .last_term = raft.log().last_term().value()};
  view.verified = VerifiedForKernel(raft).value();
  view.heard_ns = raft.leader_heard_ns();
  view.election_timeout_ns = raft.election_timeout_ns();
  view.leader_timeout_ns = raft.leader_timeout_ns();
  view.voters = (1u << raft.options().voters.size()) - 1;
  view.self = static_cast<uint32_t>(raft.self());
  view.role = RoleForKernel(raft.role());
  view.votes = raft.votes();
  if (raft.role() == raft::Role::kLeader) FillLeaders(raft, view);
  return view;
}

}  // namespace hedgerow::offload
