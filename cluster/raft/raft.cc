// SPDX-License-Identifier: Apache-2.0
#include "cluster/raft/raft.h"

#include <algorithm>
#include <utility>

#include "cluster/raft/check.h"

namespace hedgerow::raft {
namespace {

// Replies waiting for a slow disk. One that finds no room is lost, as on a network.
constexpr size_t kHeldBackMax = 4096;

}  // namespace

Raft::Raft(Options options, RestoredState restored, uint64_t now_ns, uint64_t random)
    : options_(std::move(options)),
      term_(restored.hard_state.term),
      voted_for_(restored.hard_state.voted_for),
      log_(restored.start, std::move(restored.entries)),
      snapshot_(std::move(restored.snapshot)),
      commit_(snapshot_.last.index),
      applied_(commit_),
      handed_out_(commit_),
      configurations_(commit_, commit_ > LogIndex() ? snapshot_.configuration : options_.initial),
      durable_index_(log_.last_index()),
      detector_(options_),
      asked_reads_(random) {
  static_assert(Configuration::kNoSlot == HR_RAFT_MAX_MEMBERS);
  for (LogIndex index = commit_.Next(); index <= log_.last_index(); index = index.Next()) {
    if (log_.At(index).kind == EntryKind::kConfiguration) TakeConfiguration(log_.At(index));
  }
  RefreshPeers(now_ns);
  HEDGEROW_CHECK(log_.last_term() <= term_);
  HEDGEROW_CHECK(log_.Has(snapshot_.last));
  published_role_.term = published_leader_.term = term_;
  const uint64_t timeout_ns = detector_.timeout_ns();
  election_wait_ns_ = timeout_ns + random % timeout_ns;
  election_deadline_ns_ = now_ns + election_wait_ns_;
}

void Raft::Step(const Event& event, Outputs& outputs) {
  HEDGEROW_CHECK(!outputs.persist.has_value());
  ++steps_;
  Context context{event.now_ns, event.random, outputs};
  std::visit([this, &context](const auto& what) { On(context, what); }, event.what);
  if (checks_quorum() && !detector_.Suspects(context.now_ns)) QuorumConfirmed(context);
  LeadConfiguration(context);
}

void Raft::On(Context& context, const Tick&) {
  ForgiveStandstill(context);
  ExpireReads(context);
  detector_.Poll(context.now_ns);
  if (role_ == Role::kLeader) {
    LeaderTick(context);
    return;
  }
  if (context.now_ns >= election_deadline_ns_ && role_ == Role::kCandidate && durable_sequence_ < own_vote_sequence_) {
    // The other members are asked once this node's own vote is durable. Another term would only wait behind it.
    DrawElectionDeadline(context);
  } else if (context.now_ns >= election_deadline_ns_ && (!may_stand() || DiskStalls(context.now_ns))) {
    // Dissertation section 4.2.1: a learner, or a node that is no member, only waits to be spoken to.
    BecomeFollower(context, term_, NodeId());
    DrawElectionDeadline(context);
  } else if (context.now_ns >= election_deadline_ns_) {
    if (role_ != Role::kFollower) detector_.ElectionFailed();
    ReportReason(context, WhyAfterWaiting());
    StartPreVote(context);
  } else if (context.now_ns >= AskAgain_ns()) {
    AskAgain(context);
  }
}

void Raft::On(Context& context, const Receive& receive) {
  const Message& message = receive.message;
  if (message.to != options_.self || message.from == options_.self) return;
  if (!MayHear(message)) {
    ++refused_messages_;
    return;
  }
  if (!AdoptTerm(context, message)) return;
  std::visit([this, &context, &message](const auto& body) { Handle(context, message, body); }, message.body);
}

// Raft section 5.1: a newer term turns anyone into a follower, an older one is refused. Requests for votes have
// rules of their own (dissertation sections 4.2.3 and 9.6), and a pre-vote may well come from an older term.
bool Raft::AdoptTerm(Context& context, const Message& message) {
  if (std::holds_alternative<VoteRequest>(message.body)) return true;
  const bool append = std::holds_alternative<AppendRequest>(message.body);
  const bool leads = append || std::holds_alternative<Heartbeat>(message.body);
  if (message.term > term_) {
    // It may be a candidate's whose vote no member has given. It may not do what its request for votes may not.
    if (std::holds_alternative<ReadIndexRequest>(message.body)) return false;
    BecomeFollower(context, message.term, leads ? message.from : NodeId());
    return true;
  }
  if (message.term == term_) {
    const bool second = leads && !MayFollow(message.from);
    counters_.impossible += second;
    return !second;
  }
  const auto* vote = std::get_if<VoteReply>(&message.body);
  if (vote != nullptr && vote->pre_vote) return true;
  // So that a leader whose term is over learns of it. It reads no more than the term.
  if (append) Send(context, message.from, AppendReply{});
  if (leads && !append) Send(context, message.from, HeartbeatReply{});
  return false;
}

void Raft::On(Context& context, const Persisted& persisted) {
  HEDGEROW_CHECK(persisted.sequence <= asked_sequence_);
  durable_sequence_ = std::max(durable_sequence_, persisted.sequence);
  while (!writes_.empty() && writes_.front().sequence <= durable_sequence_) {
    durable_index_ = std::max(durable_index_, writes_.front().last);
    writes_.pop_front();
  }
  while (!held_back_.empty() && held_back_.front().first <= durable_sequence_) {
    context.out.send.push_back(std::move(held_back_.front().second));
    held_back_.pop_front();
  }
  if (role_ == Role::kCandidate && durable_sequence_ >= own_vote_sequence_ && ((votes_ >> self_) & 1) == 0) {
    own_vote_took_ns_ = context.now_ns - own_vote_asked_ns_;
    CountVote(context, self_);
  }
  if (role_ == Role::kLeader) MaybeCommit(context);
}

void Raft::On(Context& context, const Applied& applied) {
  HEDGEROW_CHECK(applied.index <= handed_out_);
  // A snapshot that was installed meanwhile may be ahead of it.
  applied_ = std::max(applied_, applied.index);
  ReleaseReads(context);
}

void Raft::On(Context&, const RoundTrip& round_trip) {
  const size_t member = MemberOf(round_trip.peer);
  if (member != kNoMember && member != self_) detector_.AddRoundTrip(member, round_trip.duration_ns);
}

void Raft::BecomeFollower(Context& context, Term term, NodeId leader) {
  HEDGEROW_CHECK(term >= term_);  // R7
  if (term > term_) EnterTerm(context, term, NodeId());
  const bool led = role_ == Role::kLeader;
  SetRole(context, Role::kFollower, leader);
  if (!led) return;
  quorum_check_end_ns_ = 0;
  progress_.clear();
  transfer_target_ = NodeId();
  DrawElectionDeadline(context);
}

void Raft::SetRole(Context& context, Role role, NodeId leader) {
  role_ = role;
  leader_ = leader;
  detector_.Watch(context.now_ns, {.term = term_, .leader = leader, .leads = role == Role::kLeader});
  if (role != published_role_.role || (role != Role::kFollower && term_ != published_role_.term)) {
    published_role_ = {.role = role, .term = term_};
    context.out.role_change = published_role_;
  }
  if (leader == published_leader_.leader && term_ == published_leader_.term) return;
  // What one leader's appends have shown says nothing about the next one's log. A term has but one.
  if (term_ != published_leader_.term) {
    matched_ = LogIndex();
    reorder_buffer_.clear();
  }
  const bool changed = leader.IsSet() || published_leader_.leader.IsSet();
  published_leader_ = {.leader = leader, .term = term_};
  if (changed) context.out.publish_leader = published_leader_;
  LeaderChangedForReads(context);
}

Persist& Raft::ToPersist(Context& context) {
  if (!context.out.persist.has_value()) {
    context.out.persist.emplace().sequence = ++asked_sequence_;
    writes_.push_back({.sequence = asked_sequence_, .last = log_.last_index(), .asked_ns = context.now_ns});
  }
  return *context.out.persist;
}

void Raft::PersistHardState(Context& context) {
  ToPersist(context).hard_state = HardState{.term = term_, .voted_for = voted_for_};
}

void Raft::EnterTerm(Context& context, Term term, NodeId voted_for) {
  HEDGEROW_CHECK(term > term_);  // R7
  term_ = term;
  voted_for_ = voted_for;
  PersistHardState(context);
}

void Raft::AppendToLog(Context& context, Entry entry) {
  Persist& persist = ToPersist(context);
  persist.entries.push_back(entry);
  if (log_.last_index() == commit_) commit_moved_ns_ = context.now_ns;
  log_.Append(std::move(entry));
  writes_.back().last = log_.last_index();
  if (log_.At(log_.last_index()).kind != EntryKind::kConfiguration) return;
  TakeConfiguration(log_.At(log_.last_index()));
  ConfigurationChanged(context);
}

// Dissertation section 4.1: from the moment that it is in the log, committed or not.
void Raft::TakeConfiguration(const Entry& entry) {
  std::optional<Configuration> configuration = DecodeConfiguration(entry.payload.view());
  HEDGEROW_CHECK(configuration.has_value());  // IsWellFormed, and the disk's checksums
  configurations_.Append(entry.index, *std::move(configuration));
}

void Raft::TruncateLog(Context& context, LogIndex from) {
  // Leader Completeness (Raft section 5.4): no leader contradicts a committed entry.
  HEDGEROW_CHECK(from > commit_);
  Persist& persist = ToPersist(context);
  HEDGEROW_CHECK(persist.entries.empty() && !persist.truncate_from.has_value());
  persist.truncate_from = from;
  log_.TruncateFrom(from);
  durable_index_ = std::min(durable_index_, from.Previous());
  for (Write& write : writes_) write.last = std::min(write.last, from.Previous());
  if (configurations_.latest_index() < from) return;
  configurations_.TruncateFrom(from);
  ConfigurationChanged(context);
}

void Raft::AdvanceCommit(Context& context, LogIndex commit) {
  if (commit <= commit_) return;
  HEDGEROW_CHECK(log_.Has(commit));
  const bool was_committed = configuration_committed();
  commit_ = commit;
  commit_moved_ns_ = context.now_ns;
  step_downs_ = 0;
  if (configuration_committed() != was_committed) RefreshPeers(context.now_ns);
  for (; handed_out_ < commit_; handed_out_ = handed_out_.Next()) {
    context.out.apply.push_back(log_.At(handed_out_.Next()));
  }
}

void Raft::Send(Context& context, NodeId to, decltype(Message::body) body) {
  context.out.send.push_back(
      {.from = options_.self, .to = to, .term = term_, .config_epoch = configuration().epoch, .body = std::move(body)});
}

// Raft figure 2: "persistent state ... updated on stable storage before responding to RPCs".
void Raft::SendOnceDurable(Context& context, NodeId to, decltype(Message::body) body) {
  if (durable_sequence_ == asked_sequence_) {
    Send(context, to, std::move(body));
  } else if (held_back_.size() < kHeldBackMax) {
    held_back_.emplace_back(asked_sequence_, Message{.from = options_.self,
                                                     .to = to,
                                                     .term = term_,
                                                     .config_epoch = configuration().epoch,
                                                     .body = std::move(body)});
  }
}

// Raft section 5.2: drawn anew for every wait, once, so that split votes do not repeat.
void Raft::DrawElectionDeadline(Context& context) {
  const bool follows = role_ == Role::kFollower && leader_.IsSet();
  const uint64_t timeout_ns = follows ? detector_.timeout_ns() : detector_.network_timeout_ns();
  election_wait_ns_ = timeout_ns + context.random % timeout_ns;
  election_deadline_ns_ = context.now_ns + election_wait_ns_;
}

uint64_t Raft::HeartbeatInterval_ns() const {
  return detector_.network_timeout_ns() / options_.heartbeats_per_election;
}

uint64_t Raft::next_deadline_ns() const {
  if (role_ == Role::kLeader) {
    const uint64_t next_ns = checks_quorum()
                                 ? std::min(heartbeat_due_ns_, quorum_check_end_ns_)
                                 : std::min({heartbeat_due_ns_, resend_due_ns_, detector_.suspected_from_ns()});
    return transfer_target_.IsSet() ? std::min(next_ns, transfer_deadline_ns_) : next_ns;
  }
  return std::min(election_deadline_ns_, AskAgain_ns());
}

// Under a joint configuration a majority of each (R6).
bool Raft::IsQuorum(uint32_t members) const {
  return hr_raft_is_joint_quorum(members, configuration().voters, configuration().next_voters) != 0;
}

uint64_t Raft::QuorumValue(const Reached& reached) const {
  return hr_raft_quorum_value(reached.data(), configuration().voters, configuration().next_voters);
}

hr_raft_state Raft::DecisionState() const {
  return {.term = term_.value(),
          .voted_for = voted_for_.value(),
          .leader = leader_.value(),
          .last_index = log_.last_index().value(),
          .last_term = log_.last_term().value()};
}

}  // namespace hedgerow::raft
