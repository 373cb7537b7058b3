// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/memcached_state.h"

#include <algorithm>
#include <utility>

namespace hedgerow::kv {
namespace {

// Freed with each entry, so that a million items that end at once delay no other entry; an entry that does
// nothing else may free more.
constexpr size_t kEndedPerEntry = 64;
constexpr size_t kEndedAtLeisure = 10'000;

}  // namespace

// An entry without an age was written by a program whose rule was that whatever is in the window is known. Replicas of
// this program must do at it what that one has done.
DedupeWindow::Verdict MemcachedState::Judge(const RequestKey& key, const Command& command, uint64_t now_ns) const {
  if (!command.age_ns.has_value()) {
    return window_.Answer(key) != nullptr ? DedupeWindow::Verdict::kKnown : DedupeWindow::Verdict::kNew;
  }
  return window_.Judge(key, now_ns - std::min(now_ns, *command.age_ns));
}

Result MemcachedState::Apply(uint64_t index, const Command& command, uint64_t now_ns, uint64_t growth_max_bytes,
                             bool late) {
  const RequestKey& key = command.key;
  DedupeWindow::Verdict verdict = Judge(key, command, now_ns);
  if (verdict == DedupeWindow::Verdict::kNew && late) verdict = DedupeWindow::Verdict::kSuperseded;
  switch (verdict) {
    case DedupeWindow::Verdict::kKnown: return *window_.Answer(key);
    case DedupeWindow::Verdict::kSuperseded: return {.code = ResultCode::kSuperseded, .session = 0, .values = {}};
    case DedupeWindow::Verdict::kNew: break;
  }
  const bool fits = !window_.full() || window_.Answer(key) != nullptr;  // in the place of what was superseded
  if (!fits) return {.code = ResultCode::kOverloaded, .session = 0, .values = {}};
  Result result = items_.Execute(command.item, index, now_ns, growth_max_bytes);
  window_.Record(key, result, now_ns, now_ns - std::min(now_ns, command.age_ns.value_or(0)));
  return result;
}

void MemcachedState::Expire(uint64_t now_ns, uint64_t index, bool at_leisure) {
  items_.Expire(now_ns, index);
  items_.FreeSome(now_ns, at_leisure ? kEndedAtLeisure : kEndedPerEntry);
  window_.Expire(now_ns);
}

void MemcachedState::BeginSnapshot(SnapshotWriter* writer) {
  items_.BeginSnapshot(writer);
  window_.BeginSnapshot(writer);
}

void MemcachedState::AbandonSnapshot() {
  items_.AbandonSnapshot();
  window_.AbandonSnapshot();
}

bool MemcachedState::RestoreSeen(const SeenTimes& times, const RequestKey& key, Result result) {
  if (times.time_ns < last_restored_ns_ || window_.Answer(key) != nullptr) return false;
  last_restored_ns_ = times.time_ns;
  window_.Record(key, std::move(result), times.time_ns, times.origin_ns);
  return true;
}

}  // namespace hedgerow::kv
