// SPDX-License-Identifier: Apache-2.0
//
// Making and removing a proxy's parts; see the header, and proxy_adopt.cc for taking them over. The order
// matters twice: replies are attached before requests, and the VIP routes, which let traffic in, come last.

#include "proxy/instance/proxy_instance.h"

#include <errno.h>
#include <fcntl.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "net/netlink/netlink.h"
#include "operate/version.h"
#include "operate/log.h"
#include "proxy/instance/proxy_instance_parts.h"
#include "operate/event_loop.h"
#include "net/bpffs.h"

namespace hedgerow {
namespace {

// A parked packet of 1,500 bytes passes the clock's links with room to spare.
constexpr uint32_t kClockMtuBytes = 1600;

constexpr int kReservedDescriptors = 8;

}  // namespace

absl::StatusOr<std::unique_ptr<ProxyInstance>> ProxyInstance::Start(const v1::Config& config, const Topology& topology,
                                                                    DaemonFacts& facts) {
  std::unique_ptr<ProxyInstance> instance(new ProxyInstance(config, topology));
  absl::Status status = instance->ReserveDescriptors();
  if (status.ok()) status = instance->MakePins();
  if (status.ok()) status = instance->MakeLinks();
  if (status.ok()) status = instance->MakeClock(facts);
  if (status.ok()) status = instance->Load();
  if (status.ok()) status = instance->Pin();
  if (status.ok()) status = instance->Attach(facts);
  // Before the first packet: whatever has traffic can be taken over.
  if (status.ok()) status = instance->SaveRecord(facts);
  if (status.ok()) status = instance->AddRoutes(config, topology);
  if (status.ok()) status = instance->KeepInPlace();
  if (!status.ok()) {
    for (const std::string& problem : instance->TakeDown()) LogError("while undoing a failed start: ", problem);
    return status;
  }
  return instance;
}

ProxyInstance::~ProxyInstance() {
  for (const std::string& problem : TakeDown()) LogError("while taking down: ", problem);
}

std::vector<std::string> ProxyInstance::TakeDown() {
  reserve_.clear();
  return undo_.Unwind();
}

void ProxyInstance::Leave() {
  for (const auto& attachment : attachments_) {
    // Each is pinned or a filter.
    if (const absl::Status status = attachment->Release(); !status.ok()) LogError(std::string(status.message()));
  }
  undo_.Forget();
}

void ProxyInstance::Beat() {
  const auto timeout_ns = static_cast<uint64_t>(config_.unattended_timeout_ns());
  // An older version's configuration says nothing about it.
  data_plane_->policy().HedgeUntil(timeout_ns == 0 ? 0 : static_cast<uint64_t>(MonotonicNs()) + timeout_ns);
}

AnswerHistory::Memory& ProxyInstance::AnswersOf(size_t service, size_t backend) const {
  const uint32_t id = data_plane_->spec().services.at(service).backends.at(backend).id;
  return *const_cast<AnswerHistory::Memory*>(answers_.At<AnswerHistory::Memory>(id));
}

void ProxyInstance::NoteAnswers(const Snapshot& snapshot) {
  for (size_t i = 0; i < snapshot.services.size(); ++i) {
    const auto& backends = snapshot.services[i].backends;
    for (size_t j = 0; j < backends.size(); ++j) {
      AnswerHistory::Note(AnswersOf(i, j), snapshot.taken_ns, backends[j]);
    }
  }
}

std::vector<Snapshot> ProxyInstance::PastAnswers() const {
  std::map<uint64_t, Snapshot> by_time;
  for (size_t i = 0; i < static_cast<size_t>(config_.services_size()); ++i) {
    const v1::Service& service = config_.services(static_cast<int>(i));
    for (size_t j = 0; j < static_cast<size_t>(service.backends_size()); ++j) {
      for (const AnswerHistory::Moment& moment : AnswerHistory::Past(AnswersOf(i, j))) {
        Snapshot& snapshot = by_time[moment.at_ns];
        snapshot.taken_ns = moment.at_ns;
        snapshot.services.resize(static_cast<size_t>(config_.services_size()));
        snapshot.services[i].name = service.name();
        snapshot.services[i].backends.resize(static_cast<size_t>(service.backends_size()));
        snapshot.services[i].backends[j].unanswered = moment.unanswered;
        snapshot.services[i].backends[j].answer_times = moment.answer_times;
        snapshot.services[i].backends[j].ordinary_times = moment.ordinary_times;
      }
    }
  }
  std::vector<Snapshot> past;
  for (auto& [at_ns, snapshot] : by_time) past.push_back(std::move(snapshot));
  return past;
}

// Undoing takes descriptors too. A start that failed for want of them could otherwise not be undone.
absl::Status ProxyInstance::ReserveDescriptors() {
  for (int i = 0; i < kReservedDescriptors; ++i) {
    reserve_.emplace_back(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!reserve_.back().valid()) return absl::ErrnoToStatus(errno, "reserving descriptors");
  }
  return absl::OkStatus();
}

absl::Status ProxyInstance::MakePins() {
  const auto mounted = net::EnsureBpffs(net::kDefaultBpffs);
  if (!mounted.ok()) return Annotate(mounted.status(), "the BPF file system");
  if (*mounted) LogInfo("mounted a BPF file system on ", net::kDefaultBpffs);
  undo_.Push("unmounting the BPF file system", [] { return net::ReleaseBpffs(net::kDefaultBpffs).status(); });
  PushUndoOfInPlace();
  const auto folder = net::MakePinDir(net::kDefaultBpffs, config_.instance());
  if (!folder.ok()) return Annotate(folder.status(), "the folder for pins");
  pin_folder_ = *folder;
  PushUndoOfPins();
  auto record = InstanceRecord::Create(pin_folder_);
  if (!record.ok()) return Annotate(record.status(), "the instance's record");
  record_.emplace(*std::move(record));
  auto answers = PinnedArray::Create(AnswersPath(pin_folder_), AnswersSpec(RoomOf(config_).backends));
  if (!answers.ok()) return Annotate(answers.status(), "the history of answer times");
  answers_ = *std::move(answers);
  return absl::OkStatus();
}

void ProxyInstance::PushUndoOfPins() {
  undo_.Push("removing pins", [this]() -> absl::Status {
    if (!left_links_.empty()) return absl::FailedPreconditionError("the next start needs them for what is left");
    return net::RemovePinDir(net::kDefaultBpffs, config_.instance());
  });
}

void ProxyInstance::PushUndoOfLink(const std::string& name) {
  undo_.Push(absl::StrCat("removing the interface ", name), [this, name] {
    const absl::Status status = net::DeleteOwnedLink(name, config_.instance());
    status.ok() ? void(left_links_.erase(name)) : void(left_links_.insert(name));
    return status;
  });
}

// The route and the address would go with the interface. They are removed first, so that the kernel routes no packet to
// an interface that is being removed.
void ProxyInstance::PushUndoOfRoute(const net::VipRoute& route) {
  undo_.Push(UndoOfRoute(route), [route] { return DeleteRouteAndRules(route); });
}

// A rule goes with the route that it leads to. It may have another priority by now, and there may be none.
absl::Status ProxyInstance::DeleteRouteAndRules(const net::VipRoute& route) {
  for (const net::VipRule& rule : net::ListVipRules().value_or(std::vector<net::VipRule>()))
    if (rule.vip == route.vip) net::DeleteVipRule(rule).IgnoreError();
  return net::DeleteVipRoute(route);
}

std::string ProxyInstance::UndoOfRoute(const net::VipRoute& route) {
  return absl::StrCat("removing the route to ", route.vip.ToString());
}

std::string ProxyInstance::UndoOfAttachment(const net::Attachment& attachment) {
  return absl::StrCat("detaching ", attachment.ToString());
}

absl::Status ProxyInstance::MakeLinks() {
  const std::string& name = config_.interface();
  absl::Status status = MakePair(name, absl::StrCat(name, "p"), topology_.mtu_bytes, links_.proxy);
  if (status.ok()) status = MakeClockPair();
  return status;
}

absl::Status ProxyInstance::MakePair(const std::string& end, const std::string& peer, uint32_t mtu_bytes,
                                     net::VethPair& out) {
  net::VethOptions options;
  options.name = end;
  options.peer_name = peer;
  options.instance = config_.instance();
  if (mtu_bytes != 0) options.mtu_bytes = mtu_bytes;
  const auto pair = net::CreateVethPair(options);
  if (!pair.ok()) return Annotate(pair.status(), absl::StrCat("making the interface ", end));
  out = *pair;
  PushUndoOfLink(end);
  return absl::OkStatus();
}

absl::Status ProxyInstance::MakeClockPair() {
  const std::string& name = config_.interface();
  absl::Status status = MakePair(absl::StrCat(name, "c0"), absl::StrCat(name, "c1"),
                                 std::max(kClockMtuBytes, topology_.mtu_bytes), links_.clock);
  if (!status.ok()) return status;
  // A carrier that crossed a link without checksum offload leaves it with CHECKSUM_NONE, and so does its clone:
  // the rescuer's own, complete checksum then stands.
  for (const net::LinkInfo* end : {&links_.clock.link, &links_.clock.peer}) {
    status = net::SetTxChecksumOffload(end->name, false);
    if (!status.ok()) return Annotate(status, absl::StrCat("checksum offload of ", end->name));
  }
  return absl::OkStatus();
}

absl::Status ProxyInstance::Load() {
  auto roster = NextRoster({}, config_, RoomOf(config_), 0);
  if (!roster.ok()) return roster.status();
  *record_->data().mutable_roster() = *roster;
  auto loaded = KernelDataPlane::Load(Spec());
  if (!loaded.ok()) return Annotate(loaded.status(), "loading the kernel programs");
  data_plane_ = *std::move(loaded);
  Beat();
  return absl::OkStatus();
}

absl::Status ProxyInstance::Pin() {
  v1::KernelRecord& record = record_->data();
  record.set_program_sets(record.program_sets() + 1);
  record.set_program_folder(absl::StrCat("programs-", record.program_sets()));
  const std::string folder = absl::StrCat(pin_folder_, "/", record.program_folder());
  std::error_code error;
  std::filesystem::remove_all(folder, error);  // of a takeover that was cut short
  absl::Status status = data_plane_->object().PinMaps(pin_folder_);
  if (status.ok()) status = data_plane_->object().PinPrograms(folder);
  return Annotate(status, "pinning the kernel part");
}

absl::StatusOr<int> ProxyInstance::RestorePins() {
  const auto folder = net::MakePinDir(net::kDefaultBpffs, config_.instance());
  if (!folder.ok()) return folder.status();
  auto restored =
      data_plane_->object().RestorePins(pin_folder_, absl::StrCat(pin_folder_, "/", record_->data().program_folder()));
  if (!restored.ok()) return restored.status();
  std::vector<absl::StatusOr<bool>> others = {record_->RestorePin(pin_folder_),
                                              answers_.RestorePin(AnswersPath(pin_folder_))};
  for (const auto& attachment : attachments_) others.push_back(attachment->RestorePin());
  for (const absl::StatusOr<bool>& each : others) {
    if (!each.ok()) return each.status();
    *restored += *each ? 1 : 0;
  }
  return restored;
}

absl::Status ProxyInstance::SaveRecord(const DaemonFacts& facts) {
  v1::KernelRecord& record = record_->data();
  if (absl::Status status = data_plane_->object().Describe(record); !status.ok()) return status;
  record.set_complete(true);
  record.set_version(operate::kVersion);
  record.set_network_namespace(NetworkNamespace());
  record.set_backend_room(answers_.entries());
  const bool reloading = record.reloading();
  FillRecord(config_, topology_, v1::Roster(record.roster()));
  record.set_reloading(reloading);  // until EndEarlierReload()
  const auto note = [](const net::VethPair& pair, v1::LinkRecord& out) {
    out.set_name(pair.link.name);
    out.set_ifindex(pair.link.ifindex);
    out.set_peer(pair.peer.name);
    out.set_peer_ifindex(pair.peer.ifindex);
    out.set_mac(std::string(pair.link.mac.begin(), pair.link.mac.end()));
    out.set_peer_mac(std::string(pair.peer.mac.begin(), pair.peer.mac.end()));
  };
  note(links_.proxy, *record.mutable_proxy_link());
  note(links_.clock, *record.mutable_clock_link());
  record.set_clock_kind(std::string(net::ToString(clock_.kind)));
  record.set_clock_error_ns(facts.clock_measured_error_ns);
  if (record.made_ns() == 0) record.set_made_ns(facts.started_ns);
  return Annotate(record_->Save(), "the instance's record");
}

void ProxyInstance::FillRecord(const v1::Config& config, const Topology& topology, const v1::Roster& roster) {
  v1::KernelRecord& record = record_->data();
  *record.mutable_config() = config;
  *record.mutable_roster() = roster;
  NoteUplinks(config, topology, *record.mutable_roster());
  record.set_reloading(false);
  record.clear_service_sources();
  for (const Topology::ServicePath& path : topology.services)
    record.add_service_sources(path.source.has_value() ? path.source->ToString() : "");
  // The former uplinks say what has moved (AdoptDataPlane), to the next daemon too where this one ends before
  // MoveBackends().
  if (adopting_) return;
  record.clear_backend_uplinks();
  for (const Topology::ServicePath& path : topology.services)
    for (const BackendPath& backend : path.backends) record.add_backend_uplinks(backend.uplink);
}

absl::Status ProxyInstance::AddRoutes(const v1::Config& config, const Topology& topology) {
  for (const WantedRoute& wanted : WantedRoutes(config, topology)) {
    const absl::Status status = PutRoute(wanted, config.rule_priority());
    if (status.ok()) continue;
    // Without a source, or without IPv6, the follower tries again.
    const bool ipv6_off = std::any_of(topology.problems.begin(), topology.problems.end(),
                                      [](const Problem& each) { return each.code == ProblemCode::kIpv6Disabled; });
    if (wanted.route.source.has_value() && (wanted.route.vip.is_v4() || !ipv6_off)) return status;
    LogError(status.message());
  }
  return PutRules(config);
}

// Of several services on one VIP the first one's source counts.
std::vector<ProxyInstance::WantedRoute> ProxyInstance::WantedRoutes(const v1::Config& config,
                                                                    const Topology& topology) const {
  std::vector<WantedRoute> all;
  for (int i = 0; i < config.services_size(); ++i) {
    const auto vip = net::IpAddress::Parse(config.services(i).vip());
    const bool again =
        vip.ok() && std::any_of(all.begin(), all.end(), [&](const auto& each) { return each.route.vip == *vip; });
    if (!vip.ok() || again) continue;
    all.push_back({config.services(i).name(),
                   {*vip, links_.proxy.link.ifindex, topology.services.at(static_cast<size_t>(i)).source,
                    topology.RouteMtu(*vip, topology.mtu_bytes)}});
  }
  return all;
}

// The route to a service's VIP. One that stands with another source or MTU is replaced without a gap.
absl::Status ProxyInstance::PutRoute(const WantedRoute& wanted, uint32_t rule_priority) {
  const net::VipRoute& route = wanted.route;
  const auto known =
      std::find_if(routes_.begin(), routes_.end(), [&](const auto& each) { return each.vip == route.vip; });
  if (known != routes_.end() && *known == route) return absl::OkStatus();  // several ports of one VIP, or a reload
  absl::Status status = route.source ? net::AddSourceAddress(route.ifindex, *route.source) : absl::OkStatus();
  if (!status.ok()) return Annotate(status, "the source address of the proxy interface");
  // The rule comes first: without it the route may take no effect, which AddVipRoute refuses.
  const net::VipRule rule = {route.vip, rule_priority};
  const auto rules =
      rule_priority == 0 ? std::vector<net::VipRule>{} : net::ListVipRules().value_or(std::vector<net::VipRule>{rule});
  const bool stood = std::find(rules.begin(), rules.end(), rule) != rules.end();
  if (status.ok() && rule_priority != 0) status = net::AddVipRule(rule);
  if (status.ok()) status = known == routes_.end() ? net::AddVipRoute(route) : net::ReplaceVipRoute(route);
  // PutRules() takes over the rule of a route that stands.
  if (!status.ok() && rule_priority != 0 && !stood)
    status = net::netlink::Undone(std::move(status), [&] { return net::DeleteVipRule(rule); });
  if (!status.ok())
    return Annotate(status, absl::StrCat("service ", wanted.service, ": route to ", route.vip.ToString()));
  if (known != routes_.end()) {
    *known = route;
  } else {
    routes_.push_back(route);
    PushUndoOfRoute(route);
  }
  return absl::OkStatus();
}

}  // namespace hedgerow
