// SPDX-License-Identifier: Apache-2.0
//
// Watches what network managers and people do to the interfaces, routes and addresses we depend on. The daemon
// puts the descriptor into its event loop, calls Drain when it is readable, and restores (and counts) what is
// its own.
//
// Link, qdisc and address losses are told by the kernel. A route is not: when an address or an interface goes,
// IPv4 drops the routes that needed it without a word. So the routes of interest are looked up again after each
// event that may have cost one. A Watcher belongs to one thread, and to the network namespace it was started
// in: that same thread must call Drain.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/netlink/link.h"
#include "net/netlink/netlink.h"
#include "net/netlink/route.h"

namespace hedgerow::net {

struct WatchSpec {
  std::vector<int> ifindexes{};          // our own interfaces and the uplinks
  std::vector<VipRoute> routes{};        // our VIPs' routes
  std::vector<AddressInfo> addresses{};  // the uplinks' addresses that the routes use as their source
};

enum class WatchKind {
  kLinkGone,  // removed, or moved to another namespace
  kLinkDown,  // reported even if it is up again by now: a qdisc's packets are lost on the way (the clock's too)
  kLinkUp,
  kMtuChanged,    // mtu_bytes is the new one
  kLinkChanged,   // another hardware address, or ARP on or off
  kQdiscChanged,  // a qdisc or filter was removed or replaced: the clock, or a clsact program of ours
  kRouteGone,     // `route`
  kAddressGone,   // `address` on `ifindex`
  kAddressBack,   // the same, there again
  kEventsLost,    // the kernel had to drop events; everything was compared anew, and what differs follows as
                  // usual
};

struct WatchEvent {
  WatchKind kind = WatchKind::kEventsLost;
  int ifindex = 0;
  uint32_t mtu_bytes = 0;
  VipRoute route{};
  IpAddress address{};

  std::string ToString() const;
};

class Watcher {
 public:
  // Takes the state at the start as the good one. NotFound when one of the interfaces is not there; a route or
  // address that is not there is reported as gone by the first Drain.
  static absl::StatusOr<Watcher> Start(const WatchSpec& spec);

  int fd() const { return events_.fd(); }
  // Never blocks. The events since the last call, in order. A lost route is reported once per loss: it is
  // reported again only after it was seen in place again.
  absl::StatusOr<std::vector<WatchEvent>> Drain();
  // Looks at everything as Drain does after lost events, whatever the kernel told. For a slow periodic check.
  absl::StatusOr<std::vector<WatchEvent>> CheckAll();

 private:
  struct LinkState {
    bool present = true;
    bool up = false;
    uint32_t mtu_bytes = 0;
    bool resolves = false;
    MacAddress mac{};
  };
  struct Touched {
    bool routes = false;
    bool addresses = false;
  };
  explicit Watcher(const WatchSpec& spec, netlink::Socket events) : spec_(spec), events_(std::move(events)) {}

  void OnMessage(const netlink::Message& message, Touched& touched, std::vector<WatchEvent>& out);
  static LinkState StateOf(const LinkInfo& link);
  void OnLinkState(int ifindex, const LinkState& now, std::vector<WatchEvent>& out);
  absl::Status CompareLinks(std::vector<WatchEvent>& out);
  absl::Status CompareRoutes(std::vector<WatchEvent>& out);
  absl::Status CompareAddresses(std::vector<WatchEvent>& out);

  WatchSpec spec_;
  netlink::Socket events_;
  std::map<int, LinkState> links_;
  std::vector<bool> route_present_;    // beside spec_.routes
  std::vector<bool> address_present_;  // beside spec_.addresses
  bool first_ = true;
};

}  // namespace hedgerow::net
