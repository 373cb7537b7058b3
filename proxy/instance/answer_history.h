// SPDX-License-Identifier: Apache-2.0
//
// The answer times of a backend as they were at some moments of the last half
// minute, in memory that outlives the daemon (pinned_array.h). Whatever a
// daemon makes of how answer times change, its successor makes of the same
// moments, played back to it (Guardian::Start), instead of beginning with all
// that the kernel has counted since the beginning.

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "proxy/data_plane/data_plane.h"

namespace hedgerow {

class AnswerHistory {
 public:
  static constexpr uint64_t kStepNs = 10'000'000'000;
  // One more than the windows of answer_windows.h: the oldest only says where the first of them begins.
  static constexpr size_t kMoments = 4;

  struct Moment {
    uint64_t at_ns = 0;  // 0: none. Written last, so that a daemon killed meanwhile leaves no half.
    uint64_t unanswered = 0;
    Histogram answer_times;
    Histogram ordinary_times;
  };
  using Memory = std::array<Moment, kMoments>;

  // At most one moment a step is kept, in the place of the oldest.
  static void Note(Memory& memory, uint64_t now_ns, const BackendSnapshot& backend) {
    const auto older = [](const Moment& a, const Moment& b) { return a.at_ns < b.at_ns; };
    if (now_ns < std::max_element(memory.begin(), memory.end(), older)->at_ns + kStepNs) return;
    Moment& moment = *std::min_element(memory.begin(), memory.end(), older);
    auto* at_ns = const_cast<volatile uint64_t*>(&moment.at_ns);
    *at_ns = 0;
    moment.unanswered = backend.unanswered;
    moment.answer_times = backend.answer_times;
    moment.ordinary_times = backend.ordinary_times;
    *at_ns = now_ns;
  }

  // Oldest first.
  static std::vector<Moment> Past(const Memory& memory) {
    std::vector<Moment> past(memory.begin(), memory.end());
    std::erase_if(past, [](const Moment& moment) { return moment.at_ns == 0; });
    std::sort(past.begin(), past.end(), [](const Moment& a, const Moment& b) { return a.at_ns < b.at_ns; });
    return past;
  }
};
static_assert(sizeof(AnswerHistory::Moment) == 16 + 2 * sizeof(Histogram), "no padding: it is kept in the kernel");

}  // namespace hedgerow
