// SPDX-License-Identifier: Apache-2.0
//
// Everything a running proxy has made on this machine: links, routes, the
// clock, the loaded programs and where they are attached. Start makes all of
// it or nothing; TakeDown removes it in reverse. Owned by the daemon, used on
// its event-loop thread only.

#ifndef HEDGEROW_PROXY_DAEMON_PROXY_INSTANCE_H_
#define HEDGEROW_PROXY_DAEMON_PROXY_INSTANCE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proxy/admin/status.h"
#include "proxy/api/config.pb.h"
#include "proxy/daemon/spec.h"
#include "proxy/daemon/topology.h"
#include "proxy/daemon/undo_stack.h"
#include "proxy/data_plane/data_plane.h"
#include "net/clock_qdisc.h"
#include "net/delay_line.h"
#include "net/tc_attach.h"
#include "net/unique_fd.h"

namespace hedgerow {

class ProxyInstance {
 public:
  // Fills `facts` with what status shows of it. On an error nothing is left behind.
  static absl::StatusOr<std::unique_ptr<ProxyInstance>> Start(const v1::Config& config,
                                                              const Topology& topology, DaemonFacts& facts);
  ~ProxyInstance();

  DataPlane& data_plane() { return *data_plane_; }
  const OwnLinks& links() const { return links_; }
  const net::ClockQdiscOptions& clock() const { return clock_; }
  const net::DelayLineOptions* delay_line() const { return has_delay_line() ? &line_ : nullptr; }
  const std::vector<net::VipRoute>& routes() const { return routes_; }

  // Puts back what is missing: own links up, source addresses, VIP routes. Returns how many of each it had to.
  struct Restored {
    int links = 0;
    int routes = 0;
    std::vector<std::string> problems;
  };
  Restored Restore();

  // Gives our links the smallest MTU that the uplinks have now.
  absl::Status FollowMtu();

  // FailedPrecondition when a clsact filter of ours is no longer there.
  absl::Status CheckAttachments() const;

  // Detaches and removes everything; what failed, one line each. Idempotent.
  std::vector<std::string> TakeDown();

 private:
  ProxyInstance(const v1::Config& config, const Topology& topology) : config_(config), topology_(topology) {}

  absl::Status ReserveDescriptors();
  absl::Status MakePins();
  absl::Status MakeLinks();
  absl::Status MakeClock(DaemonFacts& facts);
  absl::Status TryClock(DaemonFacts& facts);
  absl::Status MakeDelayLine(DaemonFacts& facts);
  absl::Status TryDelayLine();
  bool has_delay_line() const { return config_.parking().engine() == v1::ENGINE_QDISC; }
  absl::Status Load();
  absl::Status Attach(DaemonFacts& facts);
  absl::Status AttachOne(const ProgramInfo& program, DaemonFacts& facts);
  absl::Status AttachToUplinks(const ProgramInfo& program, DaemonFacts& facts);
  absl::Status AttachProgram(const ProgramInfo& program, int ifindex, net::Direction direction);
  absl::Status AddRoutes();

  const v1::Config& config_;
  const Topology& topology_;
  std::string pin_folder_;
  OwnLinks links_;
  net::ClockQdiscOptions clock_;
  net::DelayLineOptions line_;
  std::unique_ptr<DataPlane> data_plane_;
  std::vector<std::unique_ptr<net::Attachment>> attachments_;
  std::vector<net::VipRoute> routes_;
  std::vector<net::UniqueFd> reserve_;
  UndoStack undo_;  // last member: unwinds before what it refers to goes
};

}  // namespace hedgerow

#endif  // HEDGEROW_PROXY_DAEMON_PROXY_INSTANCE_H_
