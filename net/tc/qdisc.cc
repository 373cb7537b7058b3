// SPDX-License-Identifier: Apache-2.0
//
// The recipes. htb charges a packet max(length, mpu) bytes at the class's rate: with an mpu larger than any
// frame every packet costs the same time, mpu / rate, which is the period. fq keeps to departure times.
#include "net/tc/qdisc.h"

#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>

#include "absl/strings/str_cat.h"

namespace hedgerow::net {
namespace {

constexpr uint16_t kChargedBytes = 1600;  // mpu: above the largest frame on an MTU of 1500
// htb's burst in the kernel's unit of 64 ns. The smallest: tokens left over from a long rest would let the next
// packets through early.
constexpr uint32_t kBurstTicks = 1;
constexpr uint8_t kLinkLayerEthernet = 1;
constexpr uint64_t kNanosPerSecond = 1'000'000'000;
// fq may put a wake-up off by this much to merge it with another. Its default of 10 us is a tenth of a short
// lap.
constexpr uint32_t kFqTimerSlack_ns = 1000;
constexpr uint16_t kNew = NLM_F_CREATE | NLM_F_EXCL;

absl::Status Add(netlink::Socket& socket, netlink::Request& request, absl::string_view kind, int ifindex) {
  const absl::Status status =
      socket.Do(request, absl::StrCat("make the ", kind, " qdisc of interface number ", ifindex));
  if (absl::IsNotFound(status)) return absl::NotFoundError(absl::StrCat("the kernel has no sch_", kind));
  return status;
}

}  // namespace

absl::Status AddHtbRoot(netlink::Socket& socket, int ifindex, uint32_t default_minor) {
  tc_htb_glob global{};
  global.version = 3;
  global.rate2quantum = 10;
  global.defcls = default_minor;
  netlink::Request request(RTM_NEWQDISC, kNew, netlink::TcHeader(ifindex, TC_H_ROOT, kQdiscHandle));
  request.PutString(TCA_KIND, "htb");
  const size_t options = request.Begin(TCA_OPTIONS);
  request.PutValue(TCA_HTB_INIT, global);
  request.End(options);
  return Add(socket, request, "htb", ifindex);
}

absl::Status AddHtbClass(netlink::Socket& socket, int ifindex, uint32_t minor, uint64_t period_ns) {
  tc_htb_opt parameters{};
  parameters.rate.rate = static_cast<uint32_t>(kChargedBytes * kNanosPerSecond / period_ns);
  parameters.rate.mpu = kChargedBytes;
  // Said outright, the kernel needs no rate table to guess it from.
  parameters.rate.linklayer = kLinkLayerEthernet;
  parameters.ceil = parameters.rate;
  parameters.buffer = kBurstTicks;
  parameters.cbuffer = kBurstTicks;
  parameters.quantum = kChargedBytes;  // Said outright, or the kernel logs a warning about the one it computes.
  netlink::Request request(RTM_NEWTCLASS, kNew, netlink::TcHeader(ifindex, kQdiscHandle, kQdiscHandle | minor));
  request.PutString(TCA_KIND, "htb");
  const size_t options = request.Begin(TCA_OPTIONS);
  request.PutValue(TCA_HTB_PARMS, parameters);
  request.End(options);
  return socket.Do(request, absl::StrCat("make the htb class 1:", absl::Hex(minor), " of interface number ", ifindex));
}

absl::Status AddFqRoot(netlink::Socket& socket, int ifindex, uint32_t limit_packets) {
  netlink::Request request(RTM_NEWQDISC, kNew, netlink::TcHeader(ifindex, TC_H_ROOT, kQdiscHandle));
  request.PutString(TCA_KIND, "fq");
  const size_t options = request.Begin(TCA_OPTIONS);
  request.PutU32(TCA_FQ_PLIMIT, limit_packets);
  request.PutU32(TCA_FQ_FLOW_PLIMIT, limit_packets);  // one client's packets are one flow
  request.PutU32(TCA_FQ_TIMER_SLACK, kFqTimerSlack_ns);
  request.End(options);
  return Add(socket, request, "fq", ifindex);
}

absl::StatusOr<std::string> RootQdiscKind(int ifindex) {
  std::string kind;
  netlink::Request request(RTM_GETQDISC, NLM_F_DUMP, netlink::TcHeader(ifindex));
  const absl::Status status = netlink::Ask(request, "list qdiscs", [&](const netlink::Message& message) {
    const auto qdisc = message.Header<tcmsg>();
    if (qdisc.tcm_ifindex == ifindex && qdisc.tcm_parent == TC_H_ROOT && qdisc.tcm_handle == kQdiscHandle) {
      kind = message.AttributesAfter<tcmsg>().String(TCA_KIND);
    }
  });
  if (!status.ok()) return status;
  return kind;
}

absl::Status RemoveRootQdisc(int ifindex) {
  const auto kind = RootQdiscKind(ifindex);
  if (!kind.ok()) return kind.status();
  if (kind->empty()) return absl::OkStatus();
  netlink::Request request(RTM_DELQDISC, 0, netlink::TcHeader(ifindex, TC_H_ROOT, kQdiscHandle));
  const absl::Status status = netlink::Do(request, absl::StrCat("remove the root qdisc of interface number ", ifindex));
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

}  // namespace hedgerow::net
