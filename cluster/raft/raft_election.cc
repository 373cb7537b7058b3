// SPDX-License-Identifier: Apache-2.0
//
// Elections: Raft section 5.2 and 5.4.1, pre-votes (dissertation section 9.6), and the two ways a leader asks
// for one, or not to stand yet: transfer (dissertation section 3.10), resignation and lateness.
#include <algorithm>

#include "cluster/raft/check.h"
#include "cluster/raft/raft.h"

namespace hedgerow::raft {

bool Raft::LeaderHeard(uint64_t now_ns) const {
  if (role_ == Role::kLeader) return !doubts_;  // it steps down by itself when it hears no majority
  return leader_.IsSet() && now_ns - leader_heard_ns_ < election_timeout_ns() + leader_late_by_ns();
}

VoteRequest Raft::VoteRequestFor(Term asked_term, bool pre_vote) const {
  return {.asked_term = asked_term,
          .last_index = log_.last_index(),
          .last_term = log_.last_term(),
          .waived_term = waived_term_,
          .pre_vote = pre_vote};
}

// Before it gives up whom it listened to.
void Raft::SayWhy(Context& context, StandReason reason) const {
  const bool listens = role_ == Role::kLeader || (role_ == Role::kFollower && leader_.IsSet());
  context.out.stand = Stand{.reason = reason,
                            .term = term_.Next(),
                            .leader = leader_,
                            .silent_ns = listens ? context.now_ns - ListenedToAt_ns() : 0};
}

// A lower rank than the first has waited for the others.
StandReason Raft::WhyAfterWaiting() const {
  if (role_ != Role::kFollower) return StandReason::kNoLeader;
  if (leader_.IsSet()) return StandReason::kSilentLeader;
  return waived_term_ > Term() && waived_term_ == term_ ? StandReason::kResigned : StandReason::kNoLeader;
}

// Dissertation section 9.6: a node that could not win does not raise the term.
void Raft::StartPreVote(Context& context) {
  SetRole(context, Role::kPreCandidate, NodeId());
  DrawElectionDeadline(context);
  votes_ = 0;
  AskForPreVotes(context);
  CountVote(context, self_);
}

void Raft::AskForPreVotes(Context& context) {
  ForEach(peers_ & configuration().deciding(),
          [&](size_t member) { Send(context, NodeAt(member), VoteRequestFor(term_.Next(), true)); });
}

// Raft section 5.2. Nobody is asked, and the own vote does not count, before both are durable: a node that
// forgets that it voted for itself could vote again in this term.
void Raft::StartElection(Context& context) {
  EnterTerm(context, term_.Next(), options_.self);
  own_vote_sequence_ = asked_sequence_;
  SetRole(context, Role::kCandidate, NodeId());
  DrawElectionDeadline(context);
  votes_ = 0;
  ForEach(peers_ & configuration().deciding(),
          [&](size_t member) { SendOnceDurable(context, NodeAt(member), VoteRequestFor(term_, false)); });
}

void Raft::CountVote(Context& context, size_t member) {
  votes_ |= 1u << member;
  if (!IsQuorum(votes_)) return;
  if (role_ == Role::kPreCandidate) {
    StartElection(context);
  } else {
    BecomeLeader(context);
  }
}

void Raft::Handle(Context& context, const Message& message, const VoteRequest& request) {
  if (request.asked_term != (request.pre_vote ? message.term.Next() : message.term)) return;
  hr_raft_vote_request asked{.term = request.asked_term.value(),
                             .candidate = message.from.value(),
                             .last_index = request.last_index.value(),
                             .last_term = request.last_term.value(),
                             .waived_term = request.waived_term.value()};
  const bool heard = LeaderHeard(context.now_ns);
  VoteReply reply{.asked_term = request.asked_term, .pre_vote = request.pre_vote};
  if (request.pre_vote) {
    const hr_raft_state state = DecisionState();
    reply.granted = hr_raft_may_pre_vote(&state, &asked, heard) == HR_RAFT_YES;
    // A leader that doubts suspects nobody: it hears of no leader by which that would end.
    if (reply.granted && role_ != Role::kLeader)
      suspected_term_ = std::max(suspected_term_, request.asked_term);
    Send(context, message.from, reply);
    return;
  }
  // R9: what is given in the reserved term, in one write with the term itself, cannot be forgotten unless the
  // reservation stands: it may be said as soon as that is durable.
  const bool reserved = reserved_ != Term() && reserved_ == request.asked_term;
  const uint64_t reserved_sequence = reserved_sequence_;
  hr_raft_state state = DecisionState();
  hr_raft_verdict verdict = hr_raft_may_vote(&state, &asked, heard);
  if (verdict == HR_RAFT_LEADER_ALIVE) return;
  if (verdict == HR_RAFT_NEWER_TERM) {
    BecomeFollower(context, request.asked_term, NodeId());
    state = DecisionState();
    verdict = hr_raft_may_vote(&state, &asked, heard);
  }
  if (verdict != HR_RAFT_YES) {
    Send(context, message.from, reply);
    return;
  }
  if (!voted_for_.IsSet()) {
    voted_for_ = message.from;
    PersistHardState(context);
  }
  // Raft section 5.2: who has given its vote gives the candidate time to win.
  BecomeFollower(context, term_, leader_);
  DrawElectionDeadline(context);
  reply.granted = true;
  SendOnceDurable(context, message.from, reply, reserved ? reserved_sequence : asked_sequence_);
}

void Raft::Handle(Context& context, const Message& message, const VoteReply& reply) {
  if (!reply.granted) return;
  const size_t member = MemberOf(message.from);
  if (reply.pre_vote) {
    // Who would vote for a leader that doubts has heard it, and follows nobody of this term or a later one.
    if (doubts_ && reply.asked_term == term_.Next() && IsPeer(member))
      progress_[member].Vouched(context.now_ns);
    if (role_ != Role::kPreCandidate || reply.asked_term != term_.Next()) return;
  } else {
    // R7: a vote counts only in the term it was given for.
    if (role_ != Role::kCandidate) return;
    if (reply.asked_term != term_) return;
  }
  if (IsPeer(member)) CountVote(context, member);
}

// Dissertation section 3.10. No pre-vote: the leader itself has judged that this node can win.
void Raft::Handle(Context& context, const Message& message, const TimeoutNow&) {
  if (role_ != Role::kFollower || leader_ != message.from || !may_stand() || DiskStalls(context.now_ns)) return;
  waived_term_ = term_;
  SayWhy(context, StandReason::kAsked);
  StartElection(context);
}

void Raft::On(Context& context, const LeaderResigns& resigns) {
  if (role_ != Role::kFollower || resigns.leader != leader_) return;
  if (resigns.term != term_) return;
  if (!may_stand() || DiskStalls(context.now_ns)) return;
  waived_term_ = term_;
  if (resigns.rank == 0) {
    SayWhy(context, StandReason::kResigned);
    StartPreVote(context);
    return;
  }
  suspected_term_ = std::max(suspected_term_, term_.Next());
  SetRole(context, Role::kFollower, NodeId());
  election_deadline_ns_ = context.now_ns + resigns.rank * options_.resign_step_ns;
}

// It is not heard, and the silence goes on. The wait that was drawn begins anew.
void Raft::On(Context& context, const LeaderLate& late) {
  if (role_ != Role::kFollower || late.leader != leader_ || late.term != term_) return;
  if (context.now_ns - leader_heard_ns_ >= options_.floors_late * options_.election_floor_ns) return;
  election_deadline_ns_ += context.now_ns - leader_heard_ns_ - leader_late_by_ns();
  leader_late_ns_ = context.now_ns;
}

}  // namespace hedgerow::raft
