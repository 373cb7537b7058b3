// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/dedupe_window.h"

namespace hedgerow::kv {

const Result* DedupeWindow::Answer(const RequestKey& key) const {
  const auto answer = answers_.find(key);
  return answer == answers_.end() ? nullptr : &answer->second.result;
}

const Result* DedupeWindow::Answer(const RequestKey& key, uint64_t now_ns) const {
  const auto answer = answers_.find(key);
  if (answer == answers_.end() || now_ns - answer->second.time_ns >= limits_.window_ns) return nullptr;
  return &answer->second.result;
}

void DedupeWindow::Record(const RequestKey& key, Result result, uint64_t now_ns) {
  Seen seen{.time_ns = now_ns, .result = std::move(result)};
  if (answers_.emplace(key, std::move(seen)).second) by_time_.emplace_back(now_ns, key);
}

void DedupeWindow::Expire(uint64_t now_ns) {
  while (!by_time_.empty() && now_ns - by_time_.front().first >= limits_.window_ns) {
    if (writer_ != nullptr && saved_ == 0 && unsaved_ > 0) Save();
    if (saved_ > 0) --saved_;
    answers_.erase(by_time_.front().second);
    by_time_.pop_front();
  }
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
