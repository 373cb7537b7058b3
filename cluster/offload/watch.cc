// SPDX-License-Identifier: Apache-2.0
#include "cluster/offload/watch.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/offload/kernel_keys.h"
#include "net/bpf_log.h"
#include "net/fnv.h"
#include "net/netlink/link.h"
#include "net/netlink/route.h"
#include "watch.skel.h"

namespace hedgerow::offload {
namespace {

constexpr int kProofTries = 100;
constexpr useconds_t kProofPause_us = 1'000;
constexpr uint32_t kMtu_bytes = 1500;

absl::Status Annotate(const absl::Status& status, absl::string_view what) {
  return status.ok() ? status : absl::Status(status.code(), absl::StrCat(what, ": ", std::string(status.message())));
}

// Interface names have 15 characters, and instances more.
std::string LinkName(const std::string& instance, absl::string_view end) {
  return absl::StrCat("hrn", absl::Hex(net::Fnv1a(instance), absl::kZeroPad8), end);
}
std::string OuterEnd(const std::string& instance) { return LinkName(instance, "c0"); }
std::string InnerEnd(const std::string& instance) { return LinkName(instance, "c1"); }

hr_address AbiAddress(const net::IpAddress& address) {
  hr_address abi{};
  std::copy(address.mapped().begin(), address.mapped().end(), abi.bytes);
  return abi;
}

void Store(volatile hr_address& to, const hr_address& from) {
  for (int i = 0; i < 2; ++i) to.halves[i] = from.halves[i];
}

std::string ToString(const Endpoint& endpoint) {
  return absl::StrCat(endpoint.address.is_v4() ? "" : "[", endpoint.address.ToString(),
                      endpoint.address.is_v4() ? ":" : "]:", endpoint.port);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Watch>> Watch::Start(const WatchSpec& spec) {
  if (spec.incarnation == 0) return absl::InvalidArgumentError("a watch needs an incarnation");
  if (spec.peers.size() > HR_WATCH_PEERS)
    return absl::InvalidArgumentError(absl::StrCat("at most ", HR_WATCH_PEERS, " peers, not ", spec.peers.size()));
  auto watch = std::unique_ptr<Watch>(new Watch(spec));
  if (absl::Status status = RemoveLeftovers(spec.instance); !status.ok()) return status;
  if (absl::Status status = watch->MakeLink(); !status.ok()) return status;
  if (absl::Status status = watch->Load(); !status.ok()) return status;
  if (absl::Status status = watch->MapArrays(); !status.ok()) return status;
  if (absl::Status status = watch->WatchThisProcess(); !status.ok()) return status;
  if (absl::Status status = watch->MakeClock(); !status.ok()) return status;
  return watch;
}

Watch::~Watch() {
  attachment_.reset();
  if (made_link_) RemoveLeftovers(spec_.instance).IgnoreError();
  watch_bpf__destroy(skeleton_);
}

absl::Status Watch::RemoveLeftovers(const std::string& instance) {
  // The other end, the queueing discipline with the packet in it, and the filter go with it.
  return Annotate(net::DeleteOwnedLink(OuterEnd(instance), instance), "removing what a former incarnation left");
}

absl::Status Watch::MakeLink() {
  net::VethOptions options;
  options.name = OuterEnd(spec_.instance);
  options.peer_name = InnerEnd(spec_.instance);
  options.instance = spec_.instance;
  options.mtu_bytes = kMtu_bytes;
  const auto pair = net::CreateVethPair(options);
  if (!pair.ok()) return Annotate(pair.status(), "making the clock's link");
  made_link_ = true;
  out_ifindex_ = pair->link.ifindex;
  in_ifindex_ = pair->peer.ifindex;
  // What crosses a link without checksum offload leaves it with CHECKSUM_NONE, and so does its clone: the
  // checksums that the program makes then stand.
  for (const std::string& end : {options.name, options.peer_name}) {
    if (absl::Status status = net::SetTxChecksumOffload(end, false); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Watch::Load() {
  net::KeepBpfLog();
  skeleton_ = watch_bpf__open();
  if (skeleton_ == nullptr) return Annotate(net::BpfLoadError(errno), "opening the watch's BPF object");
  auto& config = skeleton_->rodata->watch_config;
  config.cluster_id = spec_.cluster_id;
  config.cluster_epoch = spec_.cluster_epoch;
  config.leader_address = AbiAddress(spec_.serve.address);
  config.leader_port_be = htons(spec_.serve.port);
  config.self = static_cast<uint32_t>(spec_.self.value());
  config.clock_out_ifindex = static_cast<uint32_t>(out_ifindex_);
  config.clock_in_ifindex = static_cast<uint32_t>(in_ifindex_);
  config.resigning_laps = kResigningLaps;
  config.stall_from_ns = spec_.stall_from_ns;
  config.stall_until_ns = spec_.stall_until_ns;
  for (const auto& [map, fd] :
       {std::pair(skeleton_->maps.node, spec_.state_map), std::pair(skeleton_->maps.numbers, spec_.numbers_map),
        std::pair(skeleton_->maps.node_keys, spec_.keys_map)}) {
    if (fd < 0) continue;
    if (const int error = bpf_map__reuse_fd(map, fd); error != 0)
      return Annotate(net::BpfLoadError(-error), absl::StrCat("sharing the map ", bpf_map__name(map)));
  }
  if (const int error = watch_bpf__load(skeleton_); error != 0)
    return Annotate(net::BpfLoadError(-error), "the watch's programs");
  if (spec_.keys_map < 0) {
    if (absl::Status status = WriteKeys(bpf_map__fd(skeleton_->maps.node_keys), spec_.cluster_keys); !status.ok())
      return status;
  }
  if (const int error = watch_bpf__attach(skeleton_); error != 0)
    return Annotate(net::BpfLoadError(-error), "attaching to the kernel's tracepoints");
  return absl::OkStatus();
}

absl::Status Watch::MapArrays() {
  auto open = [](bpf_map* map, auto& mapped) {
    auto opened = std::decay_t<decltype(mapped)>::Open(bpf_map__fd(map), bpf_map__max_entries(map));
    if (opened.ok()) mapped = *std::move(opened);
    return Annotate(opened.status(), bpf_map__name(map));
  };
  auto& maps = skeleton_->maps;
  for (const absl::Status& status : {open(maps.node_watch, watch_), open(maps.node_clock, clock_),
                                     open(maps.node_plan, plan_), open(maps.node_targets, targets_)}) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Watch::WatchThisProcess() {
  const uint64_t arguments[1] = {spec_.incarnation};
  LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = arguments, .ctx_size_in = sizeof(arguments));
  if (bpf_prog_test_run_opts(bpf_program__fd(skeleton_->progs.hr_watch_me), &options) != 0)
    return absl::ErrnoToStatus(errno, "cannot run the program that notes the watched process");
  if (watch_->incarnation != spec_.incarnation || watch_->tgid == 0)
    return absl::InternalError("the kernel did not report the id of this process");
  return absl::OkStatus();
}

// htb: every kernel that we know has it, and a lap of a millisecond needs no more.
absl::Status Watch::MakeClock() {
  net::ClockQdiscOptions options;
  options.period_ns = {kLap_ns};
  if (absl::Status status = net::InstallClockQdisc(out_ifindex_, options); !status.ok()) return status;
  net::AttachSpec attach;
  attach.ifindex = in_ifindex_;
  attach.direction = net::Direction::kIngress;
  // Not TCX: such a link goes with the process's last descriptor, a millisecond after a small one is killed.
  attach.mechanism = net::Mechanism::kClsact;
  attach.instance = spec_.instance;
  attach.role = "node_clock";
  auto attached = net::Attachment::Attach(attach, bpf_program__fd(skeleton_->progs.hr_node_clock));
  if (!attached.ok()) return attached.status();
  attachment_ = std::make_unique<net::Attachment>(*std::move(attached));
  // The proof: a packet sent off comes round. This node does not lead yet, so that the clock then rests.
  const uint64_t laps = clock_->laps;
  if (absl::Status status = Kick(); !status.ok()) return status;
  for (int i = 0; i < kProofTries && clock_->laps == laps; ++i) usleep(kProofPause_us);
  return clock_->laps != laps ? absl::OkStatus()
                              : absl::DeadlineExceededError("its packet did not come round in 100 ms");
}

absl::Status Watch::Kick() {
  char frame[HR_WATCH_LAP_FRAME_BYTES] = {};
  LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame, .data_size_in = sizeof(frame));
  if (bpf_prog_test_run_opts(bpf_program__fd(skeleton_->progs.hr_watch_kick), &options) != 0)
    return absl::ErrnoToStatus(errno, "cannot run the program that sets the clock going");
  return static_cast<int>(options.retval) >= 0 ? absl::OkStatus()
                                               : absl::InternalError("the clock's link does not take its packet");
}

void Watch::Tend(uint64_t now_ns) {
  if (clock_->running != 0 && now_ns < clock_->last_lap_ns + HR_WATCH_OVERDUE_NS) return;
  Kick().IgnoreError();  // the next turn tries again; the status shows a clock that does not run
}

absl::Status Watch::WriteTarget(uint32_t index, const Endpoint& to, const hr_siphash_key& key) {
  volatile hr_watch_target* target = targets_.At(index);
  const auto route = net::LookUpRoute(to.address);
  if (!route.ok() || route->reach != net::Reach::kRouted || !route->source.has_value()) {
    target->ifindex = 0;
    if (!route.ok()) return route.status();
    return absl::FailedPreconditionError(route->reach == net::Reach::kUnreachable ? route->reason
                                                                                  : "it is on this host");
  }
  const bool is_peer = index < HR_WATCH_PEERS;
  const hr_address address = AbiAddress(to.address);
  // Peers believe what comes from where they know this node to be. Proxies believe their key.
  const hr_address source = AbiAddress(is_peer ? spec_.peer_address.address : *route->source);
  target->ifindex = 0;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  Store(target->address, address);
  Store(target->source, source);
  target->key.k0 = key.k0;
  target->key.k1 = key.k1;
  target->port_be = htons(to.port);
  target->source_port_be = htons(spec_.peer_address.port);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  target->ifindex = static_cast<uint32_t>(route->ifindex);
  return absl::OkStatus();
}

void Watch::SetProxyKeys(const std::vector<hr_siphash_key>& keys) {
  for (size_t i = 0; i < std::min(keys.size(), spec_.proxies.size()); ++i) spec_.proxies[i].key = keys[i];
}

void Watch::SetPeers(std::vector<Endpoint> peers) {
  if (peers.size() > HR_WATCH_PEERS) peers.resize(HR_WATCH_PEERS);
  for (uint32_t i = 0; i < HR_WATCH_PEERS; ++i) {
    const bool same = i < peers.size() && i < spec_.peers.size() && peers[i].address == spec_.peers[i].address &&
                      peers[i].port == spec_.peers[i].port;
    if (!same) targets_.At(i)->ifindex = 0;
  }
  spec_.peers = std::move(peers);
}

std::vector<std::string> Watch::FindRoutes() {
  std::vector<std::string> untold;
  auto write = [&](uint32_t index, absl::string_view who, const Endpoint& to, const hr_siphash_key& key) {
    const absl::Status status = WriteTarget(index, to, key);
    if (!status.ok()) untold.push_back(absl::StrCat(who, " ", ToString(to), ": ", std::string(status.message())));
  };
  for (uint32_t i = 0; i < spec_.peers.size(); ++i) write(i, "peer", spec_.peers[i], {});
  for (uint32_t i = 0; i < spec_.proxies.size(); ++i) {
    const WatchSpec::Proxy& proxy = spec_.proxies[i];
    if (i < HR_WATCH_PROXIES) {
      write(HR_WATCH_PEERS + i, "proxy", proxy.address, proxy.key);
    } else {
      untold.push_back(
          absl::StrCat("proxy ", ToString(proxy.address), ": only the first ", HR_WATCH_PROXIES, " are told"));
    }
  }
  return untold;
}

void Watch::SetSuccessors(raft::Term term, std::span<const raft::NodeId> order) {
  uint32_t successors[HR_PEER_SUCCESSORS] = {};
  for (size_t i = 0; i < std::min<size_t>(order.size(), HR_PEER_SUCCESSORS); ++i)
    successors[i] = static_cast<uint32_t>(order[i].value());
  volatile hr_watch_plan* plan = plan_.At(0);
  bool same = plan->term == term.value();
  for (int i = 0; i < HR_PEER_SUCCESSORS; ++i) same = same && plan->successors[i] == successors[i];
  if (same) return;
  plan->version = plan->version + 1;  // odd: being written
  std::atomic_thread_fence(std::memory_order_seq_cst);
  plan->term = term.value();
  for (int i = 0; i < HR_PEER_SUCCESSORS; ++i) plan->successors[i] = successors[i];
  std::atomic_thread_fence(std::memory_order_seq_cst);
  plan->version = plan->version + 1;
}

Watch::Maps Watch::maps() const {
  const auto& maps = skeleton_->maps;
  return {.state = bpf_map__fd(maps.node),
          .numbers = bpf_map__fd(maps.numbers),
          .watch = bpf_map__fd(maps.node_watch),
          .clock = bpf_map__fd(maps.node_clock)};
}

}  // namespace hedgerow::offload
