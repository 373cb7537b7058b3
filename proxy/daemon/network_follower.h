// SPDX-License-Identifier: Apache-2.0
//
// The one owner of how each backend is reached while the proxy runs. Whenever the kernel tells of a change it reads
// links and addresses, asks for the routes to all backends and VIPs, and has the instance follow what differs
// (ProxyInstance::Follow). What cannot be followed is a problem. It does not reason from events: any event, and lost
// ones, lead to the same look at everything.
//
// A look waits while earlier ones have had their share: a tenth of a processor, beyond a reserve of kReserve. Meanwhile
// nothing is read from the kernel, so a routing daemon that changes 1,000 routes a second costs no more than that. No
// look waits longer than kLongestWait. Lives on the event loop; owned by the guardian.

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "proxy/admin/status.h"
#include "proxy/api/config.pb.h"
#include "proxy/daemon/look_budget.h"
#include "proxy/instance/proxy_instance.h"
#include "operate/event_loop.h"
#include "net/netlink/watch.h"

namespace hedgerow {

class NetworkFollower {
 public:
  struct Callbacks {
    std::function<void()> relink;    // one of our own interfaces is gone
    std::function<void()> followed;  // after each look
  };
  // Looks at once. All references must outlive it. `topology` is the one that `instance` refers to.
  static absl::StatusOr<std::unique_ptr<NetworkFollower>> Start(const v1::Config& config, Topology& topology,
                                                                ProxyInstance& instance, DaemonFacts& facts,
                                                                EventLoop& loop, Callbacks callbacks);
  ~NetworkFollower();

  // What the last look could not follow.
  const std::vector<Problem>& problems() const { return problems_; }
  // Once a second: looks again where there was a problem, and now and then in any case.
  void EverySecond();
  // Nothing is followed from here on: the proxy is being taken down.
  void Rest();

 private:
  NetworkFollower(const v1::Config& config, Topology& topology, ProxyInstance& instance, DaemonFacts& facts,
                  EventLoop& loop, Callbacks callbacks, net::Watcher watcher)
      : config_(config),
        topology_(topology),
        instance_(instance),
        facts_(facts),
        loop_(loop),
        callbacks_(std::move(callbacks)),
        watcher_(std::move(watcher)) {}

  bool OnReadable();
  bool Turn(bool look);  // false: no message had come
  void Look();
  void Report(const ProxyInstance::Followed& followed);
  void After(absl::Duration delay, bool look);
  void SetInterest();
  bool OwnLinksStand(const NetworkView& network) const;

  const v1::Config& config_;
  Topology& topology_;
  ProxyInstance& instance_;
  DaemonFacts& facts_;
  EventLoop& loop_;
  Callbacks callbacks_;
  net::Watcher watcher_;
  LookBudget budget_;
  std::optional<int> timer_;
  bool look_when_due_ = false;  // whatever the events then say
  bool watching_ = false;
  bool resting_ = false;
  int seconds_ = 0;
  std::vector<Problem> problems_;
};

}  // namespace hedgerow
