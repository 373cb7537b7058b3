// SPDX-License-Identifier: Apache-2.0
//
// Looks after a running proxy: has the network followed (network_follower.h), restores programs and the clock's
// queueing discipline where they were removed from outside, and does the periodic work (policy, clock watchdog). Lives
// on the event loop. A network that is gone is a problem in `status`, and no reason to end: it comes back.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "proxy/admin/status.h"
#include "proxy/api/config.pb.h"
#include "proxy/instance/proxy_instance.h"
#include "proxy/daemon/client_watch.h"
#include "proxy/daemon/copy_watch.h"
#include "proxy/daemon/health_checks.h"
#include "proxy/daemon/leader_watch.h"
#include "proxy/daemon/lender.h"
#include "proxy/daemon/network_follower.h"
#include "proxy/daemon/self_test.h"
#include "proxy/daemon/tuner.h"
#include "operate/event_loop.h"
#include "operate/problem_log.h"

namespace hedgerow {

class Guardian {
 public:
  // `relink` is called when one of our own interfaces is gone: it is to make the instance whole, with another guardian.
  // All references must outlive the guardian.
  static absl::StatusOr<std::unique_ptr<Guardian>> Start(const v1::Config& config, Topology& topology,
                                                         ProxyInstance& instance, DaemonFacts& facts,
                                                         operate::ProblemLog& problem_log, EventLoop& loop,
                                                         std::function<void()> relink);

  // Stops watching: the proxy runs on without repairs and without periodic work.
  ~Guardian();

  // Called once a second with what was read then, the histograms included.
  void OnSnapshot(std::function<void(const Snapshot&)> action) { on_snapshot_ = std::move(action); }

  // No repairs from here on: the proxy is being taken down.
  void Rest();

 private:
  Guardian(const v1::Config& config, ProxyInstance& instance, DaemonFacts& facts, operate::ProblemLog& problem_log,
           EventLoop& loop, std::function<void()> relink)
      : config_(config),
        instance_(instance),
        facts_(facts),
        problem_log_(problem_log),
        loop_(loop),
        relink_(std::move(relink)),
        tuner_(config),
        checks_(config),
        self_test_(instance) {}

  void OnFollowed();
  void KeepUplinkRoutes();
  void KeepInPlace();
  void LookInPlace(const Snapshot* snapshot);
  void Repair();
  void RestorePins();
  absl::Status RepairClock();
  void EverySecond();
  void EveryTick();
  void ForgetLeaders(const Snapshot& snapshot);
  void UpdateProblems();
  void NoteProgramsBefore();

  const v1::Config& config_;
  ProxyInstance& instance_;
  DaemonFacts& facts_;
  operate::ProblemLog& problem_log_;
  EventLoop& loop_;
  std::function<void()> relink_;
  std::vector<int> timers_;
  std::function<void(const Snapshot&)> on_snapshot_;
  Tuner tuner_;
  HealthChecks checks_;
  LeaderWatch leader_watch_;
  CopyWatch copy_watch_;
  ClientWatch client_watch_;
  SelfTest self_test_;
  std::vector<Problem> pin_problems_;
  std::vector<Problem> repair_problems_;
  std::vector<Problem> uplink_route_problems_;
  std::vector<Problem> leader_problems_;
  std::vector<Problem> in_place_problems_;
  Lender lender_;
  bool programs_serve_ = true;
  int seconds_ = 0;
  std::vector<Problem> copy_problems_;
  std::vector<Problem> client_problems_;
  std::string data_plane_problem_;
  std::string reload_problem_;  // what was begun or retired and cannot be ended
  bool resting_ = false;
  std::unique_ptr<NetworkFollower> follower_;  // last: it ends before what it calls
};

}  // namespace hedgerow
