// SPDX-License-Identifier: Apache-2.0
//
// Looks after a running proxy: restores what was removed from outside (routes, links, the clock's queueing
// discipline), notices uplinks that vanish, and does the periodic work (policy, clock watchdog). Lives on the event
// loop.
//
// Policy for uplinks: while others remain the daemon goes on, degraded, and
// says so in status. When the last one is gone it waits kLastUplinkGrace, so
// that `status` can tell what happened, and then ends with an error.

#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proxy/admin/status.h"
#include "proxy/api/config.pb.h"
#include "proxy/instance/proxy_instance.h"
#include "proxy/daemon/leader_watch.h"
#include "proxy/daemon/tuner.h"
#include "proxy/loop/event_loop.h"
#include "net/netlink/watch.h"

namespace hedgerow {

inline constexpr absl::Duration kLastUplinkGrace = absl::Seconds(10);

class Guardian {
 public:
  // `give_up` is called, once, with what cannot be repaired, and `relink` when one of our own interfaces is
  // gone: it is to make the instance whole, with another guardian. All references must outlive the guardian.
  static absl::StatusOr<std::unique_ptr<Guardian>> Start(const v1::Config& config, const Topology& topology,
                                                         ProxyInstance& instance, DaemonFacts& facts,
                                                         EventLoop& loop,
                                                         std::function<void(const std::string&)> give_up,
                                                         std::function<void()> relink);

  // Stops watching: the proxy runs on without repairs and without periodic work.
  ~Guardian();

  // Called once a second with what was read then, the histograms included.
  void OnSnapshot(std::function<void(const Snapshot&)> action) { on_snapshot_ = std::move(action); }

  // No repairs from here on: the proxy is being taken down.
  void Rest() { resting_ = true; }

 private:
  Guardian(const v1::Config& config, const Topology& topology, ProxyInstance& instance, DaemonFacts& facts,
           EventLoop& loop, std::function<void(const std::string&)> give_up, std::function<void()> relink)
      : topology_(topology),
        instance_(instance),
        facts_(facts),
        loop_(loop),
        give_up_(std::move(give_up)),
        relink_(std::move(relink)),
        tuner_(config) {}

  absl::StatusOr<net::Watcher> MakeWatcher() const;
  void OnEvents();
  void OnEvent(const net::WatchEvent& event);
  void OnUplink(const net::WatchEvent& event);
  void Repair();
  void RepairAttachments();
  void RepairClock();
  void EverySecond();
  void EveryTick();
  void ForgetLeaders(const Snapshot& snapshot);
  void UpdateProblems();

  const Topology& topology_;
  ProxyInstance& instance_;
  DaemonFacts& facts_;
  EventLoop& loop_;
  std::function<void(const std::string&)> give_up_;
  std::function<void()> relink_;
  std::vector<int> timers_;
  std::function<void(const Snapshot&)> on_snapshot_;
  std::unique_ptr<net::Watcher> watcher_;
  Tuner tuner_;
  LeaderWatch leader_watch_;
  std::set<int> gone_uplinks_;
  std::set<std::string> lost_addresses_;  // "10.77.0.1 of eth0": clients' packets carry it as their source
  absl::Time last_uplink_gone_ = absl::InfiniteFuture();
  std::vector<Problem> repair_problems_;
  std::string data_plane_problem_;
  std::string reload_problem_;  // what was begun or retired and cannot be ended
  bool resting_ = false;
};

}  // namespace hedgerow
