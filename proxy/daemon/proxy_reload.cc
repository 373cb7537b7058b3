// SPDX-License-Identifier: Apache-2.0
//
// A proxy that runs, under another configuration. The record says first to what
// it is about to go; then come new uplinks, since answers will come by them;
// then the kernel's maps (data_plane/kernel_reconfigure.cc); then routes, which
// let traffic in; then the record says that it is there. A daemon that is killed in between leaves a record of
// the configuration before and of what was begun: the next one goes back, which needs nothing that is not there
// any more. What is removed stays known for as long as a request may still be answered by it, and goes later.
// Part of ProxyInstance; what can change at all says config/diff.h.

#include <time.h>

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "proxy/daemon/log.h"
#include "proxy/daemon/proxy_instance.h"
#include "proxy/daemon/proxy_instance_parts.h"

namespace hedgerow {
namespace {

int64_t MonotonicNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

RetiredService Retired(const v1::RosterService& service) {
  return {service.id(), service.vip(), static_cast<uint16_t>(service.port())};
}

std::vector<RetiredService> RetiredOf(const v1::Roster& roster) {
  std::vector<RetiredService> retired;
  for (const v1::RosterService& service : roster.services()) {
    if (service.retired_until_ns() != 0) retired.push_back(Retired(service));
  }
  return retired;
}

// What of a topology the roster has kept: by which interface each backend is reached.
Topology UplinksOf(const v1::Config& config, const v1::Roster& roster) {
  Topology topology;
  for (const v1::Service& service : config.services()) {
    Topology::ServicePath& path = topology.services.emplace_back();
    const v1::RosterService* known = FindService(roster, service.name());
    for (const v1::Backend& backend : service.backends()) {
      const v1::RosterBackend* found = known == nullptr ? nullptr : FindBackend(*known, backend);
      path.uplinks.push_back(found == nullptr ? 0 : found->uplink());
    }
  }
  return topology;
}

std::vector<ServiceChoices> ChoicesOf(const v1::KernelRecord& record) {
  std::vector<ServiceChoices> choices;
  for (const v1::Choices& each : record.choices())
    choices.push_back({each.service(), each.dry_run(), each.drained(), each.pinned()});
  return choices;
}

}  // namespace

absl::StatusOr<v1::Roster> ProxyInstance::RosterFor(const v1::Config& next) {
  if (const absl::Status status = ForgetRetired(); !status.ok()) return status;
  const DataPlaneRoom room = data_plane_->Room();
  return NextRoster(record_->data().roster(), next, {.services = room.services, .backends = room.backends},
                    MonotonicNs());
}

absl::Status ProxyInstance::Reconfigure(const v1::Config& next, const Topology& topology,
                                        const v1::Roster& roster, DaemonFacts& facts) {
  absl::Status status = NoteBegun(next, topology, roster);
  if (!status.ok()) return status;
  const std::vector<net::VipRoute> routes = routes_;
  status = AttachNewUplinks(topology);
  if (status.ok()) {
    status = data_plane_->Reconfigure(MakeSpec(next, topology, links_, roster), RetiredOf(roster));
  }
  if (status.ok()) status = AddRoutes(next, topology);
  if (!status.ok()) {
    TakeBack(routes);
    const absl::Status back = GoBack();
    if (back.ok()) return status;
    return Annotate(status, absl::StrCat("half done, and not undone (", std::string(back.message()), ")"));
  }
  FillRecord(next, topology, roster);
  // The maps are what serves. Without this record the next daemon goes back to the configuration before, and
  // from there to whatever it is given.
  if (const absl::Status saved = record_->Save(); !saved.ok()) LogError(std::string(saved.message()));
  NoteFacts(topology, facts);
  return absl::OkStatus();
}

absl::Status ProxyInstance::NoteBegun(const v1::Config& next, const Topology& topology,
                                      const v1::Roster& roster) {
  const auto choices = data_plane_->Choices();
  if (!choices.ok()) return choices.status();
  v1::KernelRecord& record = record_->data();
  *record.mutable_next_config() = next;
  *record.mutable_next_roster() = roster;
  NoteUplinks(next, topology, *record.mutable_next_roster());
  record.clear_choices();
  for (const ServiceChoices& each : *choices) {
    v1::Choices& out = *record.add_choices();
    out.set_service(each.service);
    out.set_dry_run(each.dry_run);
    out.set_drained(each.drained);
    out.set_pinned(each.pinned);
  }
  absl::Status status = Annotate(record_->Save(), "the instance's record");
  if (!status.ok()) {
    record.clear_next_config();
    record.clear_next_roster();
    record.clear_choices();
  }
  return status;
}

// From what was begun, by us or by a daemon before us, to what the record says to be in force.
absl::Status ProxyInstance::GoBack() {
  v1::KernelRecord& record = record_->data();
  const v1::Config half_config = record.next_config();
  const v1::Roster half_roster = record.next_roster();
  const v1::Roster roster = WithHalfDone(record.roster(), half_roster, MonotonicNs());
  const DataPlaneSpec spec = MakeSpec(config_, topology_, links_, roster);
  absl::Status status = data_plane_->Assume(
      MakeSpec(half_config, UplinksOf(half_config, half_roster), links_, half_roster));
  if (status.ok()) status = data_plane_->Reconfigure(spec, RetiredOf(roster));
  if (status.ok()) status = data_plane_->Choose(ChoicesOf(record));
  if (!status.ok()) {
    data_plane_->Assume(spec).IgnoreError();  // what is asked by the configuration's names is answered by them
    return status;
  }
  FillRecord(config_, topology_, roster);
  return record_->Save();
}

// Of the daemon before us; or of us, when going back failed as well. Until it is over no number may be given or
// forgotten: the maps may know some of which the roster in force knows nothing.
absl::Status ProxyInstance::EndHalfReload() {
  if (!record_->data().has_next_config()) return absl::OkStatus();
  LogWarning("something ended in the midst of a reload, which is undone");
  return Annotate(GoBack(), "undoing a reload that was begun");
}

absl::Status ProxyInstance::AttachNewUplinks(const Topology& topology) {
  for (const ProgramInfo& program : data_plane_->Programs()) {
    if (program.hook != Hook::kUplinkIngress) continue;
    for (const auto& [ifindex, link] : topology.uplinks) {
      if (AttachmentOn(ifindex) != nullptr) continue;
      const absl::Status status = AttachProgram(program, ifindex, net::Direction::kIngress);
      if (!status.ok()) return Annotate(status, absl::StrCat("uplink ", link.name));
    }
  }
  return absl::OkStatus();
}

// Of the reply program.
const net::Attachment* ProxyInstance::AttachmentOn(int ifindex) const {
  for (const auto& attachment : attachments_) {
    if (attachment->spec().ifindex == ifindex && attachment->spec().role == kReplyProgram)
      return attachment.get();
  }
  return nullptr;
}

// Uplinks of an earlier daemon by which only retired backends are reached: their replies still arrive.
absl::Status ProxyInstance::AdoptRetiredUplinks(const ProgramInfo& program) {
  std::set<int> uplinks;
  for (const v1::Roster* roster : {&record_->data().roster(), &record_->data().next_roster()}) {
    for (const v1::RosterService& service : roster->services()) {
      for (const v1::RosterBackend& backend : service.backends()) uplinks.insert(backend.uplink());
    }
  }
  for (const int ifindex : uplinks) {
    if (ifindex == 0 || AttachmentOn(ifindex) != nullptr || !net::FindLink(ifindex).ok()) continue;
    const absl::Status status = AttachProgram(program, ifindex, net::Direction::kIngress);
    if (!status.ok()) return Annotate(status, absl::StrCat("interface number ", ifindex));
  }
  return absl::OkStatus();
}

void ProxyInstance::NoteFacts(const Topology& topology, DaemonFacts& facts) const {
  facts.uplinks.clear();
  for (const auto& [ifindex, link] : topology.uplinks) {
    const net::Attachment* attachment = AttachmentOn(ifindex);
    const bool tcx = attachment != nullptr && attachment->mechanism() == net::Mechanism::kTcx;
    facts.uplinks.push_back({link.name, ifindex, link.up(), tcx ? "tcx" : "clsact"});
  }
}

// Restores the routes of before, and drops the undo steps of those that it deletes, since these have nothing left to do.
// New uplinks stay until no backend is retired, because requests may have gone out by them.
void ProxyInstance::TakeBack(const std::vector<net::VipRoute>& routes) {
  const auto keep = [](const absl::Status& status) {
    if (!status.ok()) LogError("while undoing a failed reload: ", std::string(status.message()));
  };
  for (size_t i = 0; i < routes_.size(); ++i) {
    if (i >= routes.size()) {
      const absl::Status deleted = net::DeleteVipRoute(routes_[i]);
      keep(deleted);
      if (deleted.ok()) undo_.Drop(UndoOfRoute(routes_[i]));
    } else if (!(routes_[i] == routes[i])) {
      keep(net::ReplaceVipRoute(routes[i]));
    }
  }
  routes_ = routes;
}

absl::Status ProxyInstance::ForgetRetired() {
  if (const absl::Status status = EndHalfReload(); !status.ok()) return status;
  const v1::Roster& roster = record_->data().roster();
  const RosterPart over = Over(roster, MonotonicNs(), [this](uint32_t service, uint32_t places) {
    return data_plane_->IsKnown(service, places);
  });
  if (over.empty()) {
    if (!AnyRetired(roster)) DetachUnusedUplinks();
    return absl::OkStatus();
  }
  std::vector<RetiredService> services;
  std::vector<RetiredBackend> backends;
  for (const v1::RosterService& service : over.services) services.push_back(Retired(service));
  for (const v1::RosterBackend& backend : over.backends) {
    backends.push_back({backend.id(), backend.address(), static_cast<uint16_t>(backend.port())});
    *const_cast<AnswerHistory::Memory*>(answers_.At<AnswerHistory::Memory>(backend.id())) = {};
  }
  if (const absl::Status status = data_plane_->Forget(services, backends); !status.ok()) return status;
  // A daemon that is killed before this is saved forgets them once more.
  *record_->data().mutable_roster() = Without(roster, over);
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
    const absl::Status status = net::DeleteVipRoute(route);
    if (!status.ok()) LogError(std::string(status.message()));
    if (status.ok()) undo_.Drop(UndoOfRoute(route));
    return status.ok();
  });
}

void ProxyInstance::DetachUnusedUplinks() {
  std::erase_if(attachments_, [&](const std::shared_ptr<net::Attachment>& attachment) {
    const net::AttachSpec& spec = attachment->spec();
    if (spec.role != kReplyProgram || topology_.uplinks.contains(spec.ifindex)) return false;
    absl::Status status = attachment->Detach();
    // An interface that is gone took its programs with it; else this would be tried, and told, every second.
    if (!net::FindLink(spec.ifindex).ok()) status = absl::OkStatus();
    if (!status.ok()) LogError(std::string(status.message()));
    if (status.ok()) undo_.Drop(UndoOfAttachment(*attachment));
    return status.ok();
  });
}

}  // namespace hedgerow
