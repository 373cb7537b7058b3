// SPDX-License-Identifier: Apache-2.0
//
// Making and removing a proxy's parts; see the header. The order matters
// twice: replies are attached before requests, and the VIP routes, which let
// traffic in, come last.

#include "proxy/daemon/proxy_instance.h"

#include <errno.h>
#include <fcntl.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "config/scalar.h"
#include "proxy/daemon/delay_measurement.h"
#include "proxy/daemon/log.h"
#include "proxy/data_plane/kernel_data_plane.h"
#include "net/bpffs.h"

namespace hedgerow {
namespace {

// A parked packet of 1,500 bytes passes the clock's links with room to spare.
constexpr uint32_t kClockMtuBytes = 1600;

constexpr int kDelayMeasurements = 3;
constexpr int kReservedDescriptors = 8;

absl::Status Annotate(const absl::Status& status, absl::string_view what) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(what, ": ", std::string(status.message())));
}

net::Mechanism MechanismOf(v1::Attach attach) {
  switch (attach) {
    case v1::ATTACH_TCX:
      return net::Mechanism::kTcx;
    case v1::ATTACH_CLSACT:
      return net::Mechanism::kClsact;
    default:
      return net::Mechanism::kAuto;
  }
}

// What to try, best first: fq is exact, netem and htb have fixed periods, and htb is on every kernel.
std::vector<net::ClockKind> ClockKindsOf(v1::ClockKind wanted) {
  switch (wanted) {
    case v1::CLOCK_KIND_HTB:
      return {net::ClockKind::kHtb};
    case v1::CLOCK_KIND_NETEM:
      return {net::ClockKind::kNetem};
    case v1::CLOCK_KIND_FQ:
      return {net::ClockKind::kFq};
    default:
      return {net::ClockKind::kFq, net::ClockKind::kNetem, net::ClockKind::kHtb};
  }
}

// Best first: netem is the published technique, htb is on every kernel.
std::vector<net::DelayLineKind> LineKindsOf(v1::DelayLine wanted) {
  switch (wanted) {
    case v1::DELAY_LINE_NETEM:
      return {net::DelayLineKind::kNetem};
    case v1::DELAY_LINE_FQ:
      return {net::DelayLineKind::kFq};
    case v1::DELAY_LINE_HTB:
      return {net::DelayLineKind::kHtb};
    default:
      return {net::DelayLineKind::kNetem, net::DelayLineKind::kFq, net::DelayLineKind::kHtb};
  }
}

hr_engine AbiOf(net::DelayLineKind kind) {
  switch (kind) {
    case net::DelayLineKind::kNetem:
      return HR_ENGINE_NETEM;
    case net::DelayLineKind::kFq:
      return HR_ENGINE_FQ;
    case net::DelayLineKind::kHtb:
      break;
  }
  return HR_ENGINE_HTB;
}

hr_clock_kind AbiOf(net::ClockKind kind) {
  switch (kind) {
    case net::ClockKind::kNetem:
      return HR_CLOCK_NETEM;
    case net::ClockKind::kFq:
      return HR_CLOCK_FQ;
    case net::ClockKind::kHtb:
      break;
  }
  return HR_CLOCK_HTB;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProxyInstance>> ProxyInstance::Start(const v1::Config& config,
                                                                    const Topology& topology,
                                                                    DaemonFacts& facts) {
  std::unique_ptr<ProxyInstance> instance(new ProxyInstance(config, topology));
  absl::Status status = instance->ReserveDescriptors();
  if (status.ok()) status = instance->MakePins();
  if (status.ok()) status = instance->MakeLinks();
  if (status.ok()) status = instance->MakeClock(facts);
  if (status.ok()) status = instance->MakeDelayLine(facts);
  if (status.ok()) status = instance->Load();
  if (status.ok()) status = instance->Attach(facts);
  if (status.ok()) status = instance->AddRoutes();
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
  const auto folder = net::MakePinDir(net::kDefaultBpffs, config_.instance());
  if (!folder.ok()) return Annotate(folder.status(), "the folder for pins");
  pin_folder_ = *folder;
  undo_.Push("removing pins", [this] { return net::RemovePinDir(net::kDefaultBpffs, config_.instance()); });
  return absl::OkStatus();
}

absl::Status ProxyInstance::MakeLinks() {
  const std::string& name = config_.interface();
  const auto make = [this](const std::string& end, const std::string& peer, uint32_t mtu_bytes,
                           net::VethPair& out) -> absl::Status {
    net::VethOptions options;
    options.name = end;
    options.peer_name = peer;
    options.instance = config_.instance();
    options.mtu_bytes = mtu_bytes;
    const auto pair = net::CreateVethPair(options);
    if (!pair.ok()) return Annotate(pair.status(), absl::StrCat("making the interface ", end));
    out = *pair;
    undo_.Push(absl::StrCat("removing the interface ", end),
               [this, end] { return net::DeleteOwnedLink(end, config_.instance()); });
    return absl::OkStatus();
  };
  absl::Status status = make(name, absl::StrCat(name, "p"), topology_.mtu_bytes, links_.proxy);
  if (!status.ok()) return status;
  status = make(absl::StrCat(name, "c0"), absl::StrCat(name, "c1"),
                std::max(kClockMtuBytes, topology_.mtu_bytes), links_.clock);
  if (!status.ok()) return status;
  if (has_delay_line()) {
    status = make(absl::StrCat(name, "d0"), absl::StrCat(name, "d1"),
                  std::max(kClockMtuBytes, topology_.mtu_bytes), links_.delay);
    if (!status.ok()) return status;
  }
  // A carrier that crossed a link without checksum offload leaves it with CHECKSUM_NONE, and so does its clone:
  // the rescuer's own, complete checksum then stands.
  for (const net::LinkInfo* end : {&links_.clock.link, &links_.clock.peer}) {
    status = net::SetTxChecksumOffload(end->name, false);
    if (!status.ok()) return Annotate(status, absl::StrCat("checksum offload of ", end->name));
  }
  return absl::OkStatus();
}

absl::Status ProxyInstance::MakeClock(DaemonFacts& facts) {
  const DataPlaneSpec defaults;
  clock_.period_ns.assign(defaults.clock_period_ns.begin(), defaults.clock_period_ns.end());
  absl::Status status;
  for (const net::ClockKind kind : ClockKindsOf(config_.clock().kind())) {
    clock_.kind = kind;
    status = TryClock(facts);
    if (status.ok()) return status;
    LogInfo("no ", std::string(net::ToString(kind)), " clock: ", std::string(status.message()));
  }
  return Annotate(
      status, absl::StrCat("the clock's queueing discipline (", std::string(net::ToString(clock_.kind)), ")"));
}

// Installs and measures the clock as `clock_` says. On an error nothing of it is left.
absl::Status ProxyInstance::TryClock(DaemonFacts& facts) {
  const int ifindex = links_.clock.link.ifindex;
  absl::Status status = net::InstallClockQdisc(ifindex, clock_);
  if (!status.ok()) return status;
  // A busy moment of the machine is no broken clock: it has a few tries.
  for (int turn = 1; turn <= kDelayMeasurements; ++turn) {
    const auto measured = MeasureClock(links_.clock, clock_);
    status = measured.ok() ? measured->Check(config_.clock().tolerance_ns()) : measured.status();
    if (!status.ok()) continue;
    facts.clock_measured_error_ns = measured->WorstErrorNs();
    facts.clock_kind = std::string(net::ToString(clock_.kind));
    undo_.Push("removing the clock's queueing discipline",
               [ifindex] { return net::RemoveClockQdisc(ifindex); });
    return status;
  }
  net::RemoveClockQdisc(ifindex).IgnoreError();  // its link goes too
  return status;
}

absl::Status ProxyInstance::MakeDelayLine(DaemonFacts& facts) {
  facts.engine = "wheel";
  if (!has_delay_line()) return absl::OkStatus();
  line_.delay_ns = DelaysOf(config_);
  absl::Status status;
  for (const net::DelayLineKind kind : LineKindsOf(config_.parking().line())) {
    line_.kind = kind;
    status = TryDelayLine();
    if (status.ok()) {
      facts.engine = absl::StrCat("qdisc-", std::string(net::ToString(kind)));
      return status;
    }
    LogInfo("no ", std::string(net::ToString(kind)), " delay line: ", std::string(status.message()));
  }
  return Annotate(status, absl::StrCat("the delay line (", std::string(net::ToString(line_.kind)), ")"));
}

// Installs and measures the delay line as `line_` says. On an error nothing of it is left.
absl::Status ProxyInstance::TryDelayLine() {
  const int ifindex = links_.delay.link.ifindex;
  absl::Status status = net::InstallDelayLine(ifindex, line_);
  if (!status.ok()) return status;
  for (int turn = 1; turn <= kDelayMeasurements; ++turn) {
    const auto measured = MeasureDelayLine(links_.delay, line_);
    status = measured.ok() ? measured->Check(config_.clock().tolerance_ns(), "delay line") : measured.status();
    if (!status.ok()) continue;
    undo_.Push("removing the delay line", [ifindex] { return net::RemoveDelayLine(ifindex); });
    return status;
  }
  net::RemoveDelayLine(ifindex).IgnoreError();  // its link goes too
  return status;
}

absl::Status ProxyInstance::Load() {
  DataPlaneSpec spec = MakeSpec(config_, topology_, links_);
  spec.clock_kind = AbiOf(clock_.kind);
  if (has_delay_line()) spec.engine = AbiOf(line_.kind);
  auto loaded = KernelDataPlane::Load(spec);
  if (!loaded.ok()) return Annotate(loaded.status(), "loading the kernel programs");
  data_plane_ = *std::move(loaded);
  return absl::OkStatus();
}

absl::Status ProxyInstance::AttachProgram(const ProgramInfo& program, int ifindex, net::Direction direction) {
  net::AttachSpec spec;
  spec.ifindex = ifindex;
  spec.direction = direction;
  spec.order = config_.tcx_order() == v1::TCX_ORDER_FIRST ? net::Order::kFirst : net::Order::kLast;
  spec.mechanism = MechanismOf(config_.attach());
  spec.instance = config_.instance();
  spec.role = program.name;
  spec.pin_dir = pin_folder_;
  auto attachment = net::Attachment::Attach(spec, program.fd);
  if (!attachment.ok()) return Annotate(attachment.status(), absl::StrCat("attaching ", program.name));
  attachments_.push_back(std::make_unique<net::Attachment>(*std::move(attachment)));
  net::Attachment* made = attachments_.back().get();
  undo_.Push(absl::StrCat("detaching ", made->ToString()), [made]() -> absl::Status {
    // An interface that is gone took its programs with it.
    if (!net::FindLink(made->spec().ifindex).ok()) {
      made->Detach().IgnoreError();
      return absl::OkStatus();
    }
    return made->Detach();
  });
  return absl::OkStatus();
}

absl::Status ProxyInstance::Attach(DaemonFacts& facts) {
  for (const ProgramInfo& program : data_plane_->Programs()) {
    if (const absl::Status status = AttachOne(program, facts); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ProxyInstance::AttachOne(const ProgramInfo& program, DaemonFacts& facts) {
  absl::Status status;
  switch (program.hook) {
    case Hook::kProxyEgress:
      return AttachProgram(program, links_.proxy.link.ifindex, net::Direction::kEgress);
    case Hook::kProxyPeerIngress:
      return AttachProgram(program, links_.proxy.peer.ifindex, net::Direction::kIngress);
    case Hook::kClockIngress:
      return AttachProgram(program, links_.clock.peer.ifindex, net::Direction::kIngress);
    case Hook::kFqEgress:
      if (clock_.kind == net::ClockKind::kFq) {
        status = AttachProgram(program, links_.clock.link.ifindex, net::Direction::kEgress);
      }
      if (status.ok() && has_delay_line() && line_.kind == net::DelayLineKind::kFq) {
        status = AttachProgram(program, links_.delay.link.ifindex, net::Direction::kEgress);
      }
      return status;
    case Hook::kDelayIngress:
      if (!has_delay_line()) return status;
      return AttachProgram(program, links_.delay.peer.ifindex, net::Direction::kIngress);
    case Hook::kUplinkIngress:
      return AttachToUplinks(program, facts);
  }
  return status;
}

absl::Status ProxyInstance::AttachToUplinks(const ProgramInfo& program, DaemonFacts& facts) {
  for (const auto& [ifindex, link] : topology_.uplinks) {
    const absl::Status status = AttachProgram(program, ifindex, net::Direction::kIngress);
    if (!status.ok()) return Annotate(status, absl::StrCat("uplink ", link.name));
    const bool tcx = attachments_.back()->mechanism() == net::Mechanism::kTcx;
    facts.uplinks.push_back({link.name, ifindex, link.up(), tcx ? "tcx" : "clsact"});
  }
  return absl::OkStatus();
}

absl::Status ProxyInstance::AddRoutes() {
  const int ifindex = links_.proxy.link.ifindex;
  for (int i = 0; i < config_.services_size(); ++i) {
    const v1::Service& service = config_.services(i);
    const auto vip = net::IpAddress::Parse(service.vip());
    const auto& source = topology_.services.at(static_cast<size_t>(i)).source;
    if (!vip.ok()) return vip.status();
    if (!source.has_value()) {
      return absl::FailedPreconditionError(absl::StrCat("service ", service.name(),
                                                        ": the kernel names no source "
                                                        "address towards its primary"));
    }
    const net::VipRoute route{*vip, ifindex, *source};
    const bool known =
        std::any_of(routes_.begin(), routes_.end(), [&](const auto& r) { return r.vip == *vip; });
    if (known) continue;  // several ports of one VIP
    absl::Status status = net::AddSourceAddress(ifindex, *source);
    if (!status.ok()) return Annotate(status, "the source address of the proxy interface");
    status = net::AddVipRoute(route);
    if (!status.ok())
      return Annotate(status, absl::StrCat("service ", service.name(), ": route to ", service.vip()));
    routes_.push_back(route);
    // The route and the address would go with the interface; removed first, nobody is sent to a dying one.
    undo_.Push(absl::StrCat("removing the route to ", service.vip()),
               [route] { return net::DeleteVipRoute(route); });
  }
  return absl::OkStatus();
}

absl::Status ProxyInstance::FollowMtu() {
  uint32_t smallest = 0;
  for (const auto& [ifindex, link] : topology_.uplinks) {
    const auto now = net::FindLink(ifindex);
    if (!now.ok()) continue;  // gone; the others count
    smallest = smallest == 0 ? now->mtu_bytes : std::min(smallest, now->mtu_bytes);
  }
  if (smallest == 0) return absl::OkStatus();
  for (const net::LinkInfo* end : {&links_.proxy.link, &links_.proxy.peer}) {
    const absl::Status status = net::SetLinkMtu(end->name, smallest);
    if (!status.ok()) return Annotate(status, absl::StrCat("the MTU of ", end->name));
  }
  return absl::OkStatus();
}

absl::Status ProxyInstance::CheckAttachments() const {
  for (const auto& attachment : attachments_) {
    if (attachment->mechanism() != net::Mechanism::kClsact) continue;
    const net::AttachSpec& spec = attachment->spec();
    if (!net::FindLink(spec.ifindex).ok()) continue;
    const auto filters = net::ListClsactFilters(spec.ifindex, spec.direction);
    if (!filters.ok()) return filters.status();
    const std::string name = absl::StrCat(net::FilterNamePrefix(spec.instance), spec.role);
    if (std::none_of(filters->begin(), filters->end(),
                     [&](const auto& filter) { return filter.name == name; })) {
      return absl::FailedPreconditionError(
          absl::StrCat("somebody removed our program from ", attachment->ToString()));
    }
  }
  return absl::OkStatus();
}

ProxyInstance::Restored ProxyInstance::Restore() {
  Restored restored;
  const auto keep = [&restored](const absl::Status& status, absl::string_view what) {
    if (!status.ok()) restored.problems.push_back(absl::StrCat(what, ": ", std::string(status.message())));
    return status.ok();
  };
  std::vector<const net::LinkInfo*> own_links = {&links_.proxy.link, &links_.proxy.peer, &links_.clock.link,
                                                 &links_.clock.peer};
  if (has_delay_line()) own_links.insert(own_links.end(), {&links_.delay.link, &links_.delay.peer});
  for (const net::LinkInfo* own : own_links) {
    const auto now = net::FindLink(own->ifindex);
    if (!keep(now.status(), absl::StrCat("our interface ", own->name)) || now->up()) continue;
    if (keep(net::SetLinkUp(own->name), absl::StrCat("setting ", own->name, " up"))) ++restored.links;
  }
  const auto present = net::ListVipRoutes(links_.proxy.link.ifindex);
  if (!keep(present.status(), "listing our routes")) return restored;
  for (const net::VipRoute& route : routes_) {
    if (std::find(present->begin(), present->end(), route) != present->end()) continue;
    const std::string what = absl::StrCat("restoring the route to ", route.vip.ToString());
    if (!keep(net::AddSourceAddress(route.ifindex, route.source), what)) continue;
    if (keep(net::AddVipRoute(route), what)) ++restored.routes;
  }
  return restored;
}

}  // namespace hedgerow
