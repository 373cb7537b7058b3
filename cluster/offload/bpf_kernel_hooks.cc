// SPDX-License-Identifier: Apache-2.0
//
// BpfKernel's hooks: XDP as a link that ends with the process, and the broadcast on TC egress. A link is never
// pinned: what answers in a node's name must not outlive it.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/if_link.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "cluster/offload/bpf_kernel.h"
#include "net/ip_address.h"
#include "net/netlink/link.h"
#include "net/netlink/route.h"
#include "node.skel.h"

namespace hedgerow::offload {
namespace {

const char* Name(uint32_t xdp_flags) { return xdp_flags == XDP_FLAGS_DRV_MODE ? "native" : "generic"; }

absl::StatusOr<net::UniqueFd> LinkXdp(int program_fd, int ifindex, uint32_t xdp_flags) {
  LIBBPF_OPTS(bpf_link_create_opts, options, .flags = xdp_flags);
  net::UniqueFd link(bpf_link_create(program_fd, ifindex, BPF_XDP, &options));
  if (link.valid()) return link;
  if (errno == EBUSY || errno == EEXIST)
    return absl::AlreadyExistsError(absl::StrCat(Name(xdp_flags), " XDP: the interface has an XDP program already"));
  return absl::ErrnoToStatus(errno, absl::StrCat(Name(xdp_flags), " XDP"));
}

// The interface a link is attached to; 0: it was taken off, or the interface is gone.
int IfindexOf(int link_fd) {
  bpf_link_info info{};
  uint32_t bytes = sizeof(info);
  if (bpf_obj_get_info_by_fd(link_fd, &info, &bytes) != 0) return 0;
  return static_cast<int>(info.xdp.ifindex);
}

std::string Text(const absl::Status& status) { return std::string(status.message()); }

}  // namespace

absl::Status BpfKernel::FindInterface(const std::string& name) {
  int ifindex = 0;
  if (name.empty()) {
    const auto address = net::IpAddress::FromBytes(options_.address.bytes);
    if (!address.ok()) return address.status();
    const auto addresses = net::ListAddresses();
    if (!addresses.ok()) return addresses.status();
    const auto found = std::find_if(addresses->begin(), addresses->end(),
                                    [&](const net::AddressInfo& each) { return each.address == *address; });
    if (found == addresses->end())
      return absl::NotFoundError(absl::StrCat("no interface has the address ", address->ToString()));
    ifindex = found->ifindex;
  }
  const auto link = name.empty() ? net::FindLink(ifindex) : net::FindLink(name);
  if (!link.ok()) return link.status();
  if (!link->ethernet()) return absl::FailedPreconditionError(absl::StrCat(link->name, " carries no Ethernet frames"));
  ifindex_ = link->ifindex;
  veth_ = link->kind == "veth";
  interface_ = link->name;
  return absl::OkStatus();
}

bool BpfKernel::XdpAttached() const {
  return xdp_link_.valid() && ifindex_ != 0 && IfindexOf(xdp_link_.get()) == ifindex_;
}

bool BpfKernel::BroadcastAttached() const {
  if (!broadcast_.has_value()) return false;
  const auto same_program = [&] {
    bpf_prog_info info{};
    uint32_t bytes = sizeof(info);
    const int fd = bpf_program__fd(skeleton_->progs.hr_node_broadcast);
    return bpf_obj_get_info_by_fd(fd, &info, &bytes) == 0 ? info.id : 0;
  }();
  if (broadcast_->mechanism() == net::Mechanism::kTcx) {
    const auto programs = net::ListTcx(ifindex_, net::Direction::kEgress);
    return programs.ok() && std::any_of(programs->begin(), programs->end(),
                                        [&](const auto& each) { return each.program_id == same_program; });
  }
  const auto filters = net::ListClsactFilters(ifindex_, net::Direction::kEgress);
  return filters.ok() && std::any_of(filters->begin(), filters->end(),
                                     [&](const auto& each) { return each.program_id == same_program; });
}

absl::Status BpfKernel::AttachXdp(XdpChoice choice) {
  const int program = bpf_program__fd(skeleton_->progs.hr_node_xdp);
  std::string native_failure = veth_ && choice == XdpChoice::kAuto ? "a veth copies each datagram for native XDP" : "";
  xdp_link_.Reset();
  if (choice == XdpChoice::kNative || (choice == XdpChoice::kAuto && !veth_)) {
    SetXdpHook({.generic = 0});
    auto link = LinkXdp(program, ifindex_, XDP_FLAGS_DRV_MODE);
    if (!link.ok() && (choice == XdpChoice::kNative || absl::IsAlreadyExists(link.status()))) return link.status();
    if (link.ok()) {
      xdp_link_ = *std::move(link);
      xdp_detail_ = absl::StrCat("native XDP on ", interface_);
      return absl::OkStatus();
    }
    native_failure = Text(link.status());
  }
  SetXdpHook({.generic = 1});
  auto link = LinkXdp(program, ifindex_, XDP_FLAGS_SKB_MODE);
  if (!link.ok()) return link.status();
  xdp_link_ = *std::move(link);
  xdp_detail_ = absl::StrCat("generic XDP on ", interface_, native_failure.empty() ? "" : " (" + native_failure + ")");
  return absl::OkStatus();
}

absl::Status BpfKernel::AttachBroadcast(net::Mechanism mechanism) {
  const net::AttachSpec spec{.ifindex = ifindex_,
                             .direction = net::Direction::kEgress,
                             .order = net::Order::kLast,
                             .mechanism = mechanism,
                             .instance = options_.instance,
                             .role = "broadcast"};
  const int program = bpf_program__fd(skeleton_->progs.hr_node_broadcast);
  broadcast_.reset();
  auto attachment = net::Attachment::Attach(spec, program);
  if (absl::IsAlreadyExists(attachment.status())) {
    // A clsact filter is no link: a process that was killed leaves it behind.
    attachment = net::Attachment::Adopt(spec);
    if (!attachment.ok()) return attachment.status();
    if (absl::Status status = attachment->Replace(program); !status.ok()) return status;
  }
  if (!attachment.ok()) return attachment.status();
  broadcast_.emplace(*std::move(attachment));
  broadcast_detail_ =
      absl::StrCat(broadcast_->mechanism() == net::Mechanism::kTcx ? "tcx" : "clsact", " egress of ", interface_);
  return absl::OkStatus();
}

void BpfKernel::Attach(const AttachOptions& options) {
  if (!XdpAttached() && !BroadcastAttached()) {
    if (absl::Status status = FindInterface(options.interface); !status.ok()) {
      if (loaded_.xdp) xdp_detail_ = Text(status);
      if (loaded_.broadcast) broadcast_detail_ = Text(status);
      return;
    }
  }
  if (options.xdp && loaded_.xdp && !XdpAttached()) {
    if (absl::Status status = AttachXdp(options.mode); !status.ok()) xdp_detail_ = Text(status);
  }
  if (options.broadcast && loaded_.broadcast && !BroadcastAttached()) {
    if (absl::Status status = AttachBroadcast(options.tc); !status.ok()) broadcast_detail_ = Text(status);
  }
}

void BpfKernel::Detach() {
  if (xdp_link_.valid()) xdp_detail_ = "detached";
  if (broadcast_.has_value()) broadcast_detail_ = "detached";
  xdp_link_.Reset();
  broadcast_.reset();
}

HookStatus BpfKernel::Xdp() {
  const bool on = XdpAttached();
  if (xdp_link_.valid() && !on) return {.on = false, .detail = absl::StrCat("taken off ", interface_, " by somebody")};
  return {.on = on, .detail = xdp_detail_};
}

HookStatus BpfKernel::Broadcast() {
  const bool on = BroadcastAttached();
  if (broadcast_.has_value() && !on)
    return {.on = false, .detail = absl::StrCat("taken off ", interface_, " by somebody")};
  return {.on = on, .detail = broadcast_detail_};
}

}  // namespace hedgerow::offload
