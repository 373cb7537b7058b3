// SPDX-License-Identifier: Apache-2.0
//
// Finds services whose copies all fail: the kernel refuses to build or to send them, while requests and every other
// counter look well. Owned by the guardian; on the event loop's thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proxy/data_plane/data_plane.h"
#include "proxy/problems/problem.h"

namespace hedgerow {

class CopyWatch {
 public:
  static constexpr uint64_t kFailures = 3;  // in a row: a link that flaps takes one or two along
  // Without a request that wants a copy nothing shows that they leave again.
  static constexpr uint64_t kRemembered_ns = 60'000'000'000;

  // Once a second.
  std::vector<Problem> Look(const Snapshot& snapshot) {
    std::vector<Problem> problems;
    for (const ServiceSnapshot& service : snapshot.services) {
      const uint64_t failed = service.stats.reasons[HR_REASON_HEDGE_FAILED];
      const uint64_t sent = service.stats.counters[HR_EXTRA_SENDS];
      Service& last = services_.try_emplace(service.name, Service{failed, failed, sent}).first->second;
      if (sent != last.sent) last.when_sent = failed;
      if (failed != last.failed) last.failed_ns = snapshot.taken_ns;
      last.failed = failed;
      last.sent = sent;
      if (failed - last.when_sent < kFailures || snapshot.taken_ns > last.failed_ns + kRemembered_ns) continue;
      problems.push_back(
          {ProblemCode::kNothingHedged, absl::StrCat(service.name, ": none of the last ", failed - last.when_sent,
                                                     " copies of requests could be built or sent (hedge_failed)")});
    }
    return problems;
  }

 private:
  struct Service {
    uint64_t when_sent, failed, sent;  // failures as of the last copy that left, and both as of the last look
    uint64_t failed_ns = 0;
  };
  std::map<std::string, Service> services_;
};

}  // namespace hedgerow
