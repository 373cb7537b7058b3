// SPDX-License-Identifier: Apache-2.0
//
// A proxy's clock: which queueing disciplines are tried, and what the kernel programs learn of the chosen one.
// Part of ProxyInstance; see proxy_instance.h.

#include "absl/strings/str_cat.h"
#include "proxy/start/delay_measurement.h"
#include "operate/log.h"
#include "proxy/instance/proxy_instance.h"
#include "proxy/instance/proxy_instance_parts.h"

namespace hedgerow {
namespace {

constexpr int kDelayMeasurements = 3;

// What to try, best first: fq is exact, htb has fixed periods and is on every kernel.
std::vector<net::ClockKind> ClockKindsOf(v1::ClockKind wanted) {
  if (wanted == v1::CLOCK_KIND_HTB) return {net::ClockKind::kHtb};
  if (wanted == v1::CLOCK_KIND_FQ) return {net::ClockKind::kFq};
  return {net::ClockKind::kFq, net::ClockKind::kHtb};
}

}  // namespace

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
  return Annotate(status,
                  absl::StrCat("the clock's queueing discipline (", std::string(net::ToString(clock_.kind)), ")"));
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
    undo_.Push("removing the clock's queueing discipline", [ifindex] { return net::RemoveClockQdisc(ifindex); });
    return status;
  }
  net::RemoveClockQdisc(ifindex).IgnoreError();  // its link goes too
  return status;
}

DataPlaneSpec ProxyInstance::Spec() const {
  DataPlaneSpec spec = MakeSpec(config_, topology_, links_, record_->data().roster());
  spec.clock_kind = clock_.kind == net::ClockKind::kFq ? HR_CLOCK_FQ : HR_CLOCK_HTB;
  return spec;
}

}  // namespace hedgerow
