// SPDX-License-Identifier: Apache-2.0
//
// What the kernel's histograms, which only ever grow, say about the recent past. Two looks at it, since two
// things are decided by them: `AnswerWindows` is all that came in the last 20 to 30 seconds (the adaptive
// delay's), and `OrdinarySecond` the p95 of a second that is like most (the suspicion timeout's; docs/adr/0026).
// Used by the tuner.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "proxy/data_plane/data_plane.h"

namespace hedgerow {

// Fewer samples than this say nothing.
inline constexpr uint64_t kAnswersMin = 20;

class AnswerWindows {
 public:
  static constexpr uint64_t kWindowNs = 10'000'000'000;
  static constexpr size_t kWindows = 3;

  // Takes the histogram as it is at `now_ns` and returns what came within the windows.
  Histogram Recent(uint64_t now_ns, const Histogram& total) {
    if (starts_.empty() || now_ns - starts_.back().at_ns >= kWindowNs) {
      starts_.push_back({now_ns, starts_.empty() ? Histogram() : total});
      if (starts_.size() > kWindows) starts_.pop_front();
    }
    return total.Since(starts_.front().total);
  }

 private:
  struct Start {
    uint64_t at_ns;
    Histogram total;
  };
  std::deque<Start> starts_;  // oldest first; each begins a window
};

class OrdinarySecond {
 public:
  static constexpr uint64_t kSecondNs = 1'000'000'000;
  static constexpr uint64_t kRememberNs = 30 * kSecondNs;
  static constexpr size_t kLately = 5;
  // One in twenty may take longer, and suspecting it for that costs about as much as hedging may by default.
  static constexpr double kQuantile = 0.95;

  // Takes the histogram of ordinary times as it is at `now_ns`. The p95 is taken of each second, or of as many as
  // it takes for kAnswersMin samples. Returns the median of those of the last 30 seconds, or of the last five of
  // them if that is more; 0 while there is none.
  //
  // A pause is one sample, however long: with 20 requests or more from one to the next it is in no p95. A backend
  // whose every answer is a pause, slow and seldom asked, is one whose every sample is long. One that becomes slow
  // is believed after three seconds.
  uint64_t P95Ns(uint64_t now_ns, const Histogram& total) {
    const Histogram since = total.Since(begun_);
    const bool enough = since.Count() >= kAnswersMin;
    if (!started_ || (enough && now_ns - begun_ns_ >= kSecondNs) || now_ns - begun_ns_ > kRememberNs) {
      if (enough) seconds_.push_back({now_ns, since.QuantileNs(kQuantile)});
      begun_ = total;
      begun_ns_ = now_ns;
      started_ = true;
    }
    while (!seconds_.empty() && now_ns - seconds_.front().end_ns > kRememberNs) seconds_.pop_front();
    return std::max(MedianNs(seconds_.size()), MedianNs(std::min(seconds_.size(), kLately)));
  }

 private:
  struct Second {
    uint64_t end_ns;
    uint64_t p95_ns;
  };

  // Of the last `count`. Of an even number the lower one: the first second after the start, and the first
  // outage, are two.
  uint64_t MedianNs(size_t count) const {
    if (count == 0) return 0;
    std::vector<uint64_t> p95s;
    for (size_t i = seconds_.size() - count; i < seconds_.size(); ++i) p95s.push_back(seconds_[i].p95_ns);
    const auto middle = p95s.begin() + static_cast<std::ptrdiff_t>((count - 1) / 2);
    std::nth_element(p95s.begin(), middle, p95s.end());
    return *middle;
  }

  std::deque<Second> seconds_;  // oldest first
  Histogram begun_;             // as it was when the present second began
  uint64_t begun_ns_ = 0;
  bool started_ = false;
};

}  // namespace hedgerow
