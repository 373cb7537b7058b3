// SPDX-License-Identifier: Apache-2.0
//
// What the node's kernel part has accepted, promised and counted by itself. It decided with the same functions
// (bpf/node/raft/take.h) on a state that the core had handed to it, and nothing else has changed that state since
// (R1): so nothing here is judged anew, and whatever contradicts the core is a fault.
#include <algorithm>
#include <bit>

#include "cluster/raft/check.h"
#include "cluster/raft/raft.h"

namespace hedgerow::raft {

// Raft section 5.3. The acknowledgement has left already, or leaves with the next one's, so there is no answer.
void Raft::On(Context& context, const KernelAppended& appended) {
  const AppendRequest& request = appended.request;
  if (request.prev_index < log_.start().index) {
    KernelAppended rest = appended;
    rest.request = WithoutCompacted(request);
    On(context, rest);
    return;
  }
  HEDGEROW_CHECK(appended.term == term_ && role_ == Role::kFollower);
  HEDGEROW_CHECK(!leader_.IsSet() || leader_ == appended.leader);  // Election Safety
  HEDGEROW_CHECK(IsWellFormed(appended.term, request));
  HEDGEROW_CHECK(log_.Has(request.prev_index) && log_.TermAt(request.prev_index) == request.prev_term);
  for (const Entry& entry : request.entries) {
    HEDGEROW_CHECK(!log_.Has(entry.index) || log_.TermAt(entry.index) == entry.term);
  }
  BecomeFollower(context, term_, appended.leader);
  if (appended.arrived_ns > detector_.leader_heard_ns()) LeaderHeardAt(context, appended.arrived_ns);
  matched_ = std::max(matched_, StoreEntries(context, request));
  AdvanceCommit(context, std::min(request.commit, matched_));
}

// Raft section 5.2. A record of the ring may be older than what a later incarnation of the process has promised
// since.
void Raft::On(Context& context, const KernelVoted& voted) {
  if (voted.term < term_) return;
  if (voted.term > term_) BecomeFollower(context, voted.term, NodeId());
  if (!voted.candidate.IsSet() || voted_for_ == voted.candidate) return;
  HEDGEROW_CHECK(!voted_for_.IsSet() && role_ == Role::kFollower);  // R7
  voted_for_ = voted.candidate;
  PersistHardState(context);
  DrawElectionDeadline(context);
}

void Raft::On(Context& context, const KernelHeard& heard) {
  if (role_ != Role::kFollower || heard.term != term_ || heard.leader != leader_) return;
  if (heard.election_timeout_ns != 0) detector_.SetLeaderTimeout(heard.election_timeout_ns);
  if (heard.heard_ns > detector_.leader_heard_ns()) LeaderHeardAt(context, heard.heard_ns);
  AdvanceCommit(context, std::min(heard.commit, matched_));
}

// R6: the same rules as for answers that reach the process; what is told again changes nothing.
void Raft::On(Context& context, const KernelCounted& counted) {
  if (role_ != Role::kLeader || counted.term != term_) return;
  bool moved = false;
  ForEach(peers_, [&](size_t member) {
    const KernelCounted::Member& seen = counted.members[member];
    Progress& progress = progress_[member];
    if (seen.node != NodeAt(member)) return;  // of the node that had the slot before
    // An answer that reached the process is newer than what the kernel part saw before it.
    if (seen.contact_ns > detector_.peer_heard_ns(member)) {
      detector_.PeerHeard(member, std::min(seen.contact_ns, context.now_ns), seen.loop_seq);
    }
    if (seen.round <= round_) progress.ConfirmRound(seen.round);
    if (seen.match > progress.match() && seen.match <= log_.last_index()) {
      moved = Acknowledged(context, member, seen.match) || moved;
    }
  });
  if (moved) MaybeCommit(context);
  ConfirmReads(context);
  if (!moved) return;
  ForEach(peers_, [&](size_t member) {
    MaybeTransfer(context, member);
    Replicate(context, member);
  });
}

// R7: a vote counts only for what was asked. The own vote is the core's to count, once it is durable.
void Raft::On(Context& context, const KernelVotes& votes) {
  const bool counts = votes.pre_vote ? role_ == Role::kPreCandidate && votes.asked_term == term_.Next()
                                     : role_ == Role::kCandidate && votes.asked_term == term_;
  const uint32_t others = votes.members & peers_ & configuration().deciding();
  if (!counts || (votes_ | others) == votes_) return;
  votes_ |= others;
  CountVote(context, static_cast<size_t>(std::countr_zero(others)));  // it counts them all
}

}  // namespace hedgerow::raft
