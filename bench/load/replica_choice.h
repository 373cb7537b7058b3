// SPDX-License-Identifier: Apache-2.0
//
// Which replica a client that knows several sends a request to, and whether a second copy leaves with it. The
// client counts its own copies in flight to each replica, and reads the load that a replica reports in its
// answers. No socket and no clock are known here, so that the rule can be tested. Owned by the load engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace hedgerow::bench {

// When the second copy of a request leaves with the first.
enum class CopyAtOnce {
  kNever,
  kAlways,  // C-Clone: two copies of every request.
  kIdle,    // While both replicas have little to do, in the client's own view and by their reports.
};

struct CopyRule {
  CopyAtOnce at_once = CopyAtOnce::kNever;
  double idle_below = 0.3;  // kIdle: a replica with a smaller share of its workers taken is idle.
  uint64_t workers = 32;    // kIdle: of a replica; what copies in flight are a share of.
};

class ReplicaChoice {
 public:
  static constexpr size_t kMaxReplicas = 8;

  // With `spread` a request goes to the replica with the fewest copies in flight, otherwise to the first.
  ReplicaChoice(size_t replicas, bool spread, CopyRule rule);

  size_t First();

  // For a second copy: of the others, the one with the fewest in flight.
  std::optional<size_t> Other(size_t than);

  // Whether a second copy leaves at once. Asked before the first is counted as sent.
  bool AtOnce(size_t first, size_t second) const;

  void OnSent(size_t replica) { ++replicas_[replica].in_flight; }
  void OnAnswered(size_t replica);
  // Copies whose answers are not waited for any more; one bit for each replica.
  void OnForgotten(uint8_t replicas);
  // 255: every worker is taken, and requests may wait.
  void OnLoad(size_t replica, uint8_t load) { replicas_[replica].reported = load; }

  uint64_t in_flight(size_t replica) const { return replicas_[replica].in_flight; }

 private:
  struct Replica {
    uint64_t in_flight = 0;
    uint8_t reported = 0;
  };

  bool IsIdle(const Replica& replica) const;
  std::optional<size_t> FewestInFlight(std::optional<size_t> except);

  std::vector<Replica> replicas_;
  bool spread_;
  CopyRule rule_;
  size_t turn_ = 0;  // Where the next search begins: replicas that are alike take turns.
};

}  // namespace hedgerow::bench
