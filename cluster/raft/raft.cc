// SPDX-License-Identifier: Apache-2.0
//
// Steps, terms, roles and what must be durable before it is said.
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
      reserved_(restored.hard_state.reserved),
      barred_(reserved_ > term_),
      log_(restored.start, std::move(restored.entries)),
      snapshot_(std::move(restored.snapshot)),
      commit_(snapshot_.last.index),
      applied_(commit_),
      handed_out_(commit_),
      configurations_(commit_, commit_ > LogIndex() ? snapshot_.configuration : options_.initial),
      durable_index_(log_.last_index()),
      asked_reads_(random) {
  static_assert(Configuration::kNoPosition == HR_RAFT_MAX_MEMBERS);
  for (LogIndex index = commit_.Next(); index <= log_.last_index(); index = index.Next()) {
    if (log_.At(index).kind == EntryKind::kConfiguration) TakeConfiguration(log_.At(index));
  }
  RefreshPeers(now_ns);
  HEDGEROW_CHECK(log_.last_term() <= term_);
  HEDGEROW_CHECK(log_.Has(snapshot_.last));
  said_role_.term = said_leader_.term = term_;
  const uint64_t timeout_ns = election_timeout_ns();
  election_deadline_ns_ = now_ns + timeout_ns + random % timeout_ns;
}

void Raft::Step(const Event& event, Outputs& outputs) {
  HEDGEROW_CHECK(!outputs.persist.has_value());
  ++steps_;
  Context context{event.now_ns, event.random, outputs};
  if (barred_ && !std::holds_alternative<KernelRemembers>(event.what)) HonourReservation(context);
  std::visit([this, &context](const auto& what) { On(context, what); }, event.what);
  if (doubts_ && MajorityHeard(context.now_ns)) StopDoubting(context);
  LeadConfiguration(context);
}

void Raft::On(Context& context, const Tick&) {
  ForgiveStandstill(context);
  ExpireReads(context);
  LookForSilence(context);
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
    if (role_ != Role::kFollower) ++failed_elections_;
    SayWhy(context, WhyAfterWaiting());
    StartPreVote(context);
  } else if (asked_reads_.asking() && context.now_ns >= asked_reads_.asked_ns() + 2 * HeartbeatInterval_ns()) {
    AskLeader(context);
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
    BecomeFollower(context, message.term, leads ? message.from : NodeId());
    return true;
  }
  if (message.term == term_) return true;
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
  if (role_ == Role::kCandidate && durable_sequence_ >= own_vote_sequence_) CountVote(context, self_);
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
  if (member != kNoMember && member != self_) round_trips_.Add(member, round_trip.duration_ns);
}

void Raft::BecomeFollower(Context& context, Term term, NodeId leader) {
  HEDGEROW_CHECK(term >= term_);  // R7
  if (term > term_) EnterTerm(context, term, NodeId());
  const bool led = role_ == Role::kLeader;
  SetRole(context, Role::kFollower, leader);
  if (!led) return;
  doubts_ = false;
  round_trips_.ForgetDelays();
  progress_.clear();
  transfer_target_ = NodeId();
  DrawElectionDeadline(context);
}

void Raft::SetRole(Context& context, Role role, NodeId leader) {
  role_ = role;
  leader_ = leader;
  silences_.ListenTo({.term = term_, .leader = leader, .leads = role == Role::kLeader});
  if (role != said_role_.role || (role != Role::kFollower && term_ != said_role_.term)) {
    said_role_ = {.role = role, .term = term_};
    context.out.role_change = said_role_;
  }
  if (leader == said_leader_.leader && term_ == said_leader_.term) return;
  // What one leader's appends have shown says nothing about the next one's log. A term has but one.
  if (term_ != said_leader_.term) {
    verified_ = LogIndex();
    early_.clear();
  }
  const bool told = leader.IsSet() || said_leader_.leader.IsSet();
  said_leader_ = {.leader = leader, .term = term_};
  if (told) context.out.publish_leader = said_leader_;
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
  ToPersist(context).hard_state = HardState{.term = term_, .voted_for = voted_for_, .reserved = reserved_};
}

// A reservation that the term has reached has done its work.
void Raft::EnterTerm(Context& context, Term term, NodeId voted_for) {
  HEDGEROW_CHECK(term > term_);  // R7
  term_ = term;
  voted_for_ = voted_for;
  if (term_ >= reserved_) reserved_ = Term();
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
  context.out.send.push_back({.from = options_.self,
                              .to = to,
                              .term = term_,
                              .config_epoch = configuration().epoch,
                              .body = std::move(body)});
}

// Raft figure 2: "persistent state ... updated on stable storage before responding to RPCs".
void Raft::SendOnceDurable(Context& context, NodeId to, decltype(Message::body) body) {
  SendOnceDurable(context, to, std::move(body), asked_sequence_);
}

void Raft::SendOnceDurable(Context& context, NodeId to, decltype(Message::body) body, uint64_t sequence) {
  if (durable_sequence_ >= sequence) {
    Send(context, to, std::move(body));
  } else if (held_back_.size() < kHeldBackMax) {
    const auto later = [](uint64_t wanted, const auto& held) { return wanted < held.first; };
    held_back_.emplace(std::upper_bound(held_back_.begin(), held_back_.end(), sequence, later), sequence,
                       Message{.from = options_.self,
                               .to = to,
                               .term = term_,
                               .config_epoch = configuration().epoch,
                               .body = std::move(body)});
  }
}

// When who is listened to was last heard; for a leader that is a majority.
uint64_t Raft::ListenedToAt_ns() const {
  return role_ == Role::kLeader ? QuorumContact_ns() : leader_heard_ns_;
}

// What has been silent was heard again, perhaps.
void Raft::BreakSilence(const Context& context) {
  silences_.Heard(context.now_ns, ListenedToAt_ns(), options_.floors_per_silence * options_.election_floor_ns);
  tolerated_silence_ns_ = std::min(options_.silences_per_election * silences_.Longest_ns(context.now_ns),
                                   options_.election_cap_ns);
}

void Raft::LookForSilence(const Context& context) {
  BreakSilence(context);
  silences_.Look(context.now_ns);
  // A leader that has not turned was silent, whatever has come meanwhile.
  if (role_ == Role::kLeader) silences_.AtLeast(context.now_ns - looked_ns_);
  looked_ns_ = context.now_ns;
}

// Calm hosts hear each other four times in this.
uint64_t Raft::next_look_ns() const {
  if (role_ != Role::kLeader && !leader_.IsSet()) return UINT64_MAX;
  return std::max(looked_ns_ + kLook_ns, ListenedToAt_ns() + reachable_timeout_ns() / 2);
}

uint64_t Raft::reachable_timeout_ns() const {
  const uint64_t timeout_ns =
      std::max(leader_timeout_ns_, round_trips_.ElectionTimeout_ns(options_, self_, configuration()));
  // Elections that fail twice in a row say that the estimate is too short. Three doublings bridge a floor of 20
  // ms to round trips of 100 ms; more would only delay the recovery from a long partition.
  const uint32_t doublings = std::min(failed_elections_ / 2, uint32_t{3});
  return std::min(timeout_ns << doublings, options_.election_cap_ns);
}

uint64_t Raft::election_timeout_ns() const { return std::max(reachable_timeout_ns(), tolerated_silence_ns_); }

// Raft section 5.2: drawn anew for every wait, once, so that split votes do not repeat.
void Raft::DrawElectionDeadline(Context& context) {
  const bool follows = role_ == Role::kFollower && leader_.IsSet();
  const uint64_t timeout_ns = follows ? election_timeout_ns() : reachable_timeout_ns();
  election_deadline_ns_ = context.now_ns + timeout_ns + context.random % timeout_ns;
}

uint64_t Raft::HeartbeatInterval_ns() const { return reachable_timeout_ns() / options_.heartbeats_per_election; }

uint64_t Raft::next_deadline_ns() const {
  if (role_ == Role::kLeader) {
    const uint64_t next_ns =
        doubts_ ? std::min(heartbeat_due_ns_, doubts_end_ns_)
                : std::min({heartbeat_due_ns_, resend_due_ns_, QuorumHeard_ns() + election_timeout_ns()});
    return transfer_target_.IsSet() ? std::min(next_ns, transfer_deadline_ns_) : next_ns;
  }
  if (!asked_reads_.asking() || !leader_.IsSet()) return election_deadline_ns_;
  return std::min(election_deadline_ns_, asked_reads_.asked_ns() + 2 * HeartbeatInterval_ns());
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
