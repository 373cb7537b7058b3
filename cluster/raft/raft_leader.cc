// SPDX-License-Identifier: Apache-2.0
//
// Leading: replication and commitment (Raft section 5.3 and 5.4), heartbeat rounds, the check that a majority
// still listens (dissertation section 6.2), and leadership transfer (dissertation section 3.10).
#include <algorithm>

#include "cluster/raft/check.h"
#include "cluster/raft/raft.h"

namespace hedgerow::raft {
void Raft::BecomeLeader(Context& context) {
  progress_.assign(HR_RAFT_MAX_MEMBERS, Progress(log_.last_index(), context.now_ns));
  followed_ = {};
  quorum_check_end_ns_ = 0;
  transfer_target_ = NodeId();
  commit_moved_ns_ = replication_moved_ns_ = context.now_ns;
  step_down_ns_ = 0;
  suspected_term_ = Term();
  resigned_ = NodeId();
  given_up_ = 0;
  term_start_ = log_.last_index().Next();
  SetRole(context, Role::kLeader, options_.self);
  RefreshPeers(context.now_ns);
  // Raft section 8: the no-op commits what earlier terms left, and lets reads begin.
  AppendToLog(context, {.term = term_, .index = term_start_, .kind = EntryKind::kNoOp, .payload = {}});
  StartHeartbeatRound(context);
  resend_due_ns_ = heartbeat_due_ns_;
  ReplicateToAll(context);
}

void Raft::On(Context& context, const Propose& propose) {
  bool appended = false;
  for (const Proposal& proposal : propose.proposals) {
    if (role_ != Role::kLeader) {
      context.out.refused_proposals.push_back({proposal.tag, RefusalReason::kNotLeader});
    } else if (transfer_target_.IsSet()) {
      context.out.refused_proposals.push_back({proposal.tag, RefusalReason::kTransferring});
    } else if (outstanding_entries() >= options_.uncommitted_max_entries ||
               outstanding_bytes() >= options_.uncommitted_max_bytes) {
      context.out.refused_proposals.push_back({proposal.tag, RefusalReason::kOverloaded});
    } else {
      Entry entry{.term = term_, .index = log_.last_index().Next(), .payload = proposal.payload};
      context.out.accepted.push_back({.tag = proposal.tag, .index = entry.index, .term = term_});
      AppendToLog(context, std::move(entry));
      appended = true;
    }
  }
  // Dissertation section 10.2.1: the followers may write it while the leader's own disk does.
  if (appended) ReplicateToAll(context);
}

void Raft::ReplicateToAll(Context& context) {
  ForEach(peers_, [&](size_t member) { Replicate(context, member); });
}

void Raft::Replicate(Context& context, size_t member) {
  if (!IsPeer(member) || checks_quorum()) return;
  Progress& progress = progress_[member];
  while (progress.MaySend(options_)) {
    const LogIndex prev = progress.next().Previous();
    if (prev < log_.start().index) {
      AskForSnapshot(context, member);
      return;
    }
    AppendRequest request{
        .prev_index = prev,
        .prev_term = log_.TermAt(prev),
        .commit = commit_,
        .entries = log_.Slice(progress.next(), options_.append_max_entries, options_.append_max_bytes)};
    if (request.entries.empty() && progress.replicates()) return;
    size_t bytes = 0;
    for (const Entry& entry : request.entries) bytes += CostBytes(entry);
    progress.Sent(request.prev_index + request.entries.size(), bytes, context.now_ns);
    Send(context, NodeAt(member), std::move(request));
  }
}

void Raft::Handle(Context& context, const Message& message, const AppendReply& reply) {
  if (role_ != Role::kLeader) return;
  const size_t member = MemberOf(message.from);
  if (!IsPeer(member)) return;
  if (reply.index > log_.last_index()) {
    ++counters_.impossible;
    return;
  }
  Progress& progress = progress_[member];
  detector_.PeerHeard(member, context.now_ns, reply.loop_seq);
  if (reply.accepted) {
    if (Acknowledged(context, member, reply.index)) MaybeCommit(context);
    MaybeTransfer(context, member);
  } else {
    if (!progress.IsCurrentRefusal(reply.index)) return;
    Refused(context, member, reply);
  }
  Replicate(context, member);
}

// True if it holds more than was known.
bool Raft::Acknowledged(Context& context, size_t member, LogIndex index) {
  const bool moved = progress_[member].Accepted(index, round_, context.now_ns);
  if (moved && ((configuration().deciding() >> member) & 1) != 0) replication_moved_ns_ = context.now_ns;
  progress_[member].FollowRound(log_.last_index(), context.now_ns, detector_.timeout_ns());
  return moved;
}

void Raft::Refused(Context& context, size_t member, const AppendReply& reply) {
  Progress& progress = progress_[member];
  if (reply.conflict_term == Term() && progress.replicates()) {
    // What it lacked when it said this, it has acknowledged since.
    if (reply.conflict_index <= progress.match()) return;
    if (progress.IsHoleInFlight(reply.conflict_index) && reply.index >= reply.conflict_index) {
      ++counters_.holes_in_flight;
      progress.NoteGap(reply.conflict_index, reply.index, context.now_ns);
      FillHole(context, member);
      return;
    }
  }
  // End of Raft section 5.3: to the end of the conflicting term if we have it, else before its first entry.
  const LogIndex same_term = log_.LastUpToTerm(reply.conflict_term);
  const bool have_term = reply.conflict_term > Term() && log_.TermAt(same_term) == reply.conflict_term;
  const LogIndex next = have_term ? same_term.Next() : reply.conflict_index;
  counters_.probes += progress.replicates();
  progress.GoBackTo(std::min(next, reply.index));
}

// Packets overtake each other (RFC 9002 section 6.1): what a follower lacks is sent again only after several
// refusals, or a while after the first, and once; the pipeline goes on, since the follower keeps what came
// early. If this is lost, too, ForgetLost ends it.
void Raft::FillHole(Context& context, size_t member) {
  Progress& progress = progress_[member];
  if (!progress.hole_open() || checks_quorum()) return;
  const uint64_t hole_max_ns = HeartbeatInterval_ns() / 2;
  if (!progress.HolePersists(context.now_ns, hole_max_ns, options_.hole_refusals_max)) {
    resend_due_ns_ = std::min(resend_due_ns_, context.now_ns + hole_max_ns);
    return;
  }
  const LogIndex prev = progress.hole().Previous();
  if (prev < log_.start().index) return;
  const uint64_t missing = progress.hole_last().Next().value() - progress.hole().value();
  AppendRequest request{.prev_index = prev,
                        .prev_term = log_.TermAt(prev),
                        .commit = commit_,
                        .entries = log_.Slice(progress.hole(), std::min<uint64_t>(options_.append_max_entries, missing),
                                              options_.append_max_bytes)};
  ++counters_.holes_sent_again;
  progress.HoleSentAgain();
  Send(context, NodeAt(member), std::move(request));
}

void Raft::MaybeCommit(Context& context) {
  Reached reached{};
  ForEach(peers_, [&](size_t member) { reached[member] = progress_[member].match().value(); });
  // The leader counts itself like anyone else: only with what its own disk holds.
  reached[self_] = durable_index_.value();
  const LogIndex index(QuorumValue(reached));
  if (index <= commit_) return;
  const Term counted_term = log_.TermAt(index);
  if (!hr_raft_moves_commit(term_.value(), commit_.value(), index.value(), counted_term.value())) return;
  AdvanceCommit(context, index);
  LeadReads(context);
}

void Raft::StartHeartbeatRound(Context& context) {
  if (checks_quorum()) return;
  ++round_;
  heartbeat_due_ns_ = context.now_ns + HeartbeatInterval_ns();
  // Dissertation section 6.4 step 1: before an entry of its own term is committed, a leader does not know what
  // is.
  if (commit_ >= term_start_) led_reads_.StartRound(round_, commit_);
  ForEach(peers_, [&](size_t member) {
    Send(context, NodeAt(member),
         Heartbeat{.round = round_, .commit = commit_, .election_timeout_ns = detector_.network_timeout_ns()});
  });
  ConfirmReads(context);
}

void Raft::Handle(Context& context, const Message& message, const HeartbeatReply& reply) {
  const size_t member = MemberOf(message.from);
  if (role_ != Role::kLeader || !IsPeer(member)) return;
  if (reply.round > round_) {
    ++counters_.impossible;
    return;
  }
  Progress& progress = progress_[member];
  detector_.PeerHeard(member, context.now_ns, reply.loop_seq);
  progress.ConfirmRound(reply.round);
  ConfirmReads(context);
  if (role_ != Role::kLeader || !progress.HasForgotten(reply.matched, reply.round)) return;
  // It has started again and no longer knows that its log is ours; until told, it commits nothing.
  counters_.restarts_seen += progress.replicates();
  progress.GoBackTo(progress.match().Next());
  Replicate(context, member);
}

// It keeps its term and its role meanwhile, and sends nothing by which a follower would hear its leader, so
// that one that it cannot hear, or whose answers are lost, waits no longer for it than if it had stepped down at
// once.
void Raft::CheckQuorum(Context& context) {
  if (!checks_quorum()) {
    quorum_check_end_ns_ = context.now_ns + detector_.timeout_ns();
    ++counters_.quorum_checks;
  }
  transfer_term_ = term_;  // no node need stick to it, itself included
  heartbeat_due_ns_ = context.now_ns + HeartbeatInterval_ns();
  AskForPreVotes(context);
}

// A majority was heard again.
void Raft::QuorumConfirmed(Context& context) {
  quorum_check_end_ns_ = 0;
  transfer_term_ = Term();
  replication_moved_ns_ = context.now_ns;
  StartHeartbeatRound(context);
  ReplicateToAll(context);
}

// Dissertation section 6.2: a leader that a majority no longer answers steps down, so that its clients look elsewhere.
// For availability only (R4). Mostly all were slow, itself included, and an election would be for nothing: after one
// timeout it asks whether it may go on, and steps down if no majority has said so after another.
void Raft::LeaderTick(Context& context) {
  if (transfer_target_.IsSet() && context.now_ns >= transfer_deadline_ns_) transfer_target_ = NodeId();
  const bool heard = !detector_.Suspects(context.now_ns);
  if (!heard && (!may_stand() || (checks_quorum() && context.now_ns >= quorum_check_end_ns_))) {
    transfer_term_ = term_;
    if (may_stand()) ReportReason(context, StandReason::kSilentMajority);
    BecomeFollower(context, term_, NodeId());
    if (may_stand()) StartPreVote(context);
    return;
  }
  if (!heard) {
    if (!checks_quorum() || context.now_ns >= heartbeat_due_ns_) CheckQuorum(context);
    return;
  }
  if (context.now_ns >= heartbeat_due_ns_) StartHeartbeatRound(context);
  // Not with the heartbeats: each read's round puts those off, and reads may never pause.
  if (context.now_ns >= resend_due_ns_) SendAgain(context);
  StepDownIfStalled(context);
}

void Raft::SendAgain(Context& context) {
  resend_due_ns_ = context.now_ns + HeartbeatInterval_ns();
  ForEach(peers_, [&](size_t member) {
    Progress& progress = progress_[member];
    const bool replicated = progress.replicates();
    progress.ForgetLost(context.now_ns, 2 * HeartbeatInterval_ns());
    counters_.probes += replicated && !progress.replicates();
    if (progress.hole_open()) FillHole(context, member);
    if (progress_[member].snapshot_failed()) AskForSnapshot(context, member);
  });
  ReplicateToAll(context);
  MaybeTransfer(context, MemberOf(transfer_target_));
}

void Raft::On(Context& context, const TransferLeadership& transfer) {
  const size_t member = MemberOf(transfer.target);
  const Configuration& now = configuration();
  const uint32_t staying = now.joint() ? now.next_voters : now.voters;
  if (role_ != Role::kLeader || !IsPeer(member) || ((staying >> member) & 1) == 0) return;
  transfer_target_ = transfer.target;
  // Dissertation section 3.10: a transfer that takes longer than an election timeout is given up.
  transfer_deadline_ns_ = context.now_ns + detector_.network_timeout_ns();
  MaybeTransfer(context, member);
  Replicate(context, member);
}

void Raft::MaybeTransfer(Context& context, size_t member) {
  if (!transfer_target_.IsSet() || !IsPeer(member) || NodeAt(member) != transfer_target_) return;
  if (progress_[member].match() == log_.last_index()) Send(context, transfer_target_, TimeoutNow{});
}

}  // namespace hedgerow::raft
