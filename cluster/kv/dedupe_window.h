// SPDX-License-Identifier: Apache-2.0
//
// At most once within a window, for clients that have no session (memcached's protocol has none): a
// request is known again by client address, frame id and fingerprint for a stated span of committed time. It is
// weaker than a session, and whoever forwards copies must see to it that none is older than the window.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>

#include "cluster/kv/command.h"
#include "cluster/kv/cut.h"

namespace hedgerow::kv {

struct WindowLimits {
  uint64_t window_ns = 10'000'000'000;
  size_t requests_max = 1'000'000;  // a full window refuses; to forget early would break the promise
};

class DedupeWindow {
 public:
  explicit DedupeWindow(WindowLimits limits) : limits_(limits) {}

  bool full() const { return answers_.size() >= limits_.requests_max; }
  const Result* Answer(const RequestKey& key) const;
  // The same, if it is not forgotten by `now_ns`, which may lie ahead of the last Expire.
  const Result* Answer(const RequestKey& key, uint64_t now_ns) const;
  void Record(const RequestKey& key, Result result, uint64_t now_ns);
  void Expire(uint64_t now_ns);

  size_t size() const { return answers_.size(); }

  void BeginCut(CutWriter* writer);
  // False: everything is written down, and the cut has ended here.
  bool ContinueCut();
  void AbandonCut() { writer_ = nullptr; }

 private:
  struct Seen {
    uint64_t time_ns = 0;
    Result result{};
  };

  void Save();

  WindowLimits limits_;
  std::map<RequestKey, Seen> answers_;
  std::deque<std::pair<uint64_t, RequestKey>> by_time_;

  // Nothing in it changes, and only its front goes: so a cut walks from there.
  CutWriter* writer_ = nullptr;
  size_t saved_ = 0;    // at the front, and written down
  size_t unsaved_ = 0;  // behind them, and to be written down; the rest is younger than the cut
};

}  // namespace hedgerow::kv
