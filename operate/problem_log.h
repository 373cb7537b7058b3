// SPDX-License-Identifier: Apache-2.0
//
// What a daemon's log says of the problems that its `status` lists: the begin of each, and its end. Not thread-safe.

#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace hedgerow::operate {

class ProblemLog {
 public:
  // A problem that comes again sooner is the same one still.
  static constexpr absl::Duration kOverAfter = absl::Seconds(5);

  // All that is wrong now. Once a second or more often.
  void Update(const std::vector<std::string>& problems, absl::Time now);

 private:
  struct Open {
    std::string text{};
    absl::Time since{}, seen{};
    int times = 1;
  };
  std::map<std::string, Open> open_;  // by the text without its durations and counts
};

}  // namespace hedgerow::operate
