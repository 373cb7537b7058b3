// SPDX-License-Identifier: Apache-2.0
//
// Tells that something about interfaces, addresses, routes, routing rules, neighbours or queueing disciplines may have
// changed. It does not tell what: IPv4 drops the routes that needed an address or an interface without a word, so its
// caller compares everything anyway. Owned by the daemon's NetworkFollower.
//
// A Watcher belongs to one thread, and to the network namespace it was started in.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/ip_address.h"
#include "net/netlink/netlink.h"

namespace hedgerow::net {

// What a Watcher is to look at, beside links, addresses and rules, which always matter.
struct Interest {
  std::vector<IpAddress>
      destinations{};         // backends, their next hops, VIPs: routes and neighbours of others are passed over
  std::set<int> ifindexes{};  // whose queueing disciplines and filters matter
};

struct NetworkEvents {
  uint64_t messages = 0;  // from the kernel, those that do not matter included
  bool network = false;   // a link, an address, a rule, or a route to or the neighbour entry of one of the destinations
  bool qdiscs = false;    // a queueing discipline or filter was removed or replaced on one of the interfaces
  bool lost = false;      // the kernel dropped messages (ENOBUFS): anything may have changed

  bool any() const { return network || qdiscs || lost; }
};

class Watcher {
 public:
  static absl::StatusOr<Watcher> Start();

  // Events from here on are judged by this.
  void SetInterest(Interest interest) { interest_ = std::move(interest); }

  int fd() const { return events_.fd(); }
  // Never blocks. Reads at most kDrainMessages; what is left keeps the descriptor readable.
  absl::StatusOr<NetworkEvents> Drain();
  static constexpr uint64_t kDrainMessages = 4096;

 private:
  explicit Watcher(netlink::Socket events) : events_(std::move(events)) {}
  void Judge(const netlink::Message& message, NetworkEvents& out) const;
  bool Covers(const netlink::Message& route) const;
  bool Resolves(const netlink::Message& neighbour) const;

  netlink::Socket events_;
  Interest interest_;
};

}  // namespace hedgerow::net
