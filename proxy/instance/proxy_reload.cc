// SPDX-License-Identifier: Apache-2.0
//
// A proxy that runs, under another configuration. First the record gets the roster of both configurations, since an id
// that was given must be known to the next daemon, and says that a reload has begun. Then come new uplinks, by which
// answers will come, the kernel's maps (data_plane/config_writer.cc), and routes, which let traffic in; at last the
// record says that the other configuration is in force. After an error, or when a daemon takes over that was killed in
// between, the maps are brought to the configuration in force, by a reload like any other. What is removed stays known
// for as long as a request may still be answered by it, and goes later. Part of ProxyInstance; what can change at all
// says config/diff.h.

#include <set>

#include "absl/strings/str_cat.h"
#include "operate/log.h"
#include "proxy/instance/proxy_instance.h"
#include "proxy/instance/proxy_instance_parts.h"
#include "operate/event_loop.h"

namespace hedgerow {
namespace {

RetiredService Retired(const v1::RosterService& service, const v1::Roster& left) {
  return {service.id(), service.vip(), static_cast<uint16_t>(service.port()), HasVip(left, service.vip())};
}

}  // namespace

absl::StatusOr<v1::Roster> ProxyInstance::RosterFor(const v1::Config& next) {
  if (const absl::Status status = ForgetRetired(); !status.ok()) return status;
  const DataPlaneRoom room = data_plane_->object().room();
  return NextRoster(record_->data().roster(), next, {.services = room.services, .backends = room.backends},
                    MonotonicNs());
}

absl::Status ProxyInstance::Reconfigure(const v1::Config& next, const Topology& topology, const v1::Roster& roster,
                                        DaemonFacts& facts) {
  v1::KernelRecord& record = record_->data();
  const v1::KernelRecord before = record;
  record.set_reloading(true);
  *record.mutable_roster() = roster;
  NoteUplinks(next, topology, *record.mutable_roster());
  absl::Status status = Annotate(record_->Save(), "the instance's record");
  if (!status.ok()) {
    record = before;
    return status;
  }
  const std::vector<net::VipRoute> routes = routes_;
  status = GiveBackBefore(next);
  if (status.ok()) status = AttachReplies(ProgramNamed(kReplyProgram), topology);
  if (status.ok()) {
    status = data_plane_->config().Reconfigure(MakeSpec(next, topology, links_, roster),
                                               [&] { return AddRoutes(next, topology); });
  }
  if (!status.ok()) {
    FollowInPlace(config_, topology_);
    TakeBack(routes);
    absl::Status back = TakeBackRoster();
    if (back.ok()) back = EndReload();
    if (back.ok()) return status;
    return Annotate(status, absl::StrCat("half done, and not undone (", std::string(back.message()), ")"));
  }
  FillRecord(next, topology, roster);
  // The maps are what serves. Without this record the next daemon goes back to the configuration before, and
  // from there to whatever it is given.
  if (const absl::Status saved = record_->Save(); !saved.ok()) LogError(std::string(saved.message()));
  FollowInPlace(next, topology);
  NoteFacts(topology, facts);
  return absl::OkStatus();
}

// In the record's roster what was removed is configured again, and what was added is retired: a request may have met
// it.
absl::Status ProxyInstance::TakeBackRoster() {
  const auto roster = NextRoster(record_->data().roster(), config_,
                                 {.services = HR_MAX_SERVICES, .backends = HR_MAX_BACKENDS}, MonotonicNs());
  if (!roster.ok()) return roster.status();
  *record_->data().mutable_roster() = *roster;
  return absl::OkStatus();
}

// Until this is done no id may be given or forgotten: the maps may hold part of the other configuration.
absl::Status ProxyInstance::EndReload() {
  if (absl::Status status = data_plane_->config().Reconfigure(Spec()); !status.ok()) return status;
  FillRecord(config_, topology_, v1::Roster(record_->data().roster()));
  return record_->Save();
}

absl::Status ProxyInstance::EndEarlierReload() {
  if (!record_->data().reloading()) return absl::OkStatus();
  LogWarning("something ended in the midst of a reload, which is undone");
  return Annotate(EndReload(), "undoing a reload that was begun");
}

void ProxyInstance::NoteFacts(const Topology& topology, DaemonFacts& facts) const {
  facts.uplinks.clear();
  for (const auto& [ifindex, link] : topology.uplinks) {
    if (!topology.IsUplink(ifindex)) continue;
    const net::Attachment* attachment = AttachmentOn(ifindex, kReplyProgram);
    v1::Uplink& uplink = facts.uplinks.emplace_back();
    uplink.set_name(link.name);
    uplink.set_ifindex(ifindex);
    uplink.set_up(link.up());
    const bool tcx = attachment != nullptr && attachment->mechanism() == net::Mechanism::kTcx;
    uplink.set_attach(tcx ? "tcx" : "clsact");
  }
  facts.paths.clear();
  for (const Topology::ServicePath& service : topology.services) {
    ServicePathFacts& path = facts.paths.emplace_back();
    path.name = service.name;
    if (service.source.has_value()) path.source = service.source->ToString();
    for (const BackendPath& backend : service.backends) {
      const auto uplink = topology.uplinks.find(backend.uplink);
      path.backends.push_back({uplink == topology.uplinks.end() ? "" : uplink->second.name,
                               backend.next_hop.has_value() ? backend.next_hop->ToString() : ""});
    }
  }
  NoteRoutes(facts);
}

// Restores the routes and rules of before, and drops the undo steps of those that it deletes, since these have nothing
// left to do. New uplinks stay until no backend is retired, because requests may have gone out by them.
void ProxyInstance::TakeBack(const std::vector<net::VipRoute>& routes) {
  const auto keep = [](const absl::Status& status) {
    if (!status.ok()) LogError("while undoing a failed reload: ", std::string(status.message()));
  };
  for (size_t i = 0; i < routes_.size(); ++i) {
    if (i >= routes.size()) {
      const absl::Status deleted = DeleteRouteAndRules(routes_[i]);
      keep(deleted);
      if (deleted.ok()) undo_.Drop(UndoOfRoute(routes_[i]));
    } else if (!(routes_[i] == routes[i])) {
      keep(net::ReplaceVipRoute(routes[i]));
    }
  }
  routes_ = routes;
  keep(PutRules(config_));
}

absl::Status ProxyInstance::ForgetRetired() {
  if (const absl::Status status = EndEarlierReload(); !status.ok()) return status;
  const v1::Roster& roster = record_->data().roster();
  const RosterPart over = Over(roster, MonotonicNs(), [this](uint32_t service, uint32_t places) {
    return data_plane_->config().IsKnown(service, places);
  });
  if (over.empty()) {
    if (!AnyRetired(roster)) DetachUnusedUplinks();
    return absl::OkStatus();
  }
  std::vector<RetiredService> services;
  std::vector<RetiredBackend> backends;
  const v1::Roster left = Without(roster, over);
  for (const v1::RosterService& service : over.services) services.push_back(Retired(service, left));
  for (const v1::RosterBackend& backend : over.backends) {
    backends.push_back({backend.id(), backend.address(), static_cast<uint16_t>(backend.port())});
    *const_cast<AnswerHistory::Memory*>(answers_.At<AnswerHistory::Memory>(backend.id())) = {};
  }
  if (const absl::Status status = data_plane_->config().Forget(services, backends); !status.ok()) return status;
  // A daemon that is killed before this is saved forgets them once more.
  *record_->data().mutable_roster() = left;
  RemoveUnwantedRoutes();
  if (!AnyRetired(record_->data().roster())) DetachUnusedUplinks();
  LogInfo("forgot ", services.size(), " services and ", backends.size(),
          " backends of an earlier configuration: nothing in flight knows them");
  return record_->Save();
}

// Routes to the VIPs of retired services stay: strict reverse-path filtering asks for them when an answer
// comes.
void ProxyInstance::RemoveUnwantedRoutes() {
  std::set<std::string> wanted;
  for (const v1::RosterService& service : record_->data().roster().services()) {
    const auto vip = net::IpAddress::Parse(service.vip());
    if (vip.ok()) wanted.insert(vip->ToString());
  }
  std::erase_if(routes_, [&](const net::VipRoute& route) {
    if (wanted.contains(route.vip.ToString())) return false;
    const absl::Status status = DeleteRouteAndRules(route);
    if (!status.ok()) LogError(std::string(status.message()));
    if (status.ok()) undo_.Drop(UndoOfRoute(route));
    return status.ok();
  });
}

}  // namespace hedgerow
