// SPDX-License-Identifier: Apache-2.0
//
// Hedging as a good application would do it by itself, to compare the proxy with: it knows all servers,
// remembers the leader, follows NOT_LEADER, and sends a copy to another server when no answer has come after a
// delay. All times are absolute and fixed when the request is sent; nothing that arrives moves them. Decides
// only: HkvLoad sends. Time comes in as an argument. Server numbers count from 0.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace hedgerow::chaos {

struct AppHedgingOptions {
  // From the first send to the second; each further wait is twice the one before.
  uint64_t delay_ns = 5'000'000;
  uint32_t attempts_max = 5;  // by time; as many as the proxy's cap
  uint32_t follow_max = 3;    // further ones because a server named the leader
  // When all copies were refused, the next is due after this, again and again until the deadline.
  uint64_t again_ns = 20'000'000;
  size_t first_leader = 0;  // the presumed leader until something else is known; below the number of servers
};

// One request's.
struct Attempts {
  uint64_t first_sent_ns = 0;
  uint64_t next_ns = UINT64_MAX;  // when the next copy is due
  uint64_t wait_ns = 0;           // from the last send by time to the next
  uint32_t by_time = 0;
  uint32_t followed = 0;
  uint32_t refused = 0;  // copies that came back as NOT_LEADER or OVERLOADED
  size_t last_server = 0;

  uint32_t total() const { return by_time + followed; }
  // No copy is under way that may still be answered, and none is due.
  bool stranded() const { return refused >= total() && next_ns == UINT64_MAX; }
};

class AppHedging {
 public:
  AppHedging(size_t servers, const AppHedgingOptions& options)
      : options_(options), heard_ns_(servers, 0), leader_(options.first_leader) {}

  // Where a new request goes.
  size_t First(uint64_t now_ns, Attempts& attempts) const;

  // The copy that is due has its time: where it goes. Only at or after `attempts.next_ns`.
  size_t Next(Attempts& attempts) const;

  // For a stranded request: its next copy is due in a while.
  void Again(uint64_t now_ns, Attempts& attempts) const { attempts.next_ns = now_ns + options_.again_ns; }

  // `from` has said anything at all.
  void Heard(size_t from, uint64_t now_ns) { heard_ns_[from] = now_ns; }

  // `from` is not the leader and may know it: where to send at once, if anywhere.
  std::optional<size_t> NotLeader(size_t from, std::optional<size_t> hint, Attempts& attempts);

  // `from` has answered. A presumed leader that has not answered since the request left is one no
  // more.
  void Answered(size_t from, const Attempts& attempts);

  size_t leader() const { return leader_; }

 private:
  AppHedgingOptions options_;
  std::vector<uint64_t> heard_ns_;
  size_t leader_;
};

}  // namespace hedgerow::chaos
