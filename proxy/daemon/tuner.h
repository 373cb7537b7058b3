// SPDX-License-Identifier: Apache-2.0
//
// The policy that needs more than a packet in hand: once a second it reads what the kernel programs have counted, and
// writes back how long a service's requests wait before they are hedged (`adaptive`), which backend gets them first
// (`prefer`), and how long each backend may be silent. Owned by the guardian; on the event loop's thread.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "proxy/api/config.pb.h"
#include "proxy/instance/answer_windows.h"
#include "proxy/daemon/learned_load.h"
#include "proxy/data_plane/data_plane.h"

namespace hedgerow {

// The delay of a service by its configuration, from what its first attempts took lately: the quantile that
// leaves as large a share to be hedged as the budget allows, kept between floor and cap. Before kAnswersMin
// samples, and without `adaptive`, it is the fixed one.
uint64_t AdaptiveDelayNs(const v1::Service& service, const Histogram& recent);

// Chooses the backend for the requests of a service whose replicas are alike. A standby is measured by the hedges and
// failovers that go to it. While another backend is preferred, the primary is measured by one request in 128.
class FastestChoice {
 public:
  // Slower than another by so much, it loses the requests; the primary gets them back when it is nearly as
  // fast.
  static constexpr uint64_t kSlowerBy = 2;
  static constexpr double kNearly = 1.25;
  // For as many looks in a row, so that a few slow answers move nothing.
  static constexpr int kLooks = 3;

  // nullopt: the leader.
  std::optional<size_t> Look(const ServiceSnapshot& service);

 private:
  std::optional<size_t> wanted_;
  std::optional<size_t> chosen_;
  int looks_ = 0;
};

class Tuner {
 public:
  explicit Tuner(const v1::Config& config);

  // Once a second. Goes on after an error, and returns the first.
  absl::Status Tune(const Snapshot& snapshot, LivePolicy& policy);
  // Then standbys that were never heard get probes as those that are down do.
  static constexpr int kLooksBeforeTests = 5;
  // What an earlier daemon saw (answer_history.h), oldest first, before the first Tune. Writes nothing: what followed
  // from it is in the kernel already.
  void Recall(const Snapshot& past);

 private:
  struct Backend {
    LostRequests lost;
    AnswerWindows windows;
    OrdinarySecond ordinary;
    SlowAt slow_at;
    uint64_t samples = 0;  // as of the last look
  };
  struct Service {
    const v1::Service* config;
    std::vector<Backend> backends;
    size_t asked = 0;  // the backend that gets the requests, by what was sampled since the last look
    FastestChoice fastest;
    int looks = 0;
  };

  absl::Status TuneService(uint64_t now_ns, const ServiceSnapshot& snapshot, Service& service, LivePolicy& policy);

  std::vector<Service> services_;
};

}  // namespace hedgerow
