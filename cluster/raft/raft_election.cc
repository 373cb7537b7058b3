// SPDX-License-Identifier: Apache-2.0
//
// Elections: Raft section 5.2 and 5.4.1, pre-votes (dissertation section 9.6), split votes that are given up early, and
// what brings an election on or puts it off: transfer (dissertation section 3.10), resignation, and a leader whose loop
// is stalled.
#include <algorithm>

#include "cluster/raft/check.h"
#include "cluster/raft/raft.h"

namespace hedgerow::raft {
namespace {

// Terms that are given up one after the other. A candidate with a short log is refused each time, and lets others
// stand.
constexpr uint32_t kGivenUpMax = 2;

}  // namespace

// The stickiness of dissertation section 4.2.3. A leader steps down by itself when it hears no majority.
bool Raft::TrustsLeader(uint64_t now_ns) const {
  return role_ == Role::kLeader ? !checks_quorum() : !detector_.Suspects(now_ns);
}

VoteRequest Raft::VoteRequestFor(Term asked_term, bool pre_vote) const {
  return {.asked_term = asked_term,
          .last_index = log_.last_index(),
          .last_term = log_.last_term(),
          .transfer_term = transfer_term_,
          .pre_vote = pre_vote};
}

// Called before the node forgets the leader that it followed.
void Raft::ReportReason(Context& context, StandReason reason) const {
  context.out.stand =
      Stand{.reason = reason, .term = term_.Next(), .leader = leader_, .silent_ns = detector_.pause_ns(context.now_ns)};
}

// A lower rank than the first has waited for the others.
StandReason Raft::WhyAfterWaiting() const {
  if (role_ != Role::kFollower) return StandReason::kNoLeader;
  if (leader_.IsSet()) return StandReason::kSilentLeader;
  return transfer_term_ > Term() && transfer_term_ == term_ ? StandReason::kResigned : StandReason::kNoLeader;
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

// Raft section 5.2. The node asks for votes, and counts its own, once term and vote are durable: a node that
// forgets that it voted for itself could vote again in this term.
void Raft::StartElection(Context& context) {
  EnterTerm(context, term_.Next(), options_.self);
  own_vote_sequence_ = asked_sequence_;
  own_vote_asked_ns_ = context.now_ns;
  SetRole(context, Role::kCandidate, NodeId());
  DrawElectionDeadline(context);
  votes_ = refusals_ = 0;
  ForEach(peers_ & configuration().deciding(),
          [&](size_t member) { SendOnceDurable(context, NodeAt(member), VoteRequestFor(term_, false)); });
}

void Raft::CountVote(Context& context, size_t member) {
  votes_ |= 1u << member;
  if (!IsQuorum(votes_)) {
    if (role_ == Role::kCandidate) GiveUpIfSplit(context);
    return;
  }
  if (role_ == Role::kPreCandidate) {
    StartElection(context);
  } else {
    BecomeLeader(context);
  }
}

// A split vote (Raft section 5.2) that shows itself: every member but this candidate's voters and the leader that
// resigned has refused, and they are too few to elect another. Each vote and each refusal may complete it. If the
// resigned leader is dead, the term has no leader and will have none; if it lives, a term is lost, at most kGivenUpMax
// of them in a row. The candidates stand again one after the other, by slot, each a tenth of the timeout later and as
// long as a vote takes to be durable, because a dead leader's kernel part may still grant both a pre-vote. For
// availability only (R4).
void Raft::GiveUpIfSplit(Context& context) {
  const uint32_t deciding = configuration().deciding();
  uint32_t others = deciding & ~votes_ & ~(1u << self_);
  if (const size_t resigned = MemberOf(resigned_); resigned != kNoMember) others &= ~(1u << resigned);
  if (refusals_ == 0 || (others & ~refusals_) != 0 || IsQuorum(others) || given_up_ == kGivenUpMax) return;
  ++given_up_;
  ++counters_.terms_given_up;
  const uint64_t timeout_ns = detector_.network_timeout_ns();
  const uint64_t place = hr_raft_count(deciding & (others | votes_) & ((1u << self_) - 1));
  BecomeFollower(context, term_, NodeId());
  election_deadline_ns_ =
      context.now_ns + place * (timeout_ns / 10 + own_vote_took_ns_) + context.random % (timeout_ns / 20 + 1);
}

void Raft::Handle(Context& context, const Message& message, const VoteRequest& request) {
  if (request.asked_term != (request.pre_vote ? message.term.Next() : message.term)) return;
  hr_raft_vote_request asked{.term = request.asked_term.value(),
                             .candidate = message.from.value(),
                             .last_index = request.last_index.value(),
                             .last_term = request.last_term.value(),
                             .transfer_term = request.transfer_term.value()};
  const bool heard = TrustsLeader(context.now_ns);
  VoteReply reply{.asked_term = request.asked_term, .pre_vote = request.pre_vote};
  if (request.pre_vote) {
    const hr_raft_state state = DecisionState();
    reply.granted = hr_raft_may_pre_vote(&state, &asked, heard) == HR_RAFT_YES;
    // A leader records no suspected term: only hearing from a leader clears it, and a leader hears from none.
    if (reply.granted && role_ != Role::kLeader) suspected_term_ = std::max(suspected_term_, request.asked_term);
    Send(context, message.from, reply);
    return;
  }
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
  // Raft section 5.2: a voter that grants waits, so that the candidate can win.
  BecomeFollower(context, term_, leader_);
  DrawElectionDeadline(context);
  reply.granted = true;
  SendOnceDurable(context, message.from, reply);
}

void Raft::Handle(Context& context, const Message& message, const VoteReply& reply) {
  const size_t member = MemberOf(message.from);
  if (!reply.granted) {
    if (role_ == Role::kCandidate && !reply.pre_vote && reply.asked_term == term_ && IsPeer(member)) {
      refusals_ |= 1u << member;
      GiveUpIfSplit(context);
    }
    return;
  }
  if (reply.pre_vote) {
    // A node that would vote for this leader has heard it, and follows none of this term or a later one.
    if (checks_quorum() && reply.asked_term == term_.Next() && IsPeer(member))
      detector_.PeerConfirmed(member, context.now_ns);
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
  transfer_term_ = term_;
  ReportReason(context, StandReason::kAsked);
  StartElection(context);
}

void Raft::On(Context& context, const LeaderResigns& resigns) {
  if (role_ != Role::kFollower || resigns.leader != leader_) return;
  if (resigns.term != term_) return;
  if (!may_stand() || DiskStalls(context.now_ns)) return;
  transfer_term_ = term_;
  resigned_ = resigns.leader;
  if (resigns.rank == 0) {
    ReportReason(context, StandReason::kResigned);
    StartPreVote(context);
    return;
  }
  suspected_term_ = std::max(suspected_term_, term_.Next());
  SetRole(context, Role::kFollower, NodeId());
  election_deadline_ns_ = context.now_ns + resigns.rank * options_.resign_step_ns;
}

// The wait that was drawn begins anew.
void Raft::On(Context& context, const LeaderStalled& stalled) {
  if (role_ != Role::kFollower || stalled.leader != leader_ || stalled.term != term_) return;
  if (detector_.LeaderStalled(context.now_ns)) election_deadline_ns_ = context.now_ns + election_wait_ns_;
}

}  // namespace hedgerow::raft
