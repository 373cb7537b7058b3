// SPDX-License-Identifier: Apache-2.0
//
// From what the data plane counted and what the daemon knows to the Status
// message that `hedgerow status` shows. Pure: the controller calls it with a
// snapshot, tests with a made-up one.

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "operate/loop_turns.h"
#include "proxy/api/admin.pb.h"
#include "proxy/api/config.pb.h"
#include "proxy/data_plane/data_plane.h"
#include "proxy/problems/problem.h"

namespace hedgerow {

// What can come of a reload. kNone: there was none.
enum class ReloadResult { kNone, kApplied, kUnchanged, kInvalid, kRefused, kFailed };
inline constexpr std::array kReloadWords = {"", "applied", "unchanged", "invalid", "refused", "failed"};
inline std::string ReloadWord(ReloadResult result) { return kReloadWords.at(static_cast<size_t>(result)); }

struct ReloadFacts {
  std::array<uint64_t, kReloadWords.size()> counts{};  // by result
  ReloadResult last = ReloadResult::kNone;
  int64_t last_ns = 0;                     // CLOCK_MONOTONIC
  std::vector<std::string> last_problems;  // why the last one was not applied
  std::string config_hash;                 // of the configuration in force
  int64_t config_since_ns = 0;             // CLOCK_MONOTONIC
  absl::Time config_since = absl::UnixEpoch();
};

// How a service's backends are reached, for `status`; empty texts: not known.
struct ServicePathFacts {
  struct Backend {
    std::string uplink;
    std::string next_hop;
  };
  std::string name;
  std::string source;
  std::string vip_route;          // the interface by which packets to the VIP leave this host's routing
  std::vector<Backend> backends;  // in the configuration's order
};

// What only the daemon knows. Kept by it, read by each status call.
struct DaemonFacts {
  std::string config_file;
  std::string kernel;
  std::string metrics_address;  // empty: off, or not served
  std::string page_address;     // as above
  std::string clock_kind;
  int64_t started_ns = 0;  // CLOCK_MONOTONIC
  int64_t clock_measured_error_ns = 0;
  uint64_t routes_restored = 0;
  uint64_t links_restored = 0;
  // How this daemon came to its kernel part. BuildStatus adds what depends on the moment or the configuration.
  v1::Adoption adoption;
  int64_t kernel_since_ns = 0;  // CLOCK_MONOTONIC; when the kernel part was made
  ReloadFacts reload;
  std::vector<v1::Uplink> uplinks;
  std::vector<ServicePathFacts> paths;  // in the configuration's order
  v1::Network network;                  // what the network follower has done since the daemon started
  // Of `check`, by service and backend: answered, failed.
  std::map<std::pair<std::string, std::string>, std::array<uint64_t, 2>> checks;
  std::vector<Problem> problems;    // beside the backends' health
  LoopTurns loop_turns;             // when metrics are asked for
  std::vector<Problem> not_served;  // pages and sockets for operators
};

// What `status` and the metrics list: the daemon's, and the health of the backends.
std::vector<Problem> AllProblems(const DaemonFacts& facts, const Snapshot& snapshot);
v1::Status BuildStatus(const v1::Config& config, const DaemonFacts& facts, const Snapshot& snapshot);

// The leader entry of one service. `now_ns` is CLOCK_MONOTONIC.
v1::Leader BuildLeader(const v1::Service& service, const ServiceSnapshot& snapshot, uint64_t now_ns);

// The backend that gets a service's requests, by the kernel programs' own rule. While every backend is healthy it is
// the leader, or the backend preferred to it; if that one is drained, another backend where there is one.
size_t RequestsTo(const ServiceSnapshot& snapshot);

// What part of a service's new requests each backend gets, in order: all of them, or with `prefer: each` and `source`
// by weight, unless one is pinned.
std::vector<double> RequestShares(const v1::Service& service, const ServiceSnapshot& snapshot);

// What draining a backend of this service, or undoing it, has come to.
v1::Drained BuildDrained(const v1::Service& service, const ServiceSnapshot& snapshot, const std::string& backend);

v1::Quantiles ToQuantiles(const Histogram& histogram);

// requests = sum of where they went, for one service.
bool IdentityHolds(const ServiceSnapshot& snapshot);

// A backend's load; 1 is full.
double LoadShare(const BackendSnapshot& snapshot);

// "healthy", "suspect", "down" or "impaired" while requests go to a standby.
std::string HealthWord(hr_health health);

}  // namespace hedgerow
