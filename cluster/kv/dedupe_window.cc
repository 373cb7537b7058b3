// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/dedupe_window.h"

namespace hedgerow::kv {

const Result* DedupeWindow::Answer(const RequestKey& key) const {
  const auto answer = answers_.find(key);
  return answer == answers_.end() ? nullptr : &answer->second;
}

void DedupeWindow::Record(const RequestKey& key, Result result, uint64_t now_ns) {
  if (answers_.emplace(key, std::move(result)).second) by_time_.emplace_back(now_ns, key);
}

void DedupeWindow::Expire(uint64_t now_ns) {
  while (!by_time_.empty() && now_ns - by_time_.front().first >= limits_.window_ns) {
    answers_.erase(by_time_.front().second);
    by_time_.pop_front();
  }
}

}  // namespace hedgerow::kv
