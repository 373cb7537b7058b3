// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/dedupe_window.h"

#include <utility>

namespace hedgerow::kv {

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

const Result* DedupeWindow::Answer(const RequestKey& key) const {
  const auto answer = answers_.find(key);
  return answer == answers_.end() ? nullptr : &answer->second.result;
}

const Result* DedupeWindow::Answer(const RequestKey& key, uint64_t now_ns) const {
  const auto answer = answers_.find(key);
  if (answer == answers_.end()) return nullptr;
  const Seen& seen = answer->second;
  return now_ns - seen.time_ns < WindowAt_ns(seen.time_ns) ? &seen.result : nullptr;
}

void DedupeWindow::Record(const RequestKey& key, Result result, uint64_t now_ns) {
  Seen seen{.time_ns = now_ns, .result = std::move(result)};
  if (answers_.emplace(key, std::move(seen)).second) by_time_.emplace_back(now_ns, key);
}

void DedupeWindow::Expire(uint64_t now_ns) {
  while (!by_time_.empty() && now_ns - by_time_.front().first >= WindowAt_ns(by_time_.front().first)) {
    if (writer_ != nullptr && saved_ == 0 && unsaved_ > 0) Save();
    if (saved_ > 0) --saved_;
    answers_.erase(by_time_.front().second);
    by_time_.pop_front();
  }
  // A step that no request is of any more.
  const uint64_t oldest_ns = by_time_.empty() ? now_ns : by_time_.front().first;
  while (steps_.size() > 1 && steps_[1].from_ns <= oldest_ns) steps_.erase(steps_.begin());
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

void DedupeWindow::BeginCut(CutWriter* writer) {
  writer_ = writer;
  saved_ = 0;
  unsaved_ = by_time_.size();
}

void DedupeWindow::Save() {
  const auto& [time_ns, key] = by_time_[saved_];
  writer_->Windowed(time_ns, key, answers_.at(key).result);
  ++saved_;
  --unsaved_;
}

bool DedupeWindow::ContinueCut() {
  if (writer_ == nullptr) return false;
  if (unsaved_ == 0) {
    writer_ = nullptr;
    return false;
  }
  Save();
  return true;
}

}  // namespace hedgerow::kv
