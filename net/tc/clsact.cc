// SPDX-License-Identifier: Apache-2.0
//
// clsact and cls_bpf over rtnetlink. Not through libbpf's bpf_tc_* functions: they cannot name a filter.
#include "net/tc/clsact.h"

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>

#include "absl/strings/str_cat.h"
#include "net/netlink/netlink.h"

namespace hedgerow::net {
namespace {

constexpr uint32_t kClsactHandle = TC_H_MAKE(TC_H_CLSACT, 0);

uint32_t HookParent(Direction direction) {
  return TC_H_MAKE(TC_H_CLSACT, direction == Direction::kIngress ? TC_H_MIN_INGRESS : TC_H_MIN_EGRESS);
}

tcmsg QdiscHeader(int ifindex) { return netlink::TcHeader(ifindex, TC_H_CLSACT, kClsactHandle); }

tcmsg FilterHeader(const ClsactFilter& filter) {
  tcmsg header = netlink::TcHeader(filter.ifindex, HookParent(filter.direction), filter.handle);
  header.tcm_info = TC_H_MAKE(static_cast<uint32_t>(filter.priority) << 16, htons(ETH_P_ALL));
  return header;
}

std::string Where(const ClsactFilter& filter) {
  return absl::StrCat(ToString(filter.direction), " of interface number ", filter.ifindex, ", priority ",
                      filter.priority, " handle 0x", absl::Hex(filter.handle));
}

absl::Status SendFilter(const ClsactFilter& filter, int program_fd, uint16_t flags, absl::string_view what) {
  netlink::Request request(RTM_NEWTFILTER, flags, FilterHeader(filter));
  request.PutString(TCA_KIND, "bpf");
  const size_t options = request.Begin(TCA_OPTIONS);
  request.PutU32(TCA_BPF_FD, static_cast<uint32_t>(program_fd));
  request.PutString(TCA_BPF_NAME, filter.name);
  request.PutU32(TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT);
  request.End(options);
  return netlink::Do(request, absl::StrCat(what, " ", filter.name, " on ", Where(filter)));
}

}  // namespace

absl::StatusOr<IngressQdisc> FindIngressQdisc(int ifindex) {
  IngressQdisc found = IngressQdisc::kNone;
  netlink::Request request(RTM_GETQDISC, NLM_F_DUMP, netlink::TcHeader(ifindex));
  const absl::Status status = netlink::Ask(request, "list qdiscs", [&](const netlink::Message& message) {
    const auto qdisc = message.Header<tcmsg>();
    if (qdisc.tcm_ifindex != ifindex || qdisc.tcm_parent != TC_H_CLSACT) return;
    const std::string kind = message.AttributesAfter<tcmsg>().String(TCA_KIND);
    if (kind == "clsact") found = IngressQdisc::kClsact;
    if (kind == "ingress") found = IngressQdisc::kIngressOnly;
  });
  if (!status.ok()) return status;
  return found;
}

absl::Status CreateClsact(int ifindex) {
  netlink::Request request(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, QdiscHeader(ifindex));
  request.PutString(TCA_KIND, "clsact");
  return netlink::Do(request, absl::StrCat("make a clsact qdisc on interface number ", ifindex));
}

absl::StatusOr<bool> DeleteClsactIfUnused(int ifindex) {
  const auto qdisc = FindIngressQdisc(ifindex);
  if (!qdisc.ok()) return qdisc.status();
  if (*qdisc != IngressQdisc::kClsact) return false;
  for (const Direction direction : {Direction::kIngress, Direction::kEgress}) {
    const auto filters = ListClsactFilters(ifindex, direction);
    if (!filters.ok()) return filters.status();
    if (!filters->empty()) return false;
  }
  netlink::Request request(RTM_DELQDISC, 0, QdiscHeader(ifindex));
  const absl::Status status =
      netlink::Do(request, absl::StrCat("remove the clsact qdisc of interface number ", ifindex));
  if (absl::IsNotFound(status)) return false;
  if (!status.ok()) return status;
  return true;
}

absl::Status AddClsactFilter(const ClsactFilter& filter, int program_fd) {
  const absl::Status status = SendFilter(filter, program_fd, NLM_F_CREATE | NLM_F_EXCL, "attach");
  if (!absl::IsAlreadyExists(status)) return status;
  const auto filters = ListClsactFilters(filter.ifindex, filter.direction);
  if (filters.ok()) {
    for (const ClsactFilter& present : *filters) {
      if (present.priority != filter.priority || present.handle != filter.handle) continue;
      return absl::AlreadyExistsError(absl::StrCat(Where(filter), " is taken by '", present.name, "' (program ",
                                                   present.program_id, " ", ProgramName(present.program_id), ")"));
    }
  }
  return status;
}

absl::Status ReplaceClsactFilter(const ClsactFilter& filter, int program_fd) {
  return SendFilter(filter, program_fd, NLM_F_REPLACE, "replace");
}

absl::Status DeleteClsactFilter(const ClsactFilter& filter) {
  netlink::Request request(RTM_DELTFILTER, 0, FilterHeader(filter));
  request.PutString(TCA_KIND, "bpf");
  const absl::Status status = netlink::Do(request, absl::StrCat("detach ", filter.name, " from ", Where(filter)));
  if (status.ok() || absl::IsNotFound(status)) return absl::OkStatus();
  // No clsact at all is reported as an invalid parent.
  const auto qdisc = FindIngressQdisc(filter.ifindex);
  return qdisc.ok() && *qdisc == IngressQdisc::kNone ? absl::OkStatus() : status;
}

absl::StatusOr<std::vector<ClsactFilter>> ListClsactFilters(int ifindex, Direction direction) {
  std::vector<ClsactFilter> filters;
  const auto qdisc = FindIngressQdisc(ifindex);
  if (!qdisc.ok()) return qdisc.status();
  // An `ingress` qdisc answers for any parent with its ingress filters.
  if (*qdisc == IngressQdisc::kNone) return filters;
  if (*qdisc == IngressQdisc::kIngressOnly && direction == Direction::kEgress) return filters;
  netlink::Request request(RTM_GETTFILTER, NLM_F_DUMP, netlink::TcHeader(ifindex, HookParent(direction)));
  const absl::Status status = netlink::Ask(request, "list TC filters", [&](const netlink::Message& message) {
    const auto filter = message.Header<tcmsg>();
    const auto attributes = message.AttributesAfter<tcmsg>();
    const auto options = attributes.Nested(TCA_OPTIONS);
    // Every priority also shows its classifier instance, without a handle.
    if (filter.tcm_handle == 0) return;
    ClsactFilter found{.ifindex = ifindex,
                       .direction = direction,
                       .priority = static_cast<uint16_t>(TC_H_MAJ(filter.tcm_info) >> 16),
                       .handle = filter.tcm_handle,
                       .name = "",
                       .kind = attributes.String(TCA_KIND),
                       .program_id = 0};
    if (found.kind == "bpf") {
      found.name = options.String(TCA_BPF_NAME);
      found.program_id = options.Value<uint32_t>(TCA_BPF_ID).value_or(0);
    }
    filters.push_back(std::move(found));
  });
  if (!status.ok()) return status;
  return filters;
}

}  // namespace hedgerow::net
