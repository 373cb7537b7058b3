// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/state_machine.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "cluster/kv/content_hash.h"
#include "cluster/kv/features.h"
#include "cluster/raft/check.h"

namespace hedgerow::kv {
namespace {

std::optional<int64_t> ParseNumber(const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// The sum as text; nothing: what is there is no number, or the sum passes 64 bits. No text counts as 0.
std::optional<std::string> Incremented(const std::string* current, int64_t delta) {
  const std::optional<int64_t> number = current != nullptr ? ParseNumber(*current) : 0;
  int64_t sum = 0;
  if (!number.has_value() || __builtin_add_overflow(*number, delta, &sum)) return std::nullopt;
  return std::to_string(sum);
}

}  // namespace

Result StateMachine::Apply(uint64_t index, const Command& command) {
  const bool late = IsLate(command);
  if (command.came_ns != 0) features_ |= kCameFeature;
  now_ns_ += command.elapsed_ns;
  sessions_.Expire(now_ns_);
  window_.Expire(now_ns_);
  memcached_.Expire(now_ns_, index, command.key.kind == CommandKind::kTick);
  Result result;
  switch (command.key.kind) {
    case CommandKind::kOpen: result = ApplyOpen(command); break;
    case CommandKind::kWrite: result = ApplyInSession(command, memory().total()); break;
    case CommandKind::kWindowed: result = ApplyInWindow(command, memory().total(), late); break;
    case CommandKind::kMemcached: result = ApplyMemcached(index, command, late); break;
    case CommandKind::kTick:
    case CommandKind::kCheck: break;
    case CommandKind::kSettings: result = ApplySettings(command); break;
    case CommandKind::kPurge: ApplyPurge(command); break;
  }
  return result;
}

// By what the log has counted since: a node whose machine stood still does not know how long a copy lay before
// it. While requests are known, time is told, so all of it counts; when none is, it was told until the last one
// ended, and has rested since.
bool StateMachine::IsLate(const Command& command) const {
  const uint64_t until_ns = now_ns_ + (waits_for_time() ? command.elapsed_ns : 0);
  return command.came_ns != 0 && until_ns > command.came_ns + kCopyAgeMax_ns;
}

MemoryUse StateMachine::memory() const {
  return {.values = values_.bytes(),
          .sessions = sessions_.bytes(),
          .answers = sessions_.answer_bytes(),
          .items = memcached_.item_bytes(),
          .requests = window_.bytes() + memcached_.request_bytes()};
}

// Of what cannot be found any more, as much as `bytes` more need. A part, where a lower limit has left too much: the
// next commands free more.
void StateMachine::FreeFor(uint64_t bytes) {
  constexpr int kFreedMax = 1024;
  for (int freed = 0; memory().total() + bytes > settings_.memory_bytes && freed < kFreedMax; ++freed) {
    if (!memcached_.FreeSome(now_ns_, 1)) return;
  }
}

// For a command by which what is stored grows by so much, or shrinks, and of which so much is remembered. One that ends
// with no more than it found has room, whatever the limit has become; one that stores nothing more may use the reserve.
bool StateMachine::HasRoom(int64_t growth_bytes, size_t record_bytes, uint64_t before_bytes) {
  const uint64_t limit = settings_.memory_bytes;
  const int64_t more_bytes = growth_bytes + static_cast<int64_t>(record_bytes);
  if (more_bytes > 0) FreeFor(static_cast<uint64_t>(more_bytes));
  const uint64_t after = memory().total() + static_cast<uint64_t>(more_bytes);
  return after <= limit || after <= before_bytes || (growth_bytes <= 0 && after <= WithHalfReserve(limit));
}

// Whatever the operations find: then nothing need be looked up for their sake.
bool StateMachine::IsRoomy(const std::vector<Operation>& operations, size_t overhead_bytes) const {
  constexpr size_t kNumber_bytes = 20;
  size_t most = overhead_bytes;
  for (const Operation& operation : operations) {
    most += Store::ChargeOf(operation.key, operation.value) + kResultValueOverhead_bytes + 2 * kNumber_bytes;
  }
  return memory().total() + most <= settings_.memory_bytes;
}

// A session that never wrote makes room for another, in a full store as well.
Result StateMachine::ApplyOpen(const Command& command) {
  const bool known = sessions_.OpenAnswer(command.key.a) != nullptr;
  const auto has_room = [this] { return HasRoom(0, kSessionOverhead_bytes, 0); };
  if (!known && !has_room() && !(sessions_.EvictUnwritten() && has_room())) return {.code = ResultCode::kOverloaded};
  const Result* const opened = sessions_.Open(command.key.a, command.session, now_ns_);
  return opened != nullptr ? *opened : Result{.code = ResultCode::kOverloaded};
}

// The requests of memcached's clients end by time alone, so they may use all of the reserve.
Result StateMachine::ApplyMemcached(uint64_t index, const Command& command, bool late) {
  constexpr size_t kNumber_bytes = 20;
  constexpr size_t kRecord_bytes = kRequestOverhead_bytes + kResultValueOverhead_bytes + kNumber_bytes;
  const uint64_t limit = settings_.memory_bytes;
  const size_t most = command.item.key.size() + kItemMax_bytes + kItemOverhead_bytes + kRecord_bytes;
  if (memory().total() + most > limit) FreeFor(most);
  const uint64_t with_record = memory().total() + kRecord_bytes;
  if (with_record > WithReserve(limit)) return {.code = ResultCode::kOverloaded, .session = 0, .values = {}};
  return memcached_.Apply(index, command, now_ns_, limit - std::min(limit, with_record), late);
}

void StateMachine::ApplyPurge(const Command& command) {
  for (const Operation& operation : command.operations) values_.Erase(operation.key);
}

// All or nothing. The other limits change what the next command finds, and end nothing here: what a shorter time
// ends, the next command's Expire ends.
Result StateMachine::ApplySettings(const Command& command) {
  if (command.key.a == kSeed && settings_.set()) return {.code = ResultCode::kMismatch, .session = 0, .values = {}};
  Settings next = settings_;
  for (const SettingValue& value : command.settings) Set(next, value.setting, value.value);
  if (!window_.MayTake(next.window) || !memcached_.MayTake(next.memcached)) {
    return {.code = ResultCode::kOverloaded, .session = 0, .values = {}};
  }
  if (!settings_.set()) log_uuid_ = command.key.b;
  ++next.version;
  settings_ = next;
  FollowSettings();
  return {};
}

void StateMachine::FollowSettings() {
  sessions_.SetLimits(settings_.sessions);
  window_.SetLimits(settings_.window, now_ns_);
  memcached_.SetLimits(settings_.memcached, now_ns_);
}

bool StateMachine::Restore(const SnapshotHeader& header, bool with_settings) {
  now_ns_ = header.committed_ns;
  log_uuid_ = header.log_uuid;
  features_ = header.features;
  memcached_.RestoreFlush(header.items_flushed_before, header.items_flush_at_ns);
  if (!with_settings) return true;
  settings_ = header.settings;
  sessions_.SetLimits(settings_.sessions);
  return window_.Restore(settings_.window, header.window_steps) &&
         memcached_.RestoreLimits(settings_.memcached, header.memcached_window_steps);
}

// Sessions are fewer than keys, and mostly still in the cache: to fetch them as well gained nothing measurable.
void StateMachine::Prefetch(std::span<const Command> commands) const {
  for (const Command& command : commands) {
    for (const Operation& operation : command.operations) values_.PrefetchPlace(operation.key);
  }
  for (const Command& command : commands) {
    for (const Operation& operation : command.operations) values_.PrefetchValue(operation.key);
  }
}

Result StateMachine::ApplyInSession(const Command& command, uint64_t before_bytes) {
  const RequestKey& key = command.key;
  switch (sessions_.Arrive(key, command.lowest_unanswered, now_ns_)) {
    case SessionTable::SequenceStatus::kUnknown:
      return {.code = ResultCode::kUnknownSession, .session = 0, .values = {}};
    case SessionTable::SequenceStatus::kBelowLowest:
      return {.code = ResultCode::kBelowLowest, .session = 0, .values = {}};
    case SessionTable::SequenceStatus::kFull: return {.code = ResultCode::kOverloaded, .session = 0, .values = {}};
    case SessionTable::SequenceStatus::kAnswered: return *sessions_.Answer(key);
    case SessionTable::SequenceStatus::kFresh: break;
  }
  Result result = Execute(command.operations, {.before_bytes = before_bytes, .overhead_bytes = kAnswerOverhead_bytes});
  if (result.code != ResultCode::kOverloaded) sessions_.Record(key, result, !command.operations.empty());
  return result;
}

Result StateMachine::ApplyInWindow(const Command& command, uint64_t before_bytes, bool late) {
  if (const Result* known = window_.AnswerOnce(command.key)) return *known;
  if (late) return {.code = ResultCode::kSuperseded, .session = 0, .values = {}};
  if (window_.full()) return {.code = ResultCode::kOverloaded, .session = 0, .values = {}};
  Result result = Execute(command.operations, {.before_bytes = before_bytes, .overhead_bytes = kRequestOverhead_bytes});
  if (result.code != ResultCode::kOverloaded) window_.Record(command.key, result, now_ns_, now_ns_);
  return result;
}

// All or nothing: changes are gathered, and made once nothing can fail any more. That there is no room is remembered
// like any other outcome, so it is final; kOverloaded is not: not even that could be remembered.
Result StateMachine::Execute(const std::vector<Operation>& operations, const Room& room) {
  Result result;
  Changes changes;
  if (IsRoomy(operations, room.overhead_bytes)) {
    if (operations.size() == 1) return ExecuteOne(operations.front());
    result = Gather(operations, changes);
    if (result.code == ResultCode::kOk) Make(changes);
    return result;
  }
  result = Gather(operations, changes);
  if (result.code == ResultCode::kOk) {
    if (HasRoom(GrowthOf(changes), room.overhead_bytes + ChargeOf(result), room.before_bytes)) {
      Make(changes);
      return result;
    }
    result = {.code = ResultCode::kNoRoom, .session = 0, .values = {}};
  }
  if (HasRoom(0, room.overhead_bytes + ChargeOf(result), room.before_bytes)) return result;
  return {.code = ResultCode::kOverloaded, .session = 0, .values = {}};
}

int64_t StateMachine::GrowthOf(const Changes& changes) const {
  int64_t growth = 0;
  for (const auto& [key, value] : changes) {
    if (const std::string* const former = values_.Find(key))
      growth -= static_cast<int64_t>(Store::ChargeOf(key, *former));
    if (value.has_value()) growth += static_cast<int64_t>(Store::ChargeOf(key, *value));
  }
  return growth;
}

void StateMachine::Make(Changes& changes) {
  for (auto& [key, value] : changes) {
    if (value.has_value()) {
      values_.Put(key, *value);
    } else {
      values_.Erase(key);
    }
  }
}

// A later operation sees an earlier one's change.
Result StateMachine::Gather(const std::vector<Operation>& operations, Changes& changes) const {
  Result result;
  for (const Operation& operation : operations) {
    const auto changed = changes.find(operation.key);
    const std::optional<std::string> current = changed != changes.end() ? changed->second : Get(operation.key);
    std::optional<std::string>& next = changes[operation.key];
    std::string said;
    switch (operation.kind) {
      case OperationKind::kPut: next = operation.value; break;
      case OperationKind::kDelete: next.reset(); break;
      case OperationKind::kCompareAndSet:
        if (current != operation.expected) return {.code = ResultCode::kMismatch, .session = 0, .values = {}};
        next = operation.value;
        break;
      case OperationKind::kIncrement: {
        const std::optional<std::string> sum = Incremented(current.has_value() ? &*current : nullptr, operation.delta);
        if (!sum.has_value()) return {.code = ResultCode::kNotANumber, .session = 0, .values = {}};
        next = said = *sum;
        break;
      }
    }
    result.values.push_back(std::move(said));
  }
  return result;
}

// The same for one alone, which most are: there is nothing to gather.
Result StateMachine::ExecuteOne(const Operation& operation) {
  Result result{.code = ResultCode::kOk, .session = 0, .values = std::vector<std::string>(1)};
  switch (operation.kind) {
    case OperationKind::kPut: values_.Put(operation.key, operation.value); break;
    case OperationKind::kDelete: values_.Erase(operation.key); break;
    case OperationKind::kCompareAndSet: {
      const std::string* const current = values_.Find(operation.key);
      const bool same = current != nullptr ? operation.expected == *current : !operation.expected.has_value();
      if (!same) return {.code = ResultCode::kMismatch, .session = 0, .values = {}};
      values_.Put(operation.key, operation.value);
      break;
    }
    case OperationKind::kIncrement: {
      const std::string* const current = values_.Find(operation.key);
      const std::optional<std::string> sum = Incremented(current, operation.delta);
      if (!sum.has_value()) return {.code = ResultCode::kNotANumber, .session = 0, .values = {}};
      values_.Put(operation.key, *sum);
      result.values.front() = *sum;
      break;
    }
  }
  return result;
}

std::optional<std::string> StateMachine::Get(const std::string& key) const {
  const std::string* found = values_.Find(key);
  if (found == nullptr) return std::nullopt;
  return *found;
}

void StateMachine::BeginSnapshot(size_t chunk_bytes) {
  HEDGEROW_CHECK(!taking_snapshot());
  const SnapshotHeader header{.committed_ns = now_ns_,
                              .content = content(),
                              .settings = settings_,
                              .window_steps = window_.steps(),
                              .memcached_window_steps = memcached_.window_steps(),
                              .log_uuid = log_uuid_,
                              .items_flushed_before = memcached_.flushed_before(),
                              .items_flush_at_ns = memcached_.flush_at_ns(),
                              .features = features_};
  snapshot_content_ = header.content;
  snapshot_ = std::make_unique<SnapshotWriter>(header, chunk_bytes);
  values_.BeginSnapshot(snapshot_.get());
  sessions_.BeginSnapshot(snapshot_.get());
  window_.BeginSnapshot(snapshot_.get());
  memcached_.BeginSnapshot(snapshot_.get());
}

std::vector<std::string> StateMachine::ContinueSnapshot(size_t bytes) {
  HEDGEROW_CHECK(taking_snapshot());
  // To look at what need not be written costs time, too.
  constexpr uint64_t kLook_bytes = 32;
  const uint64_t enough = snapshot_->written_bytes() + bytes;
  for (uint64_t looks = 0; snapshot_->written_bytes() + looks * kLook_bytes < enough; ++looks) {
    if (values_.ContinueSnapshot() || sessions_.ContinueSnapshot() || window_.ContinueSnapshot()) continue;
    if (memcached_.ContinueSnapshot()) continue;
    snapshot_->End();
    snapshot_is_sound_ = snapshot_->content() == snapshot_content_;
    if (!snapshot_is_sound_) flaws_ += snapshot_->content() - snapshot_content_;
    std::vector<std::string> last = snapshot_->TakeChunks();
    snapshot_.reset();
    return last;
  }
  return snapshot_->TakeChunks();
}

void StateMachine::AbandonSnapshot() {
  values_.AbandonSnapshot();
  sessions_.AbandonSnapshot();
  window_.AbandonSnapshot();
  memcached_.AbandonSnapshot();
  snapshot_.reset();
}

std::optional<Result> StateMachine::Known(const RequestKey& key) const {
  const Result* result = nullptr;
  switch (key.kind) {
    case CommandKind::kOpen: result = sessions_.OpenAnswer(key.a); break;
    case CommandKind::kWrite: result = sessions_.Answer(key); break;
    case CommandKind::kWindowed: result = window_.AnswerOnce(key); break;
    case CommandKind::kMemcached:
    case CommandKind::kTick:
    case CommandKind::kSettings:
    case CommandKind::kCheck:
    case CommandKind::kPurge: break;
  }
  if (result == nullptr) return std::nullopt;
  return *result;
}

// A few words beside the content, so it costs the same whatever the state holds.
uint64_t StateMachine::fingerprint() const {
  ContentHash hash(SnapshotRecord::kState);
  hash.Pair(content(), now_ns_).Pair(settings_.version, log_uuid_);
  hash.Pair(memcached_.flushed_before(), memcached_.flush_at_ns());
  for (const SettingValue& value : ValuesOf(settings_)) hash.Word(value.value);
  for (const WindowSteps* steps : {&window_.steps(), &memcached_.window_steps()}) {
    for (const WindowStep& step : *steps) hash.Pair(step.from_ns, step.window_ns);
  }
  return std::max<uint64_t>(hash.Take(), 1);  // 0 says that there is none (StateChecks::kFault)
}

}  // namespace hedgerow::kv
