// SPDX-License-Identifier: Apache-2.0
//
// A proxy's clock and delay line: which queueing disciplines are tried, and
// what the kernel programs are told of the one that was taken. Part of
// ProxyInstance; see proxy_instance.h.

#include "absl/strings/str_cat.h"
#include "proxy/daemon/delay_measurement.h"
#include "proxy/daemon/log.h"
#include "proxy/daemon/proxy_instance.h"
#include "proxy/daemon/proxy_instance_parts.h"

namespace hedgerow {
namespace {

constexpr int kDelayMeasurements = 3;

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

DataPlaneSpec ProxyInstance::Spec() const {
  DataPlaneSpec spec = MakeSpec(config_, topology_, links_, record_->data().roster(), line_.delay_ns);
  spec.clock_kind = AbiOf(clock_.kind);
  if (has_delay_line()) spec.engine = AbiOf(line_.kind);
  return spec;
}

}  // namespace hedgerow
