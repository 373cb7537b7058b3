// SPDX-License-Identifier: Apache-2.0
#include "proxy/daemon/guardian.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proxy/instance/log.h"
#include "net/tc/clock_qdisc.h"
#include "net/netlink/link.h"

namespace hedgerow {
namespace {

// A lost clock packet costs hedges until it is found: looked for ten times a second, which reads a few words.
constexpr absl::Duration kTick = absl::Milliseconds(100);

}  // namespace

absl::StatusOr<std::unique_ptr<Guardian>> Guardian::Start(const v1::Config& config, const Topology& topology,
                                                          ProxyInstance& instance, DaemonFacts& facts,
                                                          EventLoop& loop,
                                                          std::function<void(const std::string&)> give_up,
                                                          std::function<void()> relink) {
  std::unique_ptr<Guardian> guardian(
      new Guardian(config, topology, instance, facts, loop, std::move(give_up), std::move(relink)));
  // As if we had been there, where an earlier daemon was.
  for (const Snapshot& past : instance.PastAnswers()) guardian->tuner_.Recall(past);
  absl::StatusOr<net::Watcher> watcher = guardian->MakeWatcher();
  if (!watcher.ok()) return watcher.status();
  guardian->watcher_ = std::make_unique<net::Watcher>(*std::move(watcher));
  Guardian* self = guardian.get();
  absl::Status status = loop.Watch(self->watcher_->fd(), [self] { self->OnEvents(); });
  const auto every = [&](absl::Duration period, std::function<void()> action) -> absl::Status {
    const auto timer = loop.StartTimer(period, std::move(action));
    if (timer.ok()) self->timers_.push_back(*timer);
    return timer.status();
  };
  if (status.ok()) status = every(kTick, [self] { self->EveryTick(); });
  if (status.ok()) status = every(absl::Seconds(1), [self] { self->EverySecond(); });
  if (!status.ok()) return status;
  return guardian;
}

Guardian::~Guardian() {
  for (const int timer : timers_) loop_.StopTimer(timer);
  if (watcher_ != nullptr) loop_.Unwatch(watcher_->fd());
}

absl::StatusOr<net::Watcher> Guardian::MakeWatcher() const {
  net::WatchSpec spec;
  const OwnLinks& links = instance_.links();
  spec.ifindexes = {links.proxy.link.ifindex, links.proxy.peer.ifindex, links.clock.link.ifindex,
                    links.clock.peer.ifindex};
  spec.routes = instance_.routes();
  for (const auto& [ifindex, link] : topology_.uplinks) {
    spec.ifindexes.push_back(ifindex);
    const auto addresses = net::ListAddresses(ifindex);
    if (!addresses.ok()) return addresses.status();
    for (const net::AddressInfo& address : *addresses) {
      const bool used = std::any_of(spec.routes.begin(), spec.routes.end(),
                                    [&](const auto& route) { return route.source == address.address; });
      if (used) spec.addresses.push_back(address);
    }
  }
  return net::Watcher::Start(spec);
}

void Guardian::OnEvents() {
  const auto events = watcher_->Drain();
  if (resting_) return;
  if (!events.ok()) {
    LogError("watching the network: ", std::string(events.status().message()));
    return;
  }
  for (const net::WatchEvent& event : *events) {
    if (!resting_) OnEvent(event);
  }
  if (!events->empty() && !resting_) {
    Repair();
    UpdateProblems();
  }
}

void Guardian::OnEvent(const net::WatchEvent& event) {
  LogWarning("network: ", event.ToString());
  // A clsact qdisc that is removed, on whatever interface, takes our filters with it. TCX programs stay attached.
  if (event.kind == net::WatchKind::kQdiscChanged) RepairAttachments();
  if (topology_.uplinks.contains(event.ifindex)) {
    OnUplink(event);
  } else if (event.kind == net::WatchKind::kLinkGone) {
    LogError("our own interface was removed by somebody else (", event.ToString(), "); making it again");
    resting_ = true;  // the next guardian looks after what is made now
    relink_();
  } else if (!net::FindLink(event.ifindex).ok()) {
    return;  // its end follows
  } else if (event.ifindex == instance_.links().clock.link.ifindex) {
    RepairClock();
  }
}

void Guardian::OnUplink(const net::WatchEvent& event) {
  for (v1::Uplink& uplink : facts_.uplinks) {
    if (uplink.ifindex() != event.ifindex) continue;
    const bool down = event.kind == net::WatchKind::kLinkGone || event.kind == net::WatchKind::kLinkDown;
    if (down) uplink.set_up(false);
    if (event.kind == net::WatchKind::kLinkUp) uplink.set_up(true);
  }
  if (event.kind == net::WatchKind::kLinkGone && gone_uplinks_.insert(event.ifindex).second) {
    LogError("uplink ", topology_.uplinks.at(event.ifindex).name, " is gone: its backends cannot be reached");
    if (gone_uplinks_.size() == topology_.uplinks.size()) {
      LogError("no uplink is left; ending in ", absl::FormatDuration(kLastUplinkGrace));
      last_uplink_gone_ = absl::Now();
    }
  }
  const std::string address =
      absl::StrCat(event.address.ToString(), " of ", topology_.uplinks.at(event.ifindex).name);
  if (event.kind == net::WatchKind::kAddressGone) lost_addresses_.insert(address);
  if (event.kind == net::WatchKind::kAddressBack) lost_addresses_.erase(address);
  if (event.kind == net::WatchKind::kMtuChanged) {
    const absl::Status status = instance_.FollowMtu();
    if (!status.ok()) LogError(std::string(status.message()));
  }
}

void Guardian::RepairAttachments() {
  const auto restored = instance_.RestoreAttachments();
  if (!restored.ok()) {
    give_up_(std::string(restored.status().message()));
  } else if (*restored > 0) {
    LogInfo("attached ", *restored, " programs again");
    facts_.adoption.set_attachments_restored(facts_.adoption.attachments_restored() +
                                             static_cast<uint64_t>(*restored));
  }
}

void Guardian::Repair() {
  const ProxyInstance::Restored restored = instance_.Restore();
  facts_.links_restored += static_cast<uint64_t>(restored.links);
  facts_.routes_restored += static_cast<uint64_t>(restored.routes);
  if (restored.links + restored.routes > 0) {
    LogInfo("restored ", restored.links, " links and ", restored.routes, " routes");
  }
  if (restored.problems != repair_problems_) {
    for (const Problem& problem : restored.problems) LogError(problem.text);
  }
  repair_problems_ = restored.problems;
}

// Installs the clock's queueing discipline again after it was replaced or removed. The clock's packet was lost with it,
// and the watchdog sends another.
void Guardian::RepairClock() {
  const int ifindex = instance_.links().clock.link.ifindex;
  const auto present = net::HasClockQdisc(ifindex, instance_.clock().kind);
  if (present.ok() && *present) return;
  const absl::Status status = net::InstallClockQdisc(ifindex, instance_.clock());
  if (status.ok()) {
    LogInfo("restored the clock's queueing discipline");
  } else {
    give_up_(
        absl::StrCat("the clock's queueing discipline cannot be restored: ", std::string(status.message())));
  }
}

void Guardian::EveryTick() {
  if (resting_) return;
  const auto restarted = instance_.data_plane().object().CheckClock();
  if (restarted.ok() && *restarted) LogWarning("the clock's packet was lost; sent another");
}

void Guardian::EverySecond() {
  if (resting_) return;
  instance_.Beat();
  // Tried again every second, but told once.
  const std::string forgetting(instance_.ForgetRetired().message());
  if (!forgetting.empty() && forgetting != reload_problem_) LogError(forgetting);
  reload_problem_ = forgetting;
  if (absl::Now() - last_uplink_gone_ >= kLastUplinkGrace) {
    last_uplink_gone_ = absl::InfiniteFuture();
    give_up_("every uplink is gone; no backend can be reached");
    return;
  }
  // What could not be repaired at the event (an address that comes back later) is tried again.
  if (!repair_problems_.empty()) Repair();
  const auto snapshot = instance_.data_plane().reader().Read(/*histograms=*/true);
  if (snapshot.ok()) instance_.NoteAnswers(*snapshot);
  const absl::Status tuned = snapshot.ok() ? tuner_.Tune(*snapshot, instance_.data_plane().policy()) : snapshot.status();
  data_plane_problem_ = std::string(tuned.message());
  if (snapshot.ok()) ForgetLeaders(*snapshot);
  UpdateProblems();
  if (snapshot.ok() && on_snapshot_ != nullptr) on_snapshot_(*snapshot);
}

void Guardian::ForgetLeaders(const Snapshot& snapshot) {
  for (const std::string& service : leader_watch_.Look(snapshot)) {
    const ServiceSnapshot& known = *FindByName(snapshot.services, service);
    LogWarning(absl::StrCat("service ", service, ": its cluster announces a leader, and only of terms before ",
                            known.leader.term, ", which is known: it was set up anew under its old id. The leader of the "
                            "old one is forgotten"));
    if (const absl::Status status = instance_.data_plane().policy().ForgetLeader(service); !status.ok()) {
      data_plane_problem_ = absl::StrCat("the leader of ", service, " cannot be forgotten: ", status.message());
    }
  }
}

void Guardian::UpdateProblems() {
  std::vector<Problem> problems;
  for (const int ifindex : gone_uplinks_) {
    problems.push_back({ProblemCode::kUplinkDown, absl::StrCat("uplink ", topology_.uplinks.at(ifindex).name, " is gone")});
  }
  for (const std::string& address : lost_addresses_) {
    problems.push_back({ProblemCode::kNoSource,
                        absl::StrCat("the address ", address, " is gone: replies cannot find their way back")});
  }
  problems.insert(problems.end(), repair_problems_.begin(), repair_problems_.end());
  if (!data_plane_problem_.empty()) problems.push_back({ProblemCode::kDataPlane, data_plane_problem_});
  if (!reload_problem_.empty()) problems.push_back({ProblemCode::kReload, reload_problem_});
  facts_.problems = std::move(problems);
}

}  // namespace hedgerow
