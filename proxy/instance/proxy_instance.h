// SPDX-License-Identifier: Apache-2.0
//
// Everything a running proxy has made on this machine: links, routes, the
// clock, the loaded programs and where they are attached. Start makes all of
// it or nothing; Adopt takes over what an earlier daemon left at work
// (proxy_adopt.cc), or changes nothing; TakeDown removes it in reverse; Leave
// lets it work on without a daemon. Owned by the daemon, used on its
// event-loop thread only.

#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proxy/admin/status.h"
#include "proxy/api/config.pb.h"
#include "proxy/instance/answer_history.h"
#include "proxy/instance/instance_record.h"
#include "proxy/start/spec.h"
#include "proxy/start/topology.h"
#include "proxy/instance/undo_stack.h"
#include "proxy/data_plane/data_plane.h"
#include "proxy/kernel_part/kernel_data_plane.h"
#include "proxy/kernel_part/pinned_array.h"
#include "net/netlink/in_place.h"
#include "net/tc/clock_qdisc.h"
#include "net/tc/hook_programs.h"
#include "net/tc/tc_attach.h"
#include "net/unique_fd.h"

namespace hedgerow {

class ProxyInstance {
 public:
  // Fills `facts` with what status shows of it. On an error nothing is left behind.
  static absl::StatusOr<std::unique_ptr<ProxyInstance>> Start(const v1::Config& config, const Topology& topology,
                                                              DaemonFacts& facts);
  // Takes over a complete instance (Inspect) and restores what was removed, own links included. On an error everything
  // is as it was, and works on. kRepair: the daemon that made or adopted the instance takes it over again, after
  // Leave().
  enum class Takeover { kSuccession, kRepair };
  static absl::StatusOr<std::unique_ptr<ProxyInstance>> Adopt(const v1::Config& config, const Topology& topology,
                                                              InstanceRecord record, Takeover takeover,
                                                              DaemonFacts& facts);
  ~ProxyInstance();

  KernelDataPlane& data_plane() { return *data_plane_; }
  const OwnLinks& links() const { return links_; }
  const net::ClockQdiscOptions& clock() const { return clock_; }
  const std::vector<net::VipRoute>& routes() const { return routes_; }

  // The same configuration over the network as it is now: what has changed is followed, what is missing is put back
  // (own links, source addresses, routes, rules). `topology` is the caller's, which this object refers to; on return it
  // is what holds now.
  struct Followed {
    int links = 0;       // put back
    int routes = 0;      // put back
    bool moved = false;  // a backend's uplink or a service's source is another one now
    bool soon = false;   // to be called again within half a second
    std::vector<Problem> problems;
    std::set<net::IpAddress> lost_vips;  // whose routes are not in place; `problems` has why
  };
  Followed Follow(const NetworkView& network, Topology& topology, DaemonFacts& facts);

  // Keeps the splitter on each uplink, a route to each VIP by it, for clients that are bound to it, and the routes that
  // lead by uplinks (RouteByUplink). What failed.
  std::vector<Problem> KeepUplinkRoutes();

  // The VIPs of the configuration. Where that leaves it open (`vip_route: auto`), the routes to these lead by an uplink
  // from here on, each by that of its service's primary, or by the proxy interface, and to others as before. A VIP with
  // a backend on this host leads by the proxy interface in any case.
  std::set<net::IpAddress> Vips() const;
  std::vector<Problem> RouteByUplink(const std::set<net::IpAddress>& vips, bool by_uplink);
  bool IsLedByUplink(const net::IpAddress& vip) const;
  bool MayChooseRoute() const { return config_.vip_route() == v1::VIP_ROUTE_AUTO; }
  // The name of the interface by which a VIP's packets leave this host's routing, and its answers enter.
  std::string RouteOf(const net::IpAddress& vip) const;
  void NoteRoutes(DaemonFacts& facts) const;
  // The routes that lead by uplinks.
  std::vector<net::VipRoute> LeadingRoutes() const;
  // The routes of clients that are bound to an uplink: there, too, the splitter takes packets to the VIP.
  std::vector<net::VipRoute> BoundRoutes() const;

  // Takes the VIPs of services with `in_place`, and what `also_at` lists, over for another net::kInPlaceLife, or puts
  // back what leads there.
  absl::Status KeepInPlace();
  // Services in place that are their owners' at the next KeepInPlace(), though they are configured.
  void GiveBack(std::set<std::string> services) { given_back_ = std::move(services); }
  bool IsInPlace(const net::IpAddress& vip) const;

  // Attaches programs again that were removed from their hooks.
  struct Restored {
    int programs = 0;
    std::vector<Problem> problems;  // of those that could not be
    bool serves = true;             // none of these carries requests or answers
  };
  Restored RestoreAttachments();

  // Pins what the kernel part outlives the daemon by again, where that was removed from outside; how many pins.
  absl::StatusOr<int> RestorePins();

  // The TCX programs that run before the reply program on the uplinks, by number: cheap enough for ten times a second.
  std::vector<uint32_t> TcxBeforeOurs() const;
  // All programs that do on this uplink.
  absl::StatusOr<std::vector<net::HookProgram>> ProgramsBeforeOurs(int uplink) const;
  // Moves the reply program before them where they are TCX programs; a line that says so. Empty: nothing could be
  // moved.
  absl::StatusOr<std::string> MoveRepliesFirst(int uplink);

  // On which ports the programs await announcements.
  std::set<uint32_t> AwaitedPorts() const { return KernelObject::AwaitedPorts(record_->data().load_config()); }
  // The roster that `next` would have (roster.h). What is over by now is forgotten first, in the kernel as
  // well.
  absl::StatusOr<v1::Roster> RosterFor(const v1::Config& next);
  // Goes over to another configuration, whose differences can be applied while running (config/diff.h), and its
  // roster. On an error everything is as it was. Afterwards the caller's configuration and topology must be
  // these.
  absl::Status Reconfigure(const v1::Config& next, const Topology& topology, const v1::Roster& roster,
                           DaemonFacts& facts);
  // Once a second: removes what an earlier reload has retired and nothing in flight knows any more.
  absl::Status ForgetRetired();

  // Keeps the answer times of a snapshot for the next daemon, now and then.
  void NoteAnswers(const Snapshot& snapshot);
  // What was kept, by us or by the daemon before us, oldest first: names, times and answer times, nothing else.
  std::vector<Snapshot> PastAnswers() const;
  // Puts the daemon's sign of life into the kernel.
  void Beat();

  // Detaches and removes everything; what failed, one line each. Idempotent.
  std::vector<std::string> TakeDown();
  // Everything stays and goes on working when this object ends.
  void Leave();

 private:
  ProxyInstance(const v1::Config& config, const Topology& topology) : config_(config), topology_(topology) {}

  absl::Status ReserveDescriptors();
  absl::Status MakePins();
  absl::Status MakeLinks();
  absl::Status MakePair(const std::string& end, const std::string& peer, uint32_t mtu_bytes, net::VethPair& out);
  absl::Status MakeClockPair();
  absl::Status MakeClock(DaemonFacts& facts);
  absl::Status TryClock(DaemonFacts& facts);
  absl::Status Load();
  DataPlaneSpec Spec() const;
  absl::Status Pin();
  absl::Status SaveRecord(const DaemonFacts& facts);
  absl::Status Attach(DaemonFacts& facts);
  absl::Status AttachOne(const Hook& hook);
  absl::Status AttachReplies(const ProgramInfo& program, const Topology& topology);
  net::AttachSpec AttachSpecOf(const ProgramInfo& program, int ifindex, net::Direction direction) const;
  absl::Status AttachProgram(const ProgramInfo& program, int ifindex, net::Direction direction);
  absl::Status AddRoutes(const v1::Config& config, const Topology& topology);
  struct WantedRoute {
    std::string service;
    net::VipRoute route;
  };
  std::vector<WantedRoute> WantedRoutes(const v1::Config& config, const Topology& topology) const;
  absl::Status PutRoute(const WantedRoute& wanted, uint32_t rule_priority);
  absl::Status PutRules(const v1::Config& config);
  void KeepOwnLinks(const NetworkView& network, const Topology& next, Followed& out);
  void AttachOrStay(const Topology& before, Topology& next, Followed& out);
  void KeepGuards(const NetworkView& network, const Topology& next, Followed& out);
  void ReleaseSources(const NetworkView& network, Topology& next, Followed& out);
  void KeepRoutes(const NetworkView& network, const Topology& next, Followed& out);
  void RestoreRoutes(const NetworkView& network, Followed& out);
  void NoteNeighbours(const NetworkView& network, Topology& next, Followed& out);
  void TellUnrouted(const Topology& next, Followed& out);
  absl::Status KnowUplinkRoutes();
  bool AnyBackendHere(const net::IpAddress& vip) const;
  int UplinkToLeadBy(const net::IpAddress& vip) const;
  absl::Status KeepLeadingRoutes();
  absl::Status KeepOwnAddresses();
  absl::Status LeaveUplinks();
  absl::Status PutInPlace(const v1::Config& config, const Topology& topology, net::InPlaceRules wanted);
  absl::Status GiveBackBefore(const v1::Config& next);
  void FollowInPlace(const v1::Config& next, const Topology& topology);
  void PushUndoOfInPlace();
  net::Attachment* AttachmentOn(int ifindex, absl::string_view role) const;
  ProgramInfo ProgramNamed(absl::string_view name) const;
  std::set<int> RecordedUplinks() const;
  absl::Status AdoptRetiredReplies(const ProgramInfo& program);
  absl::Status AdoptSplitters(const ProgramInfo& program);
  void TakeBack(const std::vector<net::VipRoute>& routes);
  absl::Status TakeBackRoster();
  absl::Status EndReload();
  absl::Status EndEarlierReload();
  void NoteFacts(const Topology& topology, DaemonFacts& facts) const;
  void RemoveUnwantedRoutes();
  void DetachUnusedUplinks();
  void FillRecord(const v1::Config& config, const Topology& topology, const v1::Roster& roster);
  absl::StatusOr<bool> IsAttached(const net::Attachment& attachment) const;
  AnswerHistory::Memory& AnswersOf(size_t service, size_t backend) const;
  void PushUndoOfPins();
  void PushUndoOfLink(const std::string& name);
  void PushUndoOfRoute(const net::VipRoute& route);
  static absl::Status DeleteRouteAndRules(const net::VipRoute& route);
  // The names of their steps in undo_, by which they leave it when a reload has undone them.
  static std::string UndoOfRoute(const net::VipRoute& route);
  static std::string UndoOfAttachment(const net::Attachment& attachment);

  absl::Status AdoptPins(InstanceRecord record);
  absl::Status AdoptLinks(DaemonFacts& facts);
  absl::Status AdoptClock(DaemonFacts& facts);
  absl::Status AdoptDataPlane();
  absl::StatusOr<net::Attachment> TakeOver(const net::AttachSpec& spec, const ProgramInfo& program, bool& anew);
  absl::Status AdoptRoutes();
  void AdoptRetiredRoutes(const std::vector<net::VipRoute>& present);
  absl::Status CommitAdoption(Takeover takeover, DaemonFacts& facts);
  void NoteSuccession(const Snapshot& snapshot, DaemonFacts& facts);
  void RemoveUnusedPins();
  void RemoveStrayFilters();
  void RollBack();

  const v1::Config& config_;
  const Topology& topology_;
  std::string pin_folder_;
  OwnLinks links_;
  net::ClockQdiscOptions clock_;
  std::unique_ptr<KernelDataPlane> data_plane_;
  std::optional<InstanceRecord> record_;
  PinnedArray answers_;
  std::vector<std::shared_ptr<net::Attachment>> attachments_;
  int restores_ = 0;
  // While adopting: what was put aside, by program, and which attachments had to be made anew.
  bool adopting_ = false;
  std::map<std::string, net::UniqueFd> old_programs_;
  std::vector<bool> attached_anew_;  // beside attachments_
  std::vector<std::string> links_anew_;
  std::vector<net::VipRoute> routes_;
  std::map<net::IpAddress, int64_t> former_sources_;  // since when (CLOCK_MONOTONIC) no uplink or route has wanted them
  std::vector<net::IpAddress> released_;              // to be taken off the proxy interface in this look
  struct BoundRoute {
    net::VipRoute route;    // by an uplink
    net::MacAddress mac{};  // of its neighbour entry
    bool operator==(const BoundRoute&) const = default;
  };
  std::vector<BoundRoute> bound_;  // what stands by uplinks, for clients that are bound to them
  bool knows_uplink_routes_ = false;
  std::set<net::IpAddress> by_uplink_;  // with `auto`
  std::map<net::IpAddress, net::VipRoute>
      leads_;                                   // as the kernel programs know them; ifindex 0: by the proxy interface
  std::set<std::string> own_addresses_;         // likewise
  net::InPlaceRules in_place_;                  // as they stand
  std::set<std::string> given_back_;            // names of services
  std::set<net::Neighbour> failed_neighbours_;  // of backends, at the last look
  // Backends that cannot be reached, by service and name, and since when (CLOCK_MONOTONIC).
  std::map<std::pair<std::string, std::string>, int64_t> unrouted_;
  std::vector<net::UniqueFd> reserve_;
  std::set<std::string> left_links_;  // that could not be removed: their pins stay, for the next start
  UndoStack undo_;                    // last member: unwinds before what it refers to goes
};

// What an earlier daemon of this instance left.
struct Standing {
  std::optional<InstanceRecord> record;  // complete: it has served, and can be taken over
  bool half_made = false;                // a start died half-way: it serves no traffic
};
// FailedPrecondition: something serves, but its record is missing or cannot be read.
absl::StatusOr<Standing> Inspect(const std::string& instance);

}  // namespace hedgerow
