// SPDX-License-Identifier: Apache-2.0
//
// Finds clients that get nothing: forwarded packets that `clients` does not list, and requests that no backend answers
// though all are healthy. Owned by the guardian; on the event loop's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "proxy/data_plane/data_plane.h"
#include "proxy/problems/problem.h"

namespace hedgerow {

class ClientWatch {
 public:
  static constexpr size_t kSeconds = 60;        // that are looked back at
  static constexpr uint64_t kDropped = 3;       // one packet is a mistake, three are a client that tries again
  static constexpr uint64_t kUnanswered = 100;  // and nine of ten requests: names that a policy drops are fewer

  // Once a second.
  std::vector<Problem> Look(const Snapshot& snapshot);

 private:
  struct Counts {
    uint64_t dropped, requests, unanswered;
  };
  std::map<std::string, std::deque<Counts>> services_;
};

}  // namespace hedgerow
