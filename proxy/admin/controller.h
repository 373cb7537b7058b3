// SPDX-License-Identifier: Apache-2.0
//
// What the administration service may ask of a running daemon, as plain calls
// on the event loop's thread. The gRPC service translates to it; the metrics
// exporter reads through it.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proxy/admin/status.h"
#include "proxy/api/admin.pb.h"
#include "proxy/api/config.pb.h"
#include "proxy/data_plane/data_plane.h"

namespace hedgerow {

class Controller {
 public:
  // Takes everything down and returns what could not be removed; then ends the event loop. Called at most once.
  using TakeDown = std::function<std::vector<std::string>()>;
  // Reads the configuration's file again and goes over to it; in a dry run says what that would change, or what
  // another file would.
  using ReloadConfig = std::function<absl::StatusOr<v1::ReloadReply>(bool dry_run, const std::string& file)>;

  Controller(const v1::Config& config, const DaemonFacts& facts, TakeDown take_down)
      : config_(config), facts_(facts), take_down_(std::move(take_down)) {}

  // From here on questions can be answered; before, they are Unavailable. The servers are started first, so
  // that a socket or port that is taken is found before anything is made.
  void Serve(LivePolicy& policy, DataPlaneReader& reader) {
    policy_ = &policy;
    reader_ = &reader;
  }

  absl::StatusOr<v1::Status> Status();
  absl::StatusOr<Snapshot> Read(bool histograms = true);
  // An empty name: all services. NotFound names the services there are.
  absl::StatusOr<v1::LeaderList> LeaderShow(const std::string& service);
  absl::StatusOr<v1::Leader> LeaderSet(const std::string& service, const std::string& backend);
  absl::StatusOr<v1::Leader> LeaderUnset(const std::string& service);
  absl::StatusOr<v1::BypassReply> Bypass(const std::string& service, bool on);
  absl::StatusOr<v1::DryRunReply> DryRun(const std::string& service, bool on);
  // An empty service name: every service that has a backend of this name.
  absl::StatusOr<v1::DrainReply> Drain(const std::string& backend, const std::string& service, bool on);
  absl::StatusOr<v1::TestHedgeReply> TestHedge(const v1::TestHedgeRequest& request);
  absl::StatusOr<v1::DownReply> Down();
  void OnReload(ReloadConfig reload) { reload_ = std::move(reload); }
  absl::StatusOr<v1::ReloadReply> Reload(bool dry_run, const std::string& file);
  absl::StatusOr<v1::Counts> Counts();
  absl::StatusOr<std::unique_ptr<TraceSource>> OpenTrace(const hr_trace_filter& filter);

  const v1::Config& config() const { return config_; }
  const DaemonFacts& facts() const { return facts_; }

 private:
  absl::StatusOr<int> FindService(const std::string& name) const;
  absl::StatusOr<v1::Leader> LeaderOf(int service);
  using SetSwitch = absl::Status (LivePolicy::*)(const std::string& service, bool on);
  template <typename Reply>
  absl::StatusOr<Reply> Switch(const std::string& service, bool on, SetSwitch set, void (Reply::*set_in_reply)(bool));

  const v1::Config& config_;
  const DaemonFacts& facts_;
  LivePolicy* policy_ = nullptr;
  DataPlaneReader* reader_ = nullptr;
  TakeDown take_down_;
  ReloadConfig reload_;
};

}  // namespace hedgerow
