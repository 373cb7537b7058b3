// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/dedupe_window.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "cluster/kv/content_hash.h"

namespace hedgerow::kv {
namespace {

RequestKey NameOf(RequestKey key) {
  key.c = 0;
  return key;
}

}  // namespace

void DedupeWindow::SetLimits(const WindowLimits& limits, uint64_t now_ns) {
  requests_max_ = limits.requests_max;
  if (limits.window_ns > steps_.back().window_ns) {
    steps_.push_back({.from_ns = now_ns + kRaiseDelay_ns, .window_ns = limits.window_ns});
    return;
  }
  while (steps_.size() > 1 && steps_[steps_.size() - 2].window_ns >= limits.window_ns) steps_.pop_back();
  steps_.back().window_ns = limits.window_ns;
}

// Of a request that was recorded then. A request from before the first step has that one's window.
uint64_t DedupeWindow::WindowAt_ns(uint64_t time_ns) const {
  size_t step = steps_.size() - 1;
  while (step > 0 && steps_[step].from_ns > time_ns) --step;
  return steps_[step].window_ns;
}

bool DedupeWindow::Restore(const WindowLimits& limits, WindowSteps steps) {
  if (steps.empty() || steps.size() > kStepsMax) return false;
  for (size_t i = 1; i < steps.size(); ++i) {
    if (steps[i].from_ns < steps[i - 1].from_ns || steps[i].window_ns <= steps[i - 1].window_ns) return false;
  }
  requests_max_ = limits.requests_max;
  steps_ = std::move(steps);
  return true;
}

// Null: nothing of this name is known. The requests of one name stand side by side in answers_, the first with the
// least fingerprint; newest_ has names of more than one request only.
const DedupeWindow::Seen* DedupeWindow::NewestOfName(const RequestKey& key) const {
  const RequestKey name = NameOf(key);
  const auto newest = newest_.find(name);
  if (newest != newest_.end()) return &*newest->second;
  const auto only = answers_.lower_bound(name);
  return only != answers_.end() && NameOf(only->first) == name ? &*only->second : nullptr;
}

DedupeWindow::Verdict DedupeWindow::Judge(const RequestKey& key, uint64_t origin_ns) const {
  const Seen* const newest = NewestOfName(key);
  if (newest == nullptr) return Verdict::kNew;
  if (newest->key == key) return Verdict::kKnown;
  const uint64_t since_ns = answers_.contains(key) ? newest->time_ns : newest->origin_ns;
  return origin_ns < since_ns ? Verdict::kSuperseded : Verdict::kNew;
}

const Result* DedupeWindow::Answer(const RequestKey& key) const {
  const auto answer = answers_.find(key);
  return answer == answers_.end() ? nullptr : &answer->second->result;
}

const Result* DedupeWindow::AnswerOnce(const RequestKey& key) const {
  const Seen* const seen = NewestOfName(key);
  if (seen == nullptr) return nullptr;
  return IsAnsweredBy(key, seen->key.c) ? &seen->result : &kAnotherRequest;
}

bool DedupeWindow::SharesName(std::map<RequestKey, Place, ByName>::iterator answer) {
  const RequestKey name = NameOf(answer->first);
  const auto next = std::next(answer);
  return (next != answers_.end() && NameOf(next->first) == name) ||
         (answer != answers_.begin() && NameOf(std::prev(answer)->first) == name);
}

void DedupeWindow::Record(const RequestKey& key, Result result, uint64_t now_ns, uint64_t origin_ns) {
  const auto [answer, added] = answers_.try_emplace(key);
  if (!added) Remove(answer->second);
  by_time_.push_back(
      {.time_ns = now_ns, .origin_ns = origin_ns, .number = ++last_number_, .key = key, .result = std::move(result)});
  const Place place = std::prev(by_time_.end());
  content_ += HashOf(*place);
  bytes_ += ChargeOfRequest(place->result);
  answer->second = place;
  if (const auto newest = newest_.find(NameOf(key)); newest != newest_.end()) {
    newest->second = place;
  } else if (SharesName(answer)) {
    newest_.emplace(NameOf(key), place);
  }
}

// It is not known any more; a snapshot that began while it was still has it.
void DedupeWindow::Remove(Place place) {
  content_ -= HashOf(*place);
  bytes_ -= ChargeOfRequest(place->result);
  if (IsUnsaved(*place)) {
    place->replaced_in = snapshot_;
  } else {
    by_time_.erase(place);
  }
}

void DedupeWindow::Expire(uint64_t now_ns) {
  while (!by_time_.empty() && now_ns - by_time_.front().time_ns >= WindowAt_ns(by_time_.front().time_ns)) {
    const Place first = by_time_.begin();
    if (IsUnsaved(*first)) {
      Save();
      continue;
    }
    if (first->replaced_in == 0) {
      const auto newest = newest_.find(NameOf(first->key));
      if (newest != newest_.end() && newest->second == first) newest_.erase(newest);
      answers_.erase(first->key);
      content_ -= HashOf(*first);
      bytes_ -= ChargeOfRequest(first->result);
    }
    by_time_.erase(first);
  }
  if (steps_.size() == 1) return;
  // A step that no request is of any more. What is only kept for a snapshot is no request: replicas take theirs apart.
  const auto oldest =
      std::find_if(by_time_.begin(), by_time_.end(), [](const Seen& seen) { return seen.replaced_in == 0; });
  const uint64_t oldest_ns = oldest == by_time_.end() ? now_ns : oldest->time_ns;
  while (steps_.size() > 1 && steps_[1].from_ns <= oldest_ns) steps_.erase(steps_.begin());
}

uint64_t DedupeWindow::HashOf(const Seen& seen) {
  return HashSeen({.time_ns = seen.time_ns, .origin_ns = seen.origin_ns}, seen.key, seen.result);
}

void DedupeWindow::BeginSnapshot(SnapshotWriter* writer) {
  ++snapshot_;
  writer_ = writer;
  next_ = by_time_.begin();
  unsaved_ = by_time_.size();
  snapshot_end_ = last_number_;
}

void DedupeWindow::AbandonSnapshot() {
  writer_ = nullptr;
  unsaved_ = 0;
}

bool DedupeWindow::IsUnsaved(const Seen& seen) const {
  return writer_ != nullptr && unsaved_ > 0 && seen.number >= next_->number && seen.number <= snapshot_end_;
}

// A request that was replaced before this snapshot began is left from a snapshot that was abandoned.
void DedupeWindow::Save() {
  const Place saved = next_++;
  --unsaved_;
  if (saved->replaced_in == 0 || saved->replaced_in == snapshot_) {
    writer_->Windowed({.time_ns = saved->time_ns, .origin_ns = saved->origin_ns}, saved->key, saved->result);
  }
  if (saved->replaced_in != 0) by_time_.erase(saved);
}

bool DedupeWindow::ContinueSnapshot() {
  if (writer_ == nullptr) return false;
  if (unsaved_ == 0) {
    writer_ = nullptr;
    return false;
  }
  Save();
  return true;
}

}  // namespace hedgerow::kv
