// SPDX-License-Identifier: Apache-2.0
//
// Taking over what an earlier daemon of this instance left at work: pins,
// links, clock, programs, routes. Maps stay as they are, with every request in
// flight; programs of another build are put in the old ones' place one hook at
// a time, replies before requests, each without a gap. Until CommitAdoption
// writes the record everything can be taken back, and is when a step fails.
// Part of ProxyInstance; the decisions are docs/adr/0011.

#include <bpf/bpf.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "operate/log.h"
#include "proxy/instance/proxy_instance.h"
#include "proxy/instance/proxy_instance_parts.h"
#include "operate/event_loop.h"
#include "net/bpffs.h"

namespace hedgerow {
namespace {

constexpr char kProgramFolders[] = "programs-";
constexpr char kLinkPins[] = "tc-";  // net::PinPath

// The recorded pair as it is now. NotFound where it was removed or replaced since it was made.
absl::StatusOr<net::VethPair> FindPair(const v1::LinkRecord& record, const std::string& instance) {
  const auto find = [&](const std::string& name, int ifindex, const std::string& mac) -> absl::StatusOr<net::LinkInfo> {
    auto link = net::FindLink(ifindex);
    if (link.ok() && link->name == name && net::BelongsTo(*link, instance)) {
      if (mac.size() == link->mac.size()) std::copy(mac.begin(), mac.end(), link->mac.begin());
      return link;
    }
    return absl::NotFoundError(absl::StrCat("its interface ", name, " is gone"));
  };
  auto link = find(record.name(), record.ifindex(), record.mac());
  if (!link.ok()) return link.status();
  auto peer = find(record.peer(), record.peer_ifindex(), record.peer_mac());
  if (!peer.ok()) return peer.status();
  return net::VethPair{*std::move(link), *std::move(peer)};
}

// Nothing can be routed to a link that is down, and the programs address frames to hr0's hardware address.
absl::Status SetUp(const net::VethPair& pair, DaemonFacts& facts) {
  for (const net::LinkInfo* end : {&pair.link, &pair.peer}) {
    const auto changed = net::KeepAsMade(*end);
    if (!changed.ok()) return Annotate(changed.status(), absl::StrCat("the interface ", end->name));
    if (!*changed) continue;
    LogWarning("the interface ", end->name, " was changed by another program; restored");
    ++facts.links_restored;
  }
  return absl::OkStatus();
}

// Traffic is led into a proxy interface of this instance.
absl::StatusOr<bool> HasRoutes(const std::string& instance) {
  const auto links = net::ListLinks();
  if (!links.ok()) return links.status();
  for (const net::LinkInfo& link : *links) {
    if (!net::BelongsTo(link, instance)) continue;
    const auto routes = net::ListVipRoutes(link.ifindex);
    if (!routes.ok()) return routes.status();
    if (!routes->empty()) return true;
  }
  return false;
}

// The verifier takes the better part of a second of a processor, and the traffic that is being taken over wants
// it as well: on a thread of its own, which weighs a tenth of others (of this session, where the kernel groups
// sessions). Lowering one's own weight is for good without CAP_SYS_NICE.
constexpr int kLightNice = 10;

void OnALightThread(const std::function<void()>& body) {
  std::thread thread([&body] {
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kLightNice);
    body();
  });
  thread.join();
}

}  // namespace

absl::StatusOr<Standing> Inspect(const std::string& instance) {
  Standing standing;
  const std::string folder = net::PinDir(net::kDefaultBpffs, instance);
  auto record = InstanceRecord::Open(folder);
  if (!record.ok()) {
    const auto serves = HasRoutes(instance);
    if (!serves.ok()) return serves.status();
    if (*serves) {
      return absl::FailedPreconditionError(absl::StrCat("the kernel part that runs cannot be taken over: its record: ",
                                                        std::string(record.status().message())));
    }
    std::error_code error;
    standing.half_made = std::filesystem::exists(folder, error);
    return standing;
  }
  if (record->data().complete()) {
    standing.record.emplace(*std::move(record));
  } else {
    standing.half_made = true;
  }
  return standing;
}

absl::StatusOr<std::unique_ptr<ProxyInstance>> ProxyInstance::Adopt(const v1::Config& config, const Topology& topology,
                                                                    InstanceRecord record, Takeover takeover,
                                                                    DaemonFacts& facts) {
  std::unique_ptr<ProxyInstance> instance(new ProxyInstance(config, topology));
  instance->adopting_ = true;
  absl::Status status = instance->ReserveDescriptors();
  if (status.ok()) status = instance->AdoptPins(std::move(record));
  if (status.ok()) status = instance->AdoptLinks(facts);
  if (status.ok()) status = instance->AdoptClock(facts);
  if (status.ok()) status = instance->AdoptDataPlane();
  if (status.ok()) status = instance->Attach(facts);
  if (status.ok()) status = instance->AdoptRoutes();
  if (status.ok()) status = instance->KnowUplinkRoutes();
  if (status.ok()) status = instance->CommitAdoption(takeover, facts);
  if (!status.ok()) {
    instance->RollBack();
    return status;
  }
  // The instance is adopted and works, so an error from here on is logged and does not undo the adoption.
  // An uplink may have changed while no daemon followed. The programs stand on the new one already. The end of an
  // earlier reload would move the backends as well, without handing over what was sent before.
  status = instance->data_plane_->config().MoveBackends(instance->Spec(), MonotonicNs());
  instance->adopting_ = false;
  // Only then does the record say so: a daemon that comes before moves them again, and some requests are handed over
  // twice.
  if (status.ok()) {
    if (status = instance->SaveRecord(facts); !status.ok()) LogError(std::string(status.message()));
    status = instance->EndEarlierReload();
  }
  if (!status.ok()) LogError(std::string(status.message()));
  instance->FollowInPlace(config, topology);
  return instance;
}

absl::Status ProxyInstance::AdoptPins(InstanceRecord record) {
  record_.emplace(std::move(record));
  if (record_->data().reloading())
    if (absl::Status status = TakeBackRoster(); !status.ok()) return status;
  undo_.Push("unmounting the BPF file system", [] { return net::ReleaseBpffs(net::kDefaultBpffs).status(); });
  PushUndoOfInPlace();
  pin_folder_ = net::PinDir(net::kDefaultBpffs, config_.instance());
  PushUndoOfPins();
  const PinnedArraySpec spec = AnswersSpec(record_->data().backend_room());
  auto answers = PinnedArray::Open(AnswersPath(pin_folder_), spec);
  if (!answers.ok()) {
    // Half a minute of answer times is forgotten with it, and nothing else.
    LogWarning("the history of answer times begins anew: ", std::string(answers.status().message()));
    unlink(AnswersPath(pin_folder_).c_str());
    answers = PinnedArray::Create(AnswersPath(pin_folder_), spec);
  }
  if (!answers.ok()) return Annotate(answers.status(), "the history of answer times");
  answers_ = *std::move(answers);
  return absl::OkStatus();
}

// A pair that is gone is made again, because it took along only what was attached to it. The programs are loaded anew,
// because they know its interface number.
absl::Status ProxyInstance::AdoptLinks(DaemonFacts& facts) {
  const v1::KernelRecord& record = record_->data();
  const auto take = [&](const v1::LinkRecord& recorded, net::VethPair& out,
                        const std::function<absl::Status()>& make) -> absl::Status {
    auto pair = FindPair(recorded, config_.instance());
    if (pair.ok()) {
      out = *std::move(pair);
      PushUndoOfLink(recorded.name());
      return SetUp(out, facts);
    }
    if (!absl::IsNotFound(pair.status())) return pair.status();
    LogWarning("the interface ", recorded.name(), " was removed by another program; made again");
    // Removes half a pair, or what an earlier try left. An interface of that name with another owner is left alone.
    const absl::Status removed = net::DeleteOwnedLink(recorded.name(), config_.instance());
    if (!removed.ok()) return removed;
    links_anew_.push_back(recorded.name());
    ++facts.links_restored;
    return make();
  };
  const std::string& name = config_.interface();
  absl::Status status = take(record.proxy_link(), links_.proxy, [&] {
    return MakePair(name, absl::StrCat(name, "p"), topology_.mtu_bytes, links_.proxy);
  });
  if (status.ok()) status = take(record.clock_link(), links_.clock, [this] { return MakeClockPair(); });
  return status;
}

// The clock's packet goes round without a daemon. Only a queueing discipline that was removed is made anew, and the
// watchdog then sends another packet.
absl::Status ProxyInstance::AdoptClock(DaemonFacts& facts) {
  const v1::KernelRecord& record = record_->data();
  const DataPlaneSpec defaults;
  clock_.period_ns.assign(defaults.clock_period_ns.begin(), defaults.clock_period_ns.end());
  const bool fq = record.clock_kind() == net::ToString(net::ClockKind::kFq);
  clock_.kind = fq ? net::ClockKind::kFq : net::ClockKind::kHtb;
  facts.clock_kind = record.clock_kind();
  facts.clock_measured_error_ns = record.clock_error_ns();
  const int ifindex = links_.clock.link.ifindex;
  const auto there = net::HasClockQdisc(ifindex, clock_.kind);
  if (!there.ok()) return Annotate(there.status(), "the clock's queueing discipline");
  if (!*there) {
    LogWarning("the clock's queueing discipline was taken away; restored");
    const absl::Status status = net::InstallClockQdisc(ifindex, clock_);
    if (!status.ok()) return Annotate(status, "the clock's queueing discipline");
  }
  undo_.Push("removing the clock's queueing discipline", [ifindex] { return net::RemoveClockQdisc(ifindex); });
  return absl::OkStatus();
}

absl::Status ProxyInstance::AdoptDataPlane() {
  const v1::KernelRecord& record = record_->data();
  const std::string folder = absl::StrCat(pin_folder_, "/", record.program_folder());
  absl::StatusOr<std::unique_ptr<KernelDataPlane>> plane;
  // As the maps have it: what has moved since is seen by MoveBackends().
  DataPlaneSpec former = Spec();
  int next = 0;
  for (ServiceSpec& service : former.services) {
    for (BackendSpec& backend : service.backends)
      if (next < record.backend_uplinks_size())
        backend.uplink_ifindex = static_cast<uint32_t>(record.backend_uplinks(next++));
  }
  OnALightThread([&] { plane = KernelDataPlane::Adopt(former, pin_folder_, folder, record); });
  if (!plane.ok()) return plane.status();
  data_plane_ = *std::move(plane);
  if (!data_plane_->object().has_new_programs()) return absl::OkStatus();
  for (const ProgramInfo& program : data_plane_->object().Programs()) {
    old_programs_[program.name].Reset(bpf_obj_get(absl::StrCat(folder, "/", program.name).c_str()));
  }
  return Pin();
}

absl::Status ProxyInstance::AdoptRoutes() {
  const int ifindex = links_.proxy.link.ifindex;
  const auto present = net::ListVipRoutes(ifindex);
  if (!present.ok()) return Annotate(present.status(), "listing our routes");
  for (const WantedRoute& wanted : WantedRoutes(config_, topology_)) {
    for (const net::VipRoute& route : *present) {
      if (route.vip != wanted.route.vip || route == wanted.route) continue;
      // The uplink has got another address or MTU since, or a reload was cut short: AddRoutes replaces it, without a
      // gap.
      routes_.push_back(route);
      PushUndoOfRoute(route);
      break;
    }
  }
  AdoptRetiredRoutes(*present);
  return AddRoutes(config_, topology_);
}

// To VIPs of services that a reload has removed, or had begun to add: they go with those.
void ProxyInstance::AdoptRetiredRoutes(const std::vector<net::VipRoute>& present) {
  std::set<std::string> known;
  for (const v1::RosterService& service : record_->data().roster().services()) known.insert(service.vip());
  for (const v1::Service& service : config_.services()) {
    const auto vip = net::IpAddress::Parse(service.vip());
    if (vip.ok()) known.erase(vip->ToString());
  }
  for (const net::VipRoute& route : present) {
    if (!known.contains(route.vip.ToString())) continue;
    routes_.push_back(route);
    PushUndoOfRoute(route);
  }
}

absl::Status ProxyInstance::CommitAdoption(Takeover takeover, DaemonFacts& facts) {
  const auto snapshot = data_plane_->reader().Read(/*histograms=*/false);
  if (!snapshot.ok()) return snapshot.status();
  if (takeover == Takeover::kSuccession) NoteSuccession(*snapshot, facts);
  const auto anew = static_cast<uint64_t>(std::count(attached_anew_.begin(), attached_anew_.end(), true));
  facts.adoption.set_attachments_restored(facts.adoption.attachments_restored() + anew);
  if (const absl::Status status = SaveRecord(facts); !status.ok()) return status;
  // From here on it is ours.
  Beat();
  RemoveUnusedPins();
  RemoveStrayFilters();
  old_programs_.clear();
  return absl::OkStatus();
}

void ProxyInstance::NoteSuccession(const Snapshot& snapshot, DaemonFacts& facts) {
  v1::KernelRecord& record = record_->data();
  // The last sign of life said until when to hedge.
  const auto unattended_timeout_ns = static_cast<uint64_t>(record.config().unattended_timeout_ns());
  const uint64_t until_ns = snapshot.hedge_until_ns;
  const uint64_t last_ns = until_ns > unattended_timeout_ns ? until_ns - unattended_timeout_ns : until_ns;
  v1::Adoption& adoption = facts.adoption;
  const auto unattended_ns = static_cast<int64_t>(snapshot.taken_ns - last_ns);
  adoption.set_unattended_ns(std::max<int64_t>(unattended_ns, 0));
  if (until_ns != 0 && snapshot.taken_ns > until_ns) {
    adoption.set_hedging_stopped_ns(static_cast<int64_t>(snapshot.taken_ns - until_ns));
    record.set_unattended_stops(record.unattended_stops() + 1);
  }
  record.set_adoptions(record.adoptions() + 1);
  adoption.set_how(data_plane_->object().has_new_programs() ? "upgraded" : "adopted");
  adoption.set_adoptions(record.adoptions());
  adoption.set_unattended_stops(record.unattended_stops());
  facts.kernel_since_ns = record.made_ns();
}

// Of programs that are attached nowhere any more, and of links whose interface is gone.
void ProxyInstance::RemoveUnusedPins() {
  std::set<std::string> links;
  for (const auto& attachment : attachments_) links.insert(net::PinPath(attachment->spec()));
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(pin_folder_, error)) {
    const std::string name = entry.path().filename().string();
    const bool unused_link = absl::StartsWith(name, kLinkPins) && !links.contains(entry.path().string());
    const bool unused_programs = absl::StartsWith(name, kProgramFolders) && name != record_->data().program_folder();
    if (unused_link || unused_programs) std::filesystem::remove_all(entry.path(), error);
  }
}

// Undoes the takeover, as if it had not begun. What was missing before it is missing again, and the next daemon
// restores it.
void ProxyInstance::RollBack() {
  for (size_t i = 0; i < attachments_.size(); ++i) {
    net::Attachment& attachment = *attachments_[i];
    absl::Status status;
    const auto old = old_programs_.find(attachment.spec().role);
    if (i < attached_anew_.size() && attached_anew_[i]) {
      status = attachment.Detach();
    } else {
      if (old != old_programs_.end() && old->second.valid()) status = attachment.Replace(old->second.get());
      attachment.Release().IgnoreError();
    }
    if (!status.ok()) LogError("while undoing a failed takeover: ", std::string(status.message()));
  }
  undo_.Forget();
  for (const std::string& link : links_anew_) {
    if (const absl::Status status = net::DeleteOwnedLink(link, config_.instance()); !status.ok())
      LogError("while undoing a failed takeover: ", std::string(status.message()));
  }
  if (!old_programs_.empty()) {
    std::error_code error;
    std::filesystem::remove_all(absl::StrCat(pin_folder_, "/", record_->data().program_folder()), error);
  }
}

}  // namespace hedgerow
