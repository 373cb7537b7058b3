// SPDX-License-Identifier: Apache-2.0
//
// Everything one simulation consists of. Servers, clients and faults hold a reference to it and find each
// other through it; simulation.cc owns it and runs it.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/raft/invariants.h"
#include "cluster/sim/history.h"
#include "cluster/sim/network.h"
#include "cluster/sim/plan.h"
#include "cluster/sim/random.h"
#include "cluster/sim/virtual_time.h"

namespace hedgerow::sim {

class Server;
class Client;
class MemcachedClient;
class Faults;
class Membership;
class Recovery;
class SettingsChanges;
class Stranger;

struct World {
  explicit World(uint64_t seed);
  ~World();

  template <typename... Parts>
  void Fail(const Parts&... parts) {
    if (violation.empty()) violation = absl::StrCat(parts...);
  }
  template <typename... Parts>
  void Trace(const Parts&... parts) {
    if (trace) trace(absl::StrCat(parts...));
  }

  Random random;
  Plan plan;
  VirtualTime time;
  Network network;
  raft::InvariantChecker checker;
  History history;
  std::vector<uint64_t>
      fingerprints;  // StateMachine::fingerprint after each log index, of the first node that applied it
  std::vector<std::unique_ptr<Server>> servers;
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<std::unique_ptr<MemcachedClient>> memcached_clients;
  std::unique_ptr<Faults> faults;
  std::unique_ptr<Membership> membership;
  std::unique_ptr<Recovery> recovery;
  std::unique_ptr<SettingsChanges> settings;
  std::unique_ptr<Stranger> stranger;
  std::string violation;
  std::function<void(const std::string&)> trace;

  uint64_t elections = 0;
  uint64_t crashes = 0;
  uint64_t operations = 0;
  uint64_t answers = 0;
  uint64_t kernel_answers = 0;  // of all kinds; of them ...
  uint64_t kernel_appends = 0;
  uint64_t kernel_votes = 0;         // given
  uint64_t kernel_answers_late = 0;  // within a lease that was longer because pauses had been
  uint64_t snapshots_taken = 0;
  uint64_t snapshots_installed = 0;
  uint64_t changes = 0;  // of membership, that were begun
  uint64_t changes_refused = 0;
  uint64_t leaders_removed = 0;
  uint64_t settings_changes = 0;  // that were asked for
  uint64_t state_checks = 0;      // comparisons that found a node's state to be the majority's
  uint64_t transfers = 0;
  uint64_t transfers_resumed = 0;
  uint64_t quorum_checks = 0;      // of incarnations that have ended
  uint64_t appends_reordered = 0;  // of those, too
  uint64_t proposals_known = 0;
  uint64_t recoveries = 0;
  uint64_t folders_emptied = 0;
  uint64_t hung_leaders = 0;
  uint64_t folders_put_back = 0;
  uint64_t forged = 0;         // requests under a client's session by the stranger
  uint64_t sealed_pieces = 0;  // of long messages; of incarnations that have ended, and so below
  uint64_t sealed_drops = 0;   // datagrams that were not believed
  uint64_t sessions_evicted = 0;
};

}  // namespace hedgerow::sim
