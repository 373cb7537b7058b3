// SPDX-License-Identifier: Apache-2.0
#include "proxy/daemon/network_follower.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_join.h"
#include "operate/log.h"
#include "proxy/start/vips.h"

namespace hedgerow {
namespace {

// A former source is released by then (proxy_follow.cc).
constexpr absl::Duration kSoon = absl::Milliseconds(450);
// Beside events, for what the kernel tells nothing about (a path's MTU).
constexpr int kLookEverySeconds = 10;

std::array<const net::LinkInfo*, 4> Ends(const OwnLinks& links) {
  return {&links.proxy.link, &links.proxy.peer, &links.clock.link, &links.clock.peer};
}

}  // namespace

absl::StatusOr<std::unique_ptr<NetworkFollower>> NetworkFollower::Start(const v1::Config& config, Topology& topology,
                                                                        ProxyInstance& instance, DaemonFacts& facts,
                                                                        EventLoop& loop, Callbacks callbacks) {
  // Subscribe first and look then, so that nothing happens unseen in between.
  absl::StatusOr<net::Watcher> watcher = net::Watcher::Start();
  if (!watcher.ok()) return watcher.status();
  std::unique_ptr<NetworkFollower> follower(
      new NetworkFollower(config, topology, instance, facts, loop, std::move(callbacks), *std::move(watcher)));
  NetworkFollower* self = follower.get();
  self->SetInterest();
  const absl::Status status = loop.Watch(self->watcher_.fd(), [self] { return self->OnReadable(); });
  if (!status.ok()) return status;
  self->watching_ = true;
  self->After(absl::Milliseconds(1), /*look=*/true);
  return follower;
}

NetworkFollower::~NetworkFollower() { Rest(); }

void NetworkFollower::Rest() {
  resting_ = true;
  if (timer_.has_value()) loop_.StopTimer(*std::exchange(timer_, std::nullopt));
  if (std::exchange(watching_, false)) loop_.Unwatch(watcher_.fd());
}

bool NetworkFollower::OnReadable() {
  const int64_t wait_ns = budget_.WaitNs(MonotonicNs());
  if (wait_ns == 0) return Turn(/*look=*/false);
  facts_.network.set_deferred(facts_.network.deferred() + 1);
  After(absl::Nanoseconds(wait_ns), /*look=*/false);
  return true;
}

// One timer. No wish for a look is lost: it is done when the timer is due, whatever it was started for; the budget's
// wait begins anew with each event. While it runs because of the budget, events wait in the kernel; if they do not fit
// there, they are lost, which leads to the same look.
void NetworkFollower::After(absl::Duration delay, bool look) {
  look_when_due_ |= look;
  if (!look && std::exchange(watching_, false)) loop_.Unwatch(watcher_.fd());
  if (timer_.has_value()) {
    if (look) return;
    loop_.StopTimer(*std::exchange(timer_, std::nullopt));
  }
  const auto timer = loop_.StartTimer(delay, [this] {
    loop_.StopTimer(*std::exchange(timer_, std::nullopt));
    Turn(std::exchange(look_when_due_, false));
  });
  if (timer.ok()) timer_ = *timer;  // without a descriptor for one EverySecond() looks
}

bool NetworkFollower::Turn(bool look) {
  if (resting_) return false;
  const int64_t began_ns = MonotonicNs();
  const auto events = watcher_.Drain();
  if (!events.ok()) LogError("watching the network: ", std::string(events.status().message()));
  const net::NetworkEvents seen = events.value_or(net::NetworkEvents{.lost = true});
  facts_.network.set_events(facts_.network.events() + seen.messages);
  facts_.network.set_events_lost(facts_.network.events_lost() + (seen.lost ? 1 : 0));
  const bool came = seen.messages > 0 || seen.lost;
  if (look || seen.any()) Look();
  if (resting_) return came;
  const int64_t ended_ns = MonotonicNs();
  budget_.Spend(ended_ns, ended_ns - began_ns);
  if (watching_) return came;
  const absl::Status watched = loop_.Watch(watcher_.fd(), [this] { return OnReadable(); });
  watching_ = watched.ok();
  return came;
}

bool NetworkFollower::OwnLinksStand(const NetworkView& network) const {
  const auto ends = Ends(instance_.links());
  return std::all_of(ends.begin(), ends.end(), [&](const net::LinkInfo* own) {
    return std::any_of(network.links.begin(), network.links.end(),
                       [own](const net::LinkInfo& link) { return link.ifindex == own->ifindex; });
  });
}

void NetworkFollower::Look() {
  facts_.network.set_looks(facts_.network.looks() + 1);
  absl::StatusOr<NetworkView> network = KernelNetworkView();
  if (!network.ok()) {
    LogError("looking at the network: ", std::string(network.status().message()));
    After(absl::Seconds(1), /*look=*/true);
    return;
  }
  if (!OwnLinksStand(*network)) {
    LogError("one of our own interfaces was removed from outside; making it again");
    Rest();  // the next follower looks after what is made now
    callbacks_.relink();
    return;
  }
  ProxyInstance::Followed followed = instance_.Follow(*network, topology_, facts_);
  // A route that could not be put back is one problem, not two.
  for (Problem& problem : CheckVips(config_, *network, instance_.links().proxy.link.ifindex, followed.lost_vips,
                                    instance_.LeadingRoutes(), instance_.BoundRoutes()))
    followed.problems.push_back(std::move(problem));
  Report(followed);
  SetInterest();
  if (followed.soon) After(kSoon, /*look=*/true);
  callbacks_.followed();
}

void NetworkFollower::Report(const ProxyInstance::Followed& followed) {
  facts_.links_restored += static_cast<uint64_t>(followed.links);
  facts_.routes_restored += static_cast<uint64_t>(followed.routes);
  if (followed.links + followed.routes > 0) {
    LogInfo("restored ", followed.links, " links and ", followed.routes, " routes");
  }
  if (followed.moved) {
    facts_.network.set_moves(facts_.network.moves() + 1);
    std::vector<std::string> uplinks;
    for (const auto& [ifindex, link] : topology_.uplinks)
      if (topology_.IsUplink(ifindex)) uplinks.push_back(link.name);
    LogInfo("the network has changed and is followed; uplinks: ", absl::StrJoin(uplinks, ", "));
  }
  problems_ = followed.problems;
}

void NetworkFollower::SetInterest() {
  net::Interest interest;
  for (const net::LinkInfo* own : Ends(instance_.links())) interest.ifindexes.insert(own->ifindex);
  for (const auto& [ifindex, link] : topology_.uplinks) interest.ifindexes.insert(ifindex);
  interest.ifindexes.insert(net::kLoopbackIfindex);
  for (const net::VipRoute& route : instance_.routes()) interest.destinations.push_back(route.vip);
  for (const v1::Service& service : config_.services()) {
    for (const v1::Backend& backend : service.backends()) {
      const auto address = net::IpAddress::Parse(backend.address());
      if (address.ok()) interest.destinations.push_back(*address);
    }
  }
  for (const Topology::ServicePath& service : topology_.services) {
    for (const BackendPath& backend : service.backends)
      if (backend.next_hop.has_value()) interest.destinations.push_back(*backend.next_hop);
  }
  watcher_.SetInterest(std::move(interest));
}

void NetworkFollower::EverySecond() {
  const bool waits = watching_ || timer_.has_value();
  if (resting_ || (++seconds_ % kLookEverySeconds != 0 && problems_.empty() && waits)) return;
  if (budget_.WaitNs(MonotonicNs()) == 0) Turn(/*look=*/true);
}

}  // namespace hedgerow
