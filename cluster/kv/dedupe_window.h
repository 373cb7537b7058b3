// SPDX-License-Identifier: Apache-2.0
//
// At most once within a window, for clients that have no session (memcached's protocol has none): a
// request is known again by client address, frame id and fingerprint for a stated span of committed time. It is
// weaker than a session, and whoever forwards copies must see to it that none is older than the window.
//
// The window may change (settings.h). A shorter one holds at once, for all requests. A longer one holds for the
// requests that are recorded from kRaiseDelay_ns after the change on: by then the front ends have taken back
// the rate at which a client's frame ids come round, and what was recorded before stays known no longer than
// the window that this rate was made for.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "cluster/kv/command.h"
#include "cluster/kv/cut.h"
#include "cluster/kv/settings.h"

namespace hedgerow::kv {

class DedupeWindow {
 public:
  static constexpr uint64_t kRaiseDelay_ns = 2'000'000'000;
  // Windows in force at a time, for requests of different age.
  static constexpr size_t kStepsMax = 8;

  explicit DedupeWindow(const WindowLimits& limits)
      : requests_max_(limits.requests_max), steps_(1, WindowStep{.from_ns = 0, .window_ns = limits.window_ns}) {}

  // False: it has been raised kStepsMax times within the window; later it may be raised again.
  bool MayTake(const WindowLimits& limits) const {
    return limits.window_ns <= steps_.back().window_ns || steps_.size() < kStepsMax;
  }
  void SetLimits(const WindowLimits& limits, uint64_t now_ns);

  bool full() const { return answers_.size() >= requests_max_; }
  const Result* Answer(const RequestKey& key) const;
  // The same, if it is not forgotten by `now_ns`, which may lie ahead of the last Expire.
  const Result* Answer(const RequestKey& key, uint64_t now_ns) const;
  void Record(const RequestKey& key, Result result, uint64_t now_ns);
  void Expire(uint64_t now_ns);

  size_t size() const { return answers_.size(); }

  const WindowSteps& steps() const { return steps_; }
  void BeginCut(CutWriter* writer);
  // False: everything is written down, and the cut has ended here.
  bool ContinueCut();
  void AbandonCut() { writer_ = nullptr; }
  // False: steps that no window has.
  bool Restore(const WindowLimits& limits, WindowSteps steps);

 private:
  struct Seen {
    uint64_t time_ns = 0;
    Result result{};
  };

  uint64_t WindowAt_ns(uint64_t time_ns) const;
  void Save();

  uint64_t requests_max_;
  // Never empty, in the order of their beginnings, each longer than the one before. So requests end in the order
  // in which they came.
  WindowSteps steps_;
  std::map<RequestKey, Seen> answers_;
  std::deque<std::pair<uint64_t, RequestKey>> by_time_;

  // Nothing in it changes, and only its front goes: so a cut walks from there.
  CutWriter* writer_ = nullptr;
  size_t saved_ = 0;    // at the front, and written down
  size_t unsaved_ = 0;  // behind them, and to be written down; the rest is younger than the cut
};

}  // namespace hedgerow::kv
