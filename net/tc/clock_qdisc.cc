// SPDX-License-Identifier: Apache-2.0
#include "net/tc/clock_qdisc.h"

#include "absl/strings/str_cat.h"
#include "net/netlink/netlink.h"
#include "net/tc/qdisc.h"

namespace hedgerow::net {
namespace {

constexpr uint32_t kDefaultMinor = 9;
constexpr uint32_t kFirstMinor = 10;
constexpr uint32_t kLimit_packets = 64;  // one circulates; spent nacks pass unheld

absl::Status CheckPeriod(uint64_t period_ns) {
  if (period_ns >= kClockPeriodMin_ns && period_ns <= kClockPeriodMax_ns) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a clock period of ", period_ns, " ns; expected ", kClockPeriodMin_ns, " to ", kClockPeriodMax_ns));
}

absl::Status InstallPeriods(netlink::Socket& socket, int ifindex, const ClockQdiscOptions& options) {
  absl::Status status = AddHtbClass(socket, ifindex, kDefaultMinor, options.default_period_ns);
  for (uint32_t i = 0; i < options.period_ns.size() && status.ok(); ++i) {
    status = AddHtbClass(socket, ifindex, kFirstMinor + i, options.period_ns[i]);
  }
  return status;
}

}  // namespace

absl::string_view ToString(ClockKind kind) { return kind == ClockKind::kFq ? "fq" : "htb"; }

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
  return status.ok() ? status : netlink::Undone(std::move(status), [&] { return RemoveClockQdisc(ifindex); });
}

absl::StatusOr<bool> HasClockQdisc(int ifindex, ClockKind kind) {
  const auto present = RootQdiscKind(ifindex);
  if (!present.ok()) return present.status();
  return *present == ToString(kind);
}

absl::Status RemoveClockQdisc(int ifindex) { return RemoveRootQdisc(ifindex); }

}  // namespace hedgerow::net
