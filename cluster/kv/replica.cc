// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/replica.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <variant>

#include "cluster/raft/check.h"

namespace hedgerow::kv {
namespace {

constexpr uint64_t kReportAgain_ns = 5'000'000'000;
bool IsOwn(const RequestKey& key) { return key.kind == CommandKind::kSettings || key.kind == CommandKind::kPurge; }

constexpr uint64_t kNoRequest = 0;  // a tag; the router's begin at random, and pass it once in 2^64

}  // namespace

Replica::Replica(ReplicaHost& host, ReplicaOptions options, raft::RestoredState restored,
                 std::unique_ptr<StateMachine> state)
    : host_(host),
      policy_(options.snapshots),
      raft_(options.raft, std::move(restored), host.Now_ns(), host.Random()),
      router_(options.raft.self, state_, options.router, host.Random()),
      applied_(raft_.snapshot().last),
      check_every_entries_(options.check_every_entries),
      checks_(options.raft.self),
      seed_(options.seed) {
  HEDGEROW_CHECK((applied_.index == raft::LogIndex()) == (state == nullptr));
  if (state != nullptr) state_ = std::move(*state);
}

void Replica::ReceiveMessage(uint64_t arrived_ns, raft::Message message) {
  if (const auto* reply = std::get_if<raft::HeartbeatReply>(&message.body)) {
    HeartbeatAnswered(arrived_ns, message.from, reply->round);
  }
  Feed(raft::Receive{.message = std::move(message)});
}

void Replica::HeartbeatAnswered(uint64_t arrived_ns, raft::NodeId peer, uint64_t round) {
  HeartbeatRound& sent = heartbeats_[round % heartbeats_.size()];
  if (sent.round != round || sent.sent_ns == 0 || arrived_ns <= sent.sent_ns) return;
  const size_t place = raft_.configuration().SlotOf(peer);
  if (place == raft::Configuration::kNoSlot || ((sent.measured >> place) & 1) != 0) return;
  sent.measured |= 1u << place;
  Feed(raft::RoundTrip{.peer = peer, .duration_ns = arrived_ns - sent.sent_ns});
}

void Replica::ReceiveRequest(uint64_t arrived_ns, Request request) {
  if (!request.is_read() && request.command.key.kind == CommandKind::kCheck) return AddCheck(request.command.key);
  router_.Receive(host_.Now_ns(), arrived_ns, std::move(request), actions_);
  Act();
}

void Replica::ReceiveForwardAnswer(uint64_t tag, raft::NodeId from, const Answer& answer) {
  router_.ForwardAnswered(host_.Now_ns(), tag, from, answer, actions_);
  Act();
}

bool Replica::wants_snapshot(uint64_t times) const {
  // Who has not heard yet of any configuration has nothing that anybody needs.
  return !taking_snapshot() && !outside() && !raft_.ConfigurationAt(applied_.index).members.empty() &&
         (entries_since_snapshot_ / times >= policy_.every_entries ||
          bytes_since_snapshot_ / times >= policy_.every_bytes);
}

raft::Snapshot Replica::BeginSnapshot(size_t chunk_bytes) {
  state_.BeginSnapshot(chunk_bytes);
  entries_since_snapshot_ = bytes_since_snapshot_ = 0;
  return {.last = applied_, .configuration = raft_.ConfigurationAt(applied_.index)};
}

std::vector<std::string> Replica::ContinueSnapshot(size_t bytes) {
  std::vector<std::string> chunks = state_.ContinueSnapshot(bytes);
  if (!state_.taking_snapshot() && !state_.snapshot_is_sound()) {
    checks_.FoundFault(applied_.index);
    ProposeCheck(applied_.index, StateChecks::kFault);
    FollowChecks();
  }
  return chunks;
}

void Replica::ReceiveSnapshot(raft::SnapshotReceived received, std::unique_ptr<StateMachine> state) {
  received_.push_back(std::move(state));
  Feed(std::move(received));
}

bool Replica::ChangeSettings(SettingValues values) {
  if (own_.size() >= kOwnMax) return false;
  QueueOwn({.key = {.kind = CommandKind::kSettings}, .settings = std::move(values)});
  return true;
}

void Replica::QueueOwn(Command command) {
  if (!proposals_.leads()) return;
  own_.push_back(std::move(command));
  proposals_.Add({.tag = kNoRequest, .key = own_.back().key});
}

// A portion takes the loop some 100 us, however many keys there are: so many looks, or so many entries.
std::optional<Replica::Purged> Replica::PurgeSome(const std::string& prefix, MapWalk& walk) {
  constexpr int kLooksMax = 2000;
  constexpr size_t kEntriesMax = kOwnMax / 2;
  if (!proposals_.leads() || own_.size() > kOwnMax - kEntriesMax) return std::nullopt;
  Purged purged;
  std::vector<Operation> deletes;
  const auto look = [&prefix, &deletes](const std::string& key) {
    if (key.starts_with(prefix)) deletes.push_back({.kind = OperationKind::kDelete, .key = key});
  };
  // A bucket is a handful of keys, and an entry's room is left for it.
  for (int looks = 0; looks < kLooksMax && deletes.size() < (kEntriesMax - 1) * kOperationsMax; ++looks) {
    purged.done = !state_.VisitSomeKeys(walk, look);
    if (purged.done) break;
  }
  purged.keys = deletes.size();
  for (auto first = deletes.begin(); first != deletes.end();) {
    const auto end = first + std::min<ptrdiff_t>(kOperationsMax, deletes.end() - first);
    QueueOwn({.key = {.kind = CommandKind::kPurge},
              .operations = {std::make_move_iterator(first), std::make_move_iterator(end)}});
    first = end;
  }
  return purged;
}

void Replica::Tick() {
  const uint64_t now_ns = host_.Now_ns();
  if (now_ns >= router_.next_deadline_ns()) {
    router_.Tick(now_ns, actions_);
    Act();
  }
  if (now_ns >= std::min(raft_.next_deadline_ns(), raft_.detector().next_poll_ns())) Feed(raft::Tick{});
  if (!serves() && raft_.role() == raft::Role::kLeader && now_ns >= step_aside_ns_) StepAside();
  if (outside() && now_ns >= report_again_ns_) ReportOutside();
  if (now_ns >= next_time_tick_ns()) proposals_.Add({.tag = kNoRequest, .key = {.kind = CommandKind::kTick}});
}

uint64_t Replica::next_deadline_ns() const {
  const bool leads_unfit = !serves() && raft_.role() == raft::Role::kLeader;
  return std::min({raft_.next_deadline_ns(), raft_.detector().next_poll_ns(), router_.next_deadline_ns(),
                   next_time_tick_ns(), leads_unfit ? step_aside_ns_ : UINT64_MAX,
                   outside() ? report_again_ns_ : UINT64_MAX});
}

// Commands move committed time, and without any it would stand still: nothing would end while nobody writes.
uint64_t Replica::next_time_tick_ns() const {
  if (raft_.role() != raft::Role::kLeader || !state_.waits_for_time() || !proposals_.empty()) return UINT64_MAX;
  return proposed_ns_ + kTick_ns;
}

void Replica::Settle() {
  router_.BeginAnswers();
  while (true) {
    if (!todo_.empty()) {
      decltype(raft::Event::what) what = std::move(todo_.front());
      todo_.pop_front();
      Step(std::move(what));
    } else if (!Propose()) {
      break;
    }
  }
  router_.HandsOver(raft_.transferring());
  if (proposals_.empty()) return;
  // The log has no room, or another node is to lead. Nothing waits for that longer than for a leader.
  proposals_.DropUnwanted(router_.waiting(),
                          [this](const RequestKey& key) { return IsOwn(key) || router_.IsProposed(key); });
  proposals_.StillQueued([this](const ProposeCommand& proposal) { router_.Queued(proposal.key); });
}

// Who does not lead is told so by the core, whatever the room. While leadership is handed over nothing is
// proposed: who takes over gets what waits (LeaderChanged); and if nobody does, no other event would tell.
bool Replica::MayPropose() const {
  const raft::Options& options = raft_.options();
  return raft_.role() != raft::Role::kLeader ||
         (!raft_.transferring() && raft_.outstanding_entries() < options.uncommitted_max_entries &&
          raft_.outstanding_bytes() < options.uncommitted_max_bytes);
}

bool Replica::Propose() {
  if (proposals_.empty() || !MayPropose()) return false;
  raft::Propose propose = TakeProposals();
  if (!propose.proposals.empty()) Step(std::move(propose));
  Act();
  return true;
}

void Replica::Step(decltype(raft::Event::what) what) {
  outputs_.Clear();
  const auto* const snapshot = std::get_if<raft::SnapshotReceived>(&what);
  const std::optional<raft::Snapshot> received = snapshot != nullptr ? std::optional(snapshot->snapshot) : std::nullopt;
  raft_.Step({.now_ns = host_.Now_ns(), .random = host_.Random(), .what = std::move(what)}, outputs_);
  host_.Stepped(outputs_);
  Carry();
  if (!received.has_value()) return;
  if (outside()) Mend(*received, received_.front());
  // The state that was replaced, or the one that was not needed.
  host_.Retire(std::move(received_.front()));
  received_.pop_front();
}

// What a step sends at once promises nothing that its write must cover (the core holds that back: outputs.h),
// so it goes first: a leader's followers store an entry while its own disk does (dissertation section 10.2.1).
void Replica::Carry() {
  for (raft::Message& message : outputs_.send) SendMessage(std::move(message));
  if (outputs_.persist.has_value()) host_.Persist(std::move(*outputs_.persist));
  if (outputs_.install.has_value()) Install();
  Apply();
  for (const raft::SnapshotNeeded& needed : outputs_.snapshots_needed) {
    host_.SnapshotNeeded(needed.to, needed.at_least);
  }
  for (const raft::MembershipAnswer& answer : outputs_.membership_answers) host_.MembershipAnswered(answer);
  if (outputs_.configuration.has_value()) host_.ConfigurationIs(*outputs_.configuration);
  const uint64_t now_ns = host_.Now_ns();
  if (!outputs_.refused_proposals.empty()) ProposalsRefused();
  for (const raft::ReadReady& read : outputs_.reads_ready) router_.ReadReady(read.tag, actions_);
  if (!outputs_.tail_reads.empty()) ReadTail();
  for (const raft::Refusal& refusal : outputs_.refused_reads) router_.ReadRefused(refusal.tag, actions_);
  if (outputs_.role_change.has_value()) {
    proposals_.EndToLead();
    own_.clear();
  }
  if (outputs_.role_change.has_value() && outputs_.role_change->role == raft::Role::kLeader) {
    proposals_.BeginToLead(raft_.log(), applied_.index, raft_.options().uncommitted_max_entries);
    clock_.StartTerm(host_.StampClock_ns());
    proposed_ns_ = host_.Now_ns();
    // Before any other command of its term. Where an entry that is not applied yet has set them, it changes nothing.
    if (seed_.has_value() && !state_.settings().set()) {
      const uint64_t log_uuid = std::max<uint64_t>(host_.Random(), 1);
      QueueOwn({.key = {.kind = CommandKind::kSettings, .a = kSeed, .b = log_uuid}, .settings = ValuesOf(*seed_)});
    }
    host_.BecameLeader();
  }
  if (outputs_.publish_leader.has_value()) {
    host_.LeaderIs(outputs_.publish_leader->leader, outputs_.publish_leader->term);
    router_.LeaderChanged(now_ns, outputs_.publish_leader->leader, actions_);
  }
  Act();
}

void Replica::SendMessage(raft::Message message) {
  if (const auto* heartbeat = std::get_if<raft::Heartbeat>(&message.body)) {
    HeartbeatRound& sent = heartbeats_[heartbeat->round % heartbeats_.size()];
    if (sent.round != heartbeat->round) sent = {.round = heartbeat->round, .sent_ns = host_.Now_ns(), .measured = 0};
  }
  host_.Send(std::move(message));
}

// Swapped and not copied: a state of gigabytes takes no longer than an empty one. A snapshot that is being
// taken of the old state goes with it.
void Replica::Install() {
  HEDGEROW_CHECK(received_.front() != nullptr);
  std::swap(state_, *received_.front());
  applied_ = outputs_.install->last;
  unreadable_ = {};
  checks_.StateReplaced();
  FollowChecks();
  entries_since_snapshot_ = bytes_since_snapshot_ = 0;
  router_.StateReplaced(actions_);
}

void Replica::Apply() {
  if (outputs_.apply.empty()) return;
  const std::span<const raft::Entry> entries(outputs_.apply);
  for (size_t begin = 0; begin < entries.size() && unreadable_ == raft::LogIndex(); begin += commands_.size()) {
    ApplySome(entries.subspan(begin, std::min(commands_.size(), entries.size() - begin)));
  }
  Feed(raft::Applied{.index = applied_.index});
  if (raft_.leader().IsSet() && applied_.index >= raft_.commit()) router_.CaughtUp();
}

// The keys that entries may change which are in the log and not applied, be they committed or not. Nothing: any.
std::optional<std::set<std::string>> Replica::KeysOfTail() const {
  std::set<std::string> keys;
  const raft::LogIndex last = raft_.log().last_index();
  if (last > applied_.index + raft_.options().uncommitted_max_entries) return std::nullopt;
  for (raft::LogIndex index = applied_.index.Next(); index <= last; index = index.Next()) {
    const raft::Entry& entry = raft_.log().At(index);
    if (entry.kind != raft::EntryKind::kCommand) continue;
    const std::optional<Command> command = Decode(entry.payload.view());
    if (!command.has_value()) return std::nullopt;
    for (const Operation& operation : command->operations) keys.insert(operation.key);
  }
  return keys;
}

// What is applied and where the log ends tell all entries between (Log Matching, Raft section 5.3).
bool Replica::TailMayChange(const std::string& key) {
  if (tail_.applied != applied_.index || tail_.last != raft_.log().last()) {
    tail_ = {.applied = applied_.index, .last = raft_.log().last(), .keys = KeysOfTail()};
  }
  return !tail_.keys.has_value() || tail_.keys->contains(key);
}

// R8. A memcached item may also end by the time that an entry tells: its read waits for them all.
void Replica::ReadTail() {
  for (const raft::TailRead& read : outputs_.tail_reads) {
    const std::string* const key = router_.ReadKey(read.tag);
    if (key != nullptr && !TailMayChange(*key)) {
      router_.ReadReady(read.tag, actions_);
    } else {
      Feed(raft::Read{.tag = read.tag, .deadline_ns = read.deadline_ns, .up_to = read.up_to});
    }
  }
}

// At most as many as commands_ has room for. All are decoded before the first is applied, so that what they
// need is on its way from memory meanwhile.
void Replica::ApplySome(std::span<const raft::Entry> entries) {
  size_t decoded = 0;
  for (const raft::Entry& entry : entries) {
    if (entry.kind != raft::EntryKind::kCommand) continue;
    if (!DecodeInto(entry.payload.view(), commands_[decoded])) {
      unreadable_ = entry.index;
      entries = entries.first(entry.index.value() - entries.front().index.value());
      FollowChecks();
      break;
    }
    ++decoded;
  }
  state_.Prefetch(std::span(commands_).first(decoded));
  const Command* command = commands_.data();
  for (const raft::Entry& entry : entries) {
    applied_ = {.index = entry.index, .term = entry.term};
    ++entries_since_snapshot_;
    bytes_since_snapshot_ += raft::CostBytes(entry);
    if (entry.kind == raft::EntryKind::kCommand) {
      const Result result = state_.Apply(entry.index.value(), *command);
      proposals_.RemoveProposed(command->key);
      const bool of_this_term = raft_.role() == raft::Role::kLeader && entry.term == raft_.term();
      router_.Applied(host_.Now_ns(), command->key, result, of_this_term, actions_);
      if (command->key.kind == CommandKind::kCheck && command->key.d == StateChecks::kFormat) {
        const RequestKey& check = command->key;
        checks_.Count(entry.index, raft::LogIndex(check.a), raft::NodeId(check.c), check.b,
                      raft_.ConfigurationAt(entry.index));
        FollowChecks();
      }
      ++command;
    }
    if (entry.kind == raft::EntryKind::kConfiguration) checks_.KeepOnly(raft_.ConfigurationAt(entry.index));
    if (entry.index.value() % check_every_entries_ == 0) RecordFingerprint();
    host_.Applied(entry.index, state_);
  }
}

void Replica::RecordFingerprint() {
  const uint64_t fingerprint = state_.fingerprint();
  checks_.Record(applied_.index, fingerprint);
  ProposeCheck(applied_.index, fingerprint);
}

// A fingerprint that is lost is missing in one comparison. That a node is outside is reported again (ReportOutside).
void Replica::ProposeCheck(raft::LogIndex index, uint64_t fingerprint) {
  if (raft_.configuration().Find(raft_.options().self) == nullptr) return;
  const RequestKey key{.kind = CommandKind::kCheck,
                       .a = index.value(),
                       .b = fingerprint,
                       .c = raft_.options().self.value(),
                       .d = StateChecks::kFormat};
  if (proposals_.leads()) {
    AddCheck(key);
  } else if (raft_.leader().IsSet()) {
    host_.Send(Forward{.tag = kNoRequest, .to = raft_.leader(), .request = {.command = {.key = key}, .hops = 1}});
  } else {
    checks_.NotProposed();
  }
}

void Replica::AddCheck(const RequestKey& check) {
  if (!proposals_.leads()) return checks_.NotProposed();
  proposals_.Add({.tag = kNoRequest, .key = check});
}

// Until a snapshot has mended this node: a report may be lost, and a leader that has restarted knows of none.
void Replica::ReportOutside() {
  report_again_ns_ = host_.Now_ns() + kReportAgain_ns;
  ProposeCheck(applied_.index, StateChecks::kFault);
}

void Replica::SetRemoved(bool removed) {
  removed_ = removed;
  raft_.SetMayLead(served_ && !removed_);
}

void Replica::FollowChecks() {
  if (serves() == served_) return;
  served_ = serves();
  raft_.SetMayLead(served_ && !removed_);
  router_.SetServes(served_);
  if (!served_ && state_.taking_snapshot()) state_.AbandonSnapshot();
  step_aside_ns_ = host_.Now_ns();
  report_again_ns_ = host_.Now_ns() + kReportAgain_ns;
}

// To the voter of the majority that has most of the log. Where there is none, this node leads on and serves nobody.
void Replica::StepAside() {
  step_aside_ns_ = host_.Now_ns() + 2 * raft_.detector().network_timeout_ns();
  const raft::Configuration& configuration = raft_.configuration();
  raft::NodeId best;
  raft::LogIndex best_match;
  for (const raft::Member& member : configuration.members) {
    const bool decides = ((configuration.deciding() & raft_.peers()) >> member.slot & 1) != 0;
    if (!decides || checks_.outside().contains(member.id)) continue;
    const raft::LogIndex match = raft_.progress()[member.slot].match();
    if (best.IsSet() && match <= best_match) continue;
    best = member.id;
    best_match = match;
  }
  if (best.IsSet()) Feed(raft::TransferLeadership{.target = best});
}

// The log is right, and only what was made of it is not: what the log holds beyond the snapshot is applied once more.
// The snapshot becomes this node's own, since the one that it had may be of a state that was wrong already.
void Replica::Mend(const raft::Snapshot& snapshot, std::unique_ptr<StateMachine>& state) {
  const raft::LogIndex last = snapshot.last.index;
  const raft::LogIndex applied = applied_.index;
  if (last > applied || last < raft_.log().start().index || last <= raft_.snapshot().last.index) return;
  if (state_.taking_snapshot()) state_.AbandonSnapshot();
  std::swap(state_, *state);
  checks_.StateReplaced();
  FollowChecks();
  Command command;
  for (raft::LogIndex index = last.Next(); index <= applied; index = index.Next()) {
    const raft::Entry& entry = raft_.log().At(index);
    if (entry.kind != raft::EntryKind::kCommand) continue;
    HEDGEROW_CHECK(DecodeInto(entry.payload.view(), command));  // it was applied before
    (void)state_.Apply(index.value(), command);
  }
  entries_since_snapshot_ = bytes_since_snapshot_ = 0;
  router_.StateReplaced(actions_);
  Act();
  Feed(raft::SnapshotTaken{.snapshot = snapshot});
}

// An earlier program would put what it does not know into its log.
void Replica::On(Forward& forward) {
  if ((known_to_all() & kCameFeature) == 0) forward.request.command.came_ns = 0;
  host_.Send(std::move(forward));
}

void Replica::Act() {
  for (Action& action : actions_) {
    std::visit([this](auto& what) { On(what); }, action);
  }
  actions_.clear();
}

// Stamped here and not before: between a request's coming and this step the node may have lost the lead and won
// it again, and the time of somebody else's term is not this leader's to tell. No more than the log has room
// for: by the time there is, nobody may want the rest.
raft::Propose Replica::TakeProposals() {
  const raft::Options& options = raft_.options();
  const bool leads = raft_.role() == raft::Role::kLeader;
  const uint64_t now_ns = host_.Now_ns();
  uint64_t entries = raft_.outstanding_entries();
  uint64_t bytes = raft_.outstanding_bytes();
  raft::Propose propose;
  batch_.clear();
  proposed_ns_ = now_ns;
  while (!proposals_.empty() &&
         (!leads || (entries < options.uncommitted_max_entries && bytes < options.uncommitted_max_bytes))) {
    const ProposeCommand proposal = proposals_.TakeFirst();
    const RequestKey& key = proposal.key;
    Command command{.key = key};
    if (IsOwn(key)) {
      command = std::move(own_.front());
      own_.pop_front();
    } else if (proposal.tag != kNoRequest) {
      const RequestRouter::Wanted wanted = router_.MayBeProposed(now_ns, key, actions_);
      if (wanted.command == nullptr) {
        ++proposals_.counters.unwanted;
        continue;
      }
      if (!proposals_.AddProposed(key)) continue;  // its client is answered once that entry is applied
      command = *wanted.command;
      command.came_ns = (known_to_all() & kCameFeature) != 0 ? wanted.came_ns : 0;
      if (key.kind == CommandKind::kMemcached) command.age_ns = wanted.age_ns;
      // In the entry, so that all replicas give the session one name.
      if (key.kind == CommandKind::kOpen) {
        command.session = {.id = std::max<uint64_t>(host_.Secret(), 1), .token = host_.Secret()};
      }
    }
    if (leads && (FeaturesNeeded(command) & ~known_to_all()) != 0) {
      NotKnownToAll(proposal);
      continue;
    }
    command.elapsed_ns = clock_.Elapsed_ns(host_.StampClock_ns());
    raft::Payload payload(Encode(command));
    ++entries;
    bytes += raft::CostBytes(raft::Entry{.payload = payload});
    batch_.emplace_back(proposal.tag, key);
    propose.proposals.push_back({.tag = proposal.tag, .payload = std::move(payload)});
  }
  return propose;
}

void Replica::NotKnownToAll(const ProposeCommand& proposal) {
  ++proposals_.counters.not_known_to_all;
  if (proposal.key.kind == CommandKind::kCheck) checks_.NotProposed();
  proposals_.RemoveProposed(proposal.key);
  if (proposal.tag != kNoRequest)
    router_.ProposalRefused(host_.Now_ns(), proposal.key, raft::RefusalReason::kOverloaded, actions_);
}

void Replica::ProposalsRefused() {
  auto proposed = batch_.begin();
  for (const raft::Refusal& refusal : outputs_.refused_proposals) {
    while (proposed != batch_.end() && proposed->first != refusal.tag) ++proposed;
    HEDGEROW_CHECK(proposed != batch_.end());
    proposals_.RemoveProposed(proposed->second);
    if (refusal.tag != kNoRequest) {
      router_.ProposalRefused(host_.Now_ns(), proposed->second, refusal.reason, actions_);
    }
    ++proposed;
  }
}

}  // namespace hedgerow::kv
