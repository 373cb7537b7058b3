// SPDX-License-Identifier: Apache-2.0
//
// Virtual time: a queue of what happens when. Two events at one instant happen in the order in which they were
// scheduled, so that a run is a function of its seed.

#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace hedgerow::sim {

class VirtualTime {
 public:
  using Happening = std::function<void()>;

  uint64_t now_ns() const { return now_ns_; }
  uint64_t happened() const { return happened_; }

  void At(uint64_t time_ns, Happening happening) {
    queue_.push_back({std::max(time_ns, now_ns_), next_number_++, std::move(happening)});
    std::push_heap(queue_.begin(), queue_.end(), Later);
  }
  void After(uint64_t delay_ns, Happening happening) { At(now_ns_ + delay_ns, std::move(happening)); }

  // The next event up to `end_ns`; false, and the time is `end_ns`, if there is none.
  bool Step(uint64_t end_ns) {
    if (queue_.empty() || queue_.front().time_ns > end_ns) {
      now_ns_ = end_ns;
      return false;
    }
    std::pop_heap(queue_.begin(), queue_.end(), Later);
    Scheduled next = std::move(queue_.back());
    queue_.pop_back();
    now_ns_ = next.time_ns;
    ++happened_;
    next.happening();
    return true;
  }

 private:
  struct Scheduled {
    uint64_t time_ns;
    uint64_t number;
    Happening happening;
  };
  static bool Later(const Scheduled& a, const Scheduled& b) {
    return a.time_ns != b.time_ns ? a.time_ns > b.time_ns : a.number > b.number;
  }

  // Not 0: a time of 0 would hide a field that was never set.
  uint64_t now_ns_ = 1'000'000'000;
  uint64_t next_number_ = 0;
  uint64_t happened_ = 0;
  std::vector<Scheduled> queue_;
};

}  // namespace hedgerow::sim
