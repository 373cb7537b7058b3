// SPDX-License-Identifier: Apache-2.0
//
// What the live page shows: the last minutes of every service, a sample a second, and what happened meanwhile. The
// daemon's loop records from a snapshot that it takes anyway, so that a page opened late shows the past, and a page
// that stays unopened costs some microseconds a second. The HTTP server reads on a thread of its own and never asks the
// loop.

#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proxy/admin/status.h"
#include "proxy/api/config.pb.h"
#include "proxy/api/page.pb.h"
#include "proxy/data_plane/data_plane.h"
#include "proxy/page/minute_histogram.h"

namespace hedgerow {

class History {
 public:
  static constexpr size_t kMaxEvents = 256;
  // The counters that are kept for each second, in the order of PageService.
  static constexpr std::array<hr_counter, 10> kSeries = {
      HR_REQUESTS,       HR_HEDGES,     HR_WON_BY_HEDGE, HR_WON_BY_FAILOVER, HR_FAILOVER_SENDS,
      HR_LOSERS_DROPPED, HR_UNANSWERED, HR_NACKED,       HR_PASSED_THROUGH,  HR_EXTRA_SENDS};

  // Keeps `seconds` samples. `boot` is another text at each start.
  History(size_t seconds, std::string boot) : seconds_(seconds), boot_(std::move(boot)) {}

  // The loop, once a second. `snapshot` has histograms.
  void Record(const v1::Config& config, const DaemonFacts& facts, const Snapshot& snapshot, absl::Time now);

  // Any thread: everything that is kept after the sample `after`; 0: all of it.
  v1::PageData Since(uint64_t after, absl::Time now) const;

 private:
  struct ServiceSample {
    std::array<uint32_t, kSeries.size()> counts{};
    int64_t p50_ns = -1, p99_ns = -1, p999_ns = -1;
    int64_t delay_ns = 0;
    std::vector<std::array<uint32_t, 2>> backends;      // sent, won; in the order of the configuration
    std::vector<std::pair<uint8_t, uint32_t>> reasons;  // number, count; those that happened
  };
  struct Sample {
    uint64_t number = 0;
    int64_t at_ms = 0;
    int64_t interval_ns = 0;
    std::map<std::string, ServiceSample> services;
  };
  struct Minutes {
    MinuteHistogram latency;
    std::map<std::string, MinuteHistogram> backends;
  };
  // What was last recorded.
  struct Last {
    Snapshot snapshot;
    DaemonFacts facts;
    v1::Config config;
    int64_t wall_ms;
  };

  void FollowBackends(const ServiceSnapshot& before, const ServiceSnapshot& now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ServiceSample Difference(const ServiceSnapshot* before, const ServiceSnapshot& now, uint64_t now_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FillService(const v1::Service& config, const ServiceSnapshot& now, uint64_t after, v1::PageService& out) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FillBackends(const ServiceSnapshot& now, uint64_t after, v1::PageService& out) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FillReasons(const ServiceSnapshot& now, v1::PageService& out) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Keep(v1::PageEvent event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t seconds_;
  const std::string boot_;
  mutable absl::Mutex mutex_;
  uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<Last> last_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Minutes> minutes_ ABSL_GUARDED_BY(mutex_);
  std::deque<Sample> samples_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::PageEvent> events_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hedgerow
