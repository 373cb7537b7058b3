// SPDX-License-Identifier: Apache-2.0
//
// The p99 of a backend's answer times over the last 20 to 30 seconds, from the
// kernel's histograms, which only ever grow. The daemon writes it back to the
// data plane, where it decides how long a leader may be silent.

#ifndef HEDGEROW_PROXY_DAEMON_ANSWER_WINDOWS_H_
#define HEDGEROW_PROXY_DAEMON_ANSWER_WINDOWS_H_

#include <cstdint>
#include <deque>

#include "proxy/data_plane/data_plane.h"

namespace hedgerow {

class AnswerWindows {
 public:
  static constexpr uint64_t kWindowNs = 10'000'000'000;
  static constexpr size_t kWindows = 3;
  static constexpr uint64_t kMinSamples = 20;

  // Takes the histogram as it is at `now_ns` and returns the p99 of what came within the windows; 0 with fewer
  // than kMinSamples.
  uint64_t P99Ns(uint64_t now_ns, const Histogram& total) {
    if (starts_.empty() || now_ns - starts_.back().at_ns >= kWindowNs) {
      starts_.push_back({now_ns, starts_.empty() ? Histogram() : total});
      if (starts_.size() > kWindows) starts_.pop_front();
    }
    const Histogram recent = total.Since(starts_.front().total);
    return recent.Count() < kMinSamples ? 0 : recent.QuantileNs(0.99);
  }

 private:
  struct Start {
    uint64_t at_ns;
    Histogram total;
  };
  std::deque<Start> starts_;  // oldest first; each begins a window
};

}  // namespace hedgerow

#endif  // HEDGEROW_PROXY_DAEMON_ANSWER_WINDOWS_H_
