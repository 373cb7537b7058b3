// SPDX-License-Identifier: Apache-2.0
//
// The htb recipe over rtnetlink. htb charges a packet max(length, mpu) bytes at the class's rate. With an mpu
// larger than any frame every packet costs the same time, mpu / rate, which is the period.
#include "proxy/net/clock_qdisc.h"

#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "proxy/net/netlink.h"

namespace hedgerow::net {
namespace {

constexpr uint32_t kQdiscHandle = 0x10000;  // 1:
constexpr uint32_t kDefaultMinor = 9;
constexpr uint32_t kFirstMinor = 10;
constexpr uint16_t kChargedBytes = 1600;  // mpu: above the largest frame on an MTU of 1500
// htb's burst in the kernel's unit of 64 ns. The smallest: tokens left over from a long rest would let the next
// laps through early.
constexpr uint32_t kBurstTicks = 1;
constexpr uint8_t kLinkLayerEthernet = 1;
constexpr uint64_t kNanosPerSecond = 1'000'000'000;

tcmsg Header(int ifindex, uint32_t parent, uint32_t handle) {
  tcmsg header{};
  header.tcm_family = AF_UNSPEC;
  header.tcm_ifindex = ifindex;
  header.tcm_parent = parent;
  header.tcm_handle = handle;
  return header;
}

absl::Status CheckPeriod(uint64_t period_ns) {
  if (period_ns >= kClockPeriodMin_ns && period_ns <= kClockPeriodMax_ns) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a clock period of ", period_ns, " ns; expected ",
                                                 kClockPeriodMin_ns, " to ", kClockPeriodMax_ns));
}

uint32_t RateOf(uint64_t period_ns) {
  return static_cast<uint32_t>(kChargedBytes * kNanosPerSecond / period_ns);
}

absl::Status SendClass(netlink::Socket& socket, int ifindex, uint32_t minor, uint64_t period_ns,
                       uint16_t flags) {
  if (absl::Status status = CheckPeriod(period_ns); !status.ok()) return status;
  tc_htb_opt parameters{};
  parameters.rate.rate = RateOf(period_ns);
  parameters.rate.mpu = kChargedBytes;
  parameters.rate.linklayer =
      kLinkLayerEthernet;  // Said outright, the kernel needs no rate table to guess it from.
  parameters.ceil = parameters.rate;
  parameters.buffer = kBurstTicks;
  parameters.cbuffer = kBurstTicks;
  parameters.quantum = kChargedBytes;  // Said outright, or the kernel logs a warning about the one it computes.
  netlink::Request request(RTM_NEWTCLASS, flags, Header(ifindex, kQdiscHandle, kQdiscHandle | minor));
  request.PutString(TCA_KIND, "htb");
  const size_t options = request.Begin(TCA_OPTIONS);
  request.PutValue(TCA_HTB_PARMS, parameters);
  request.End(options);
  return socket.Do(request, absl::StrCat("set the clock's htb class 1:", absl::Hex(minor),
                                         " of interface number ", ifindex));
}

absl::StatusOr<bool> HasClockQdisc(int ifindex) {
  bool found = false;
  netlink::Request request(RTM_GETQDISC, NLM_F_DUMP, Header(ifindex, 0, 0));
  const absl::Status status = netlink::Ask(request, "list qdiscs", [&](const netlink::Message& message) {
    const auto qdisc = message.Header<tcmsg>();
    found |= qdisc.tcm_ifindex == ifindex && qdisc.tcm_parent == TC_H_ROOT &&
             qdisc.tcm_handle == kQdiscHandle && message.AttributesAfter<tcmsg>().String(TCA_KIND) == "htb";
  });
  if (!status.ok()) return status;
  return found;
}

absl::Status InstallClasses(netlink::Socket& socket, int ifindex, const ClockQdiscOptions& options) {
  constexpr uint16_t kNew = NLM_F_CREATE | NLM_F_EXCL;
  absl::Status status = SendClass(socket, ifindex, kDefaultMinor, options.default_period_ns, kNew);
  for (uint32_t i = 0; i < options.period_ns.size() && status.ok(); ++i) {
    status = SendClass(socket, ifindex, kFirstMinor + i, options.period_ns[i], kNew);
  }
  return status;
}

}  // namespace

absl::Status InstallClockQdisc(int ifindex, const ClockQdiscOptions& options) {
  if (options.period_ns.empty() || options.period_ns.size() > kClockPeriodsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.period_ns.size(), " clock periods; expected 1 to ", kClockPeriodsMax));
  }
  auto socket = netlink::Socket::Open();
  if (!socket.ok()) return socket.status();
  tc_htb_glob global{};
  global.version = 3;
  global.rate2quantum = 10;
  global.defcls = kDefaultMinor;
  netlink::Request request(RTM_NEWQDISC, NLM_F_CREATE | NLM_F_EXCL, Header(ifindex, TC_H_ROOT, kQdiscHandle));
  request.PutString(TCA_KIND, "htb");
  const size_t attributes = request.Begin(TCA_OPTIONS);
  request.PutValue(TCA_HTB_INIT, global);
  request.End(attributes);
  const std::string what = absl::StrCat("make the clock's htb qdisc on interface number ", ifindex);
  if (absl::Status status = socket->Do(request, what); !status.ok()) return status;
  const absl::Status status = InstallClasses(*socket, ifindex, options);
  if (!status.ok()) RemoveClockQdisc(ifindex).IgnoreError();
  return status;
}

absl::Status ChangeClockPeriod(int ifindex, uint32_t index, uint64_t period_ns) {
  if (index >= kClockPeriodsMax) return absl::InvalidArgumentError(absl::StrCat("clock period number ", index));
  auto socket = netlink::Socket::Open();
  if (!socket.ok()) return socket.status();
  return SendClass(*socket, ifindex, kFirstMinor + index, period_ns, 0);
}

absl::Status RemoveClockQdisc(int ifindex) {
  const auto present = HasClockQdisc(ifindex);
  if (!present.ok()) return present.status();
  if (!*present) return absl::OkStatus();
  netlink::Request request(RTM_DELQDISC, 0, Header(ifindex, TC_H_ROOT, kQdiscHandle));
  const absl::Status status =
      netlink::Do(request, absl::StrCat("remove the clock's qdisc from interface number ", ifindex));
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::StatusOr<std::vector<ClockClass>> ListClockClasses(int ifindex) {
  std::vector<ClockClass> classes;
  netlink::Request request(RTM_GETTCLASS, NLM_F_DUMP, Header(ifindex, 0, 0));
  const absl::Status status =
      netlink::Ask(request, absl::StrCat("list the clock's classes on interface number ", ifindex),
                   [&](const netlink::Message& message) {
                     const auto header = message.Header<tcmsg>();
                     const auto attributes = message.AttributesAfter<tcmsg>();
                     const uint32_t minor = TC_H_MIN(header.tcm_handle);
                     const auto parameters = attributes.Nested(TCA_OPTIONS).Value<tc_htb_opt>(TCA_HTB_PARMS);
                     if (attributes.String(TCA_KIND) != "htb" || TC_H_MAJ(header.tcm_handle) != kQdiscHandle ||
                         minor < kFirstMinor || !parameters || parameters->rate.rate == 0) {
                       return;
                     }
                     ClockClass found{.index = minor - kFirstMinor,
                                      .period_ns = kChargedBytes * kNanosPerSecond / parameters->rate.rate};
                     // The kernel's copy of tc_stats is four bytes shorter than a compiler's struct with its
                     // padding.
                     if (const auto stats = attributes.Find(TCA_STATS);
                         stats && stats->size() >= offsetof(tc_stats, backlog)) {
                       tc_stats counted{};
                       std::copy_n(stats->begin(), std::min(stats->size(), sizeof(counted)),
                                   reinterpret_cast<uint8_t*>(&counted));
                       found.packets = counted.packets;
                       found.waiting = counted.qlen;
                       found.dropped = counted.drops;
                     }
                     classes.push_back(found);
                   });
  if (!status.ok()) return status;
  if (classes.empty())
    return absl::NotFoundError(absl::StrCat("interface number ", ifindex, " has no clock qdisc"));
  std::sort(classes.begin(), classes.end(),
            [](const ClockClass& a, const ClockClass& b) { return a.index < b.index; });
  return classes;
}

}  // namespace hedgerow::net
