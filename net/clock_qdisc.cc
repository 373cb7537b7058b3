// SPDX-License-Identifier: Apache-2.0
//
// The three kinds; the recipes are in qdisc.h.
#include "net/clock_qdisc.h"

#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "net/netlink.h"
#include "net/qdisc.h"

namespace hedgerow::net {
namespace {

constexpr uint32_t kDefaultMinor = 9;
constexpr uint32_t kFirstMinor = 10;
constexpr uint32_t kLimit_packets = 64;  // one circulates; spent nacks pass unheld

absl::Status CheckPeriod(uint64_t period_ns) {
  if (period_ns >= kClockPeriodMin_ns && period_ns <= kClockPeriodMax_ns) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a clock period of ", period_ns, " ns; expected ",
                                                 kClockPeriodMin_ns, " to ", kClockPeriodMax_ns));
}

absl::Status InstallPeriods(netlink::Socket& socket, int ifindex, const ClockQdiscOptions& options) {
  absl::Status status = AddHtbClass(socket, ifindex, kDefaultMinor, options.default_period_ns);
  for (uint32_t i = 0; i < options.period_ns.size() && status.ok(); ++i) {
    status = AddHtbClass(socket, ifindex, kFirstMinor + i, options.period_ns[i]);
  }
  return status;
}

}  // namespace

absl::string_view ToString(ClockKind kind) {
  return kind == ClockKind::kFq ? "fq" : "htb";
}

absl::Status InstallClockQdisc(int ifindex, const ClockQdiscOptions& options) {
  if (options.period_ns.empty() || options.period_ns.size() > kClockPeriodsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.period_ns.size(), " clock periods; expected 1 to ", kClockPeriodsMax));
  }
  for (const uint64_t period_ns : options.period_ns) {
    if (absl::Status status = CheckPeriod(period_ns); !status.ok()) return status;
  }
  auto socket = netlink::Socket::Open();
  if (!socket.ok()) return socket.status();
  if (options.kind == ClockKind::kFq) return AddFqRoot(*socket, ifindex, kLimit_packets);
  absl::Status status = AddHtbRoot(*socket, ifindex, kDefaultMinor);
  if (!status.ok()) return status;
  status = InstallPeriods(*socket, ifindex, options);
  if (!status.ok()) RemoveClockQdisc(ifindex).IgnoreError();
  return status;
}

absl::StatusOr<bool> HasClockQdisc(int ifindex, ClockKind kind) {
  const auto present = RootQdiscKind(ifindex);
  if (!present.ok()) return present.status();
  return *present == ToString(kind);
}

absl::Status RemoveClockQdisc(int ifindex) { return RemoveRootQdisc(ifindex); }

absl::StatusOr<std::vector<ClockClass>> ListClockClasses(int ifindex) {
  std::vector<ClockClass> classes;
  tcmsg header{};
  header.tcm_family = AF_UNSPEC;
  header.tcm_ifindex = ifindex;
  netlink::Request request(RTM_GETTCLASS, NLM_F_DUMP, header);
  const absl::Status status = netlink::Ask(
      request, absl::StrCat("list the clock's classes on interface number ", ifindex),
      [&](const netlink::Message& message) {
        const auto header = message.Header<tcmsg>();
        const auto attributes = message.AttributesAfter<tcmsg>();
        const uint32_t minor = TC_H_MIN(header.tcm_handle);
        const auto parameters = attributes.Nested(TCA_OPTIONS).Value<tc_htb_opt>(TCA_HTB_PARMS);
        if (attributes.String(TCA_KIND) != "htb" || TC_H_MAJ(header.tcm_handle) != kQdiscHandle ||
            minor < kFirstMinor || !parameters || parameters->rate.rate == 0) {
          return;
        }
        ClockClass found{.index = minor - kFirstMinor, .period_ns = PeriodOfHtbRate(parameters->rate.rate)};
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
