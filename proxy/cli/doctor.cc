// SPDX-License-Identifier: Apache-2.0
//
// `hedgerow doctor`: what this machine, this user and this configuration lack.
// It tries things in a network namespace of its own and changes nothing.

#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "config/scalar.h"
#include "proxy/api/report.pb.h"
#include "proxy/cli/command.h"
#include "proxy/start/delay_measurement.h"
#include "proxy/start/instance_lock.h"
#include "proxy/start/topology.h"
#include "net/bpffs.h"
#include "net/capabilities.h"
#include "net/clean.h"
#include "net/kernel_probe.h"

namespace hedgerow::cli {
namespace {

class Doctor {
 public:
  void Capabilities() {
    const auto missing = net::MissingCapabilities(net::kCapabilitiesAlways);
    if (!missing.ok()) return Add("capabilities", "warning", std::string(missing.status().message()));
    if (missing->empty()) return Add("capabilities", "ok", "everything the daemon needs");
    Add("capabilities", "problem", absl::StrCat("missing: ", absl::StrJoin(*missing, ", ")));
  }

  void Kernel() {
    for (const net::ProbeResult& probe : net::ProbeKernel()) {
      const bool bad = probe.found == net::Found::kNo && probe.required;
      const bool unsure = probe.found == net::Found::kUnknown;
      Add(absl::StrCat("kernel ", probe.name),
          bad      ? "problem"
          : unsure ? "warning"
                   : "ok",
          absl::StrCat(std::string(net::ToString(probe.found)), probe.detail.empty() ? "" : ", ", probe.detail,
                       probe.offers.empty() ? "" : absl::StrCat(" (", probe.offers, ")")));
    }
  }

  // The delays that a queueing discipline really gave, or why it gave none.
  void Measured(absl::string_view check, const absl::StatusOr<DelayMeasurement>& measured) {
    if (!measured.ok()) {
      // What the kernel lacks is no fault; what it has and does not do is worth a look.
      const bool lacking = absl::IsNotFound(measured.status());
      return Add(check, lacking ? "ok" : "warning", std::string(measured.status().message()));
    }
    std::vector<std::string> periods;
    for (const DelayMeasurement::Period& period : measured->periods) {
      periods.push_back(absl::StrCat(config::FormatDurationNs(static_cast<int64_t>(period.nominal_ns)),
                                     " took ",
                                     config::RoundedDurationNs(static_cast<int64_t>(period.median_ns))));
    }
    Add(check, "ok", absl::StrJoin(periods, ", "));
  }

  // What each kind of clock really does here. One that works is enough.
  void Clocks() {
    bool any = false, unsure = false;
    for (const net::ClockKind kind : {net::ClockKind::kFq, net::ClockKind::kHtb}) {
      const absl::StatusOr<DelayMeasurement> measured = TryClockKind(kind);
      any |= measured.ok();
      unsure |= absl::IsPermissionDenied(measured.status());
      Measured(absl::StrCat("clock ", std::string(net::ToString(kind))), measured);
    }
    if (!any && !unsure) Add("clock", "problem", "no kind of clock works on this kernel");
  }

  // Instances that left something behind and whose daemon is gone.
  void Leftovers() {
    const auto instances = net::FindInstances(net::kDefaultBpffs);
    if (!instances.ok()) return Add("leftovers", "warning", std::string(instances.status().message()));
    bool any = false;
    for (const std::string& instance : *instances) {
      struct stat info {};
      // A live daemon has its lock file; taking the lock to be sure would get in a starting daemon's way.
      if (stat(absl::StrCat(kRunFolder, "/", instance, ".lock").c_str(), &info) == 0) continue;
      any = true;
      Add("leftovers", "warning",
          absl::StrCat("instance ", instance, " left something behind; `hedgerow clean --instance ", instance,
                       "`"));
    }
    if (!any) Add("leftovers", "ok", "none");
  }

  void Configuration(const v1::Config& config) {
    const Topology topology = Resolve(config, KernelNetworkView());
    for (const std::string& problem : topology.problems) Add("configuration", "problem", problem);
    std::vector<std::string> uplinks;
    for (const auto& [ifindex, link] : topology.uplinks) {
      uplinks.push_back(absl::StrCat(link.name, " (mtu ", link.mtu_bytes, ")"));
      if (!link.up()) Add("configuration", "warning", absl::StrCat("uplink ", link.name, " is down"));
    }
    if (topology.problems.empty()) {
      Add("configuration", "ok", absl::StrCat("every backend is reached, by ", absl::StrJoin(uplinks, ", ")));
    }
  }

  v1::DoctorReport Take() {
    report_.set_ok(true);
    for (const v1::Finding& finding : report_.findings()) {
      if (finding.result() == "problem") report_.set_ok(false);
    }
    return std::move(report_);
  }

 private:
  void Add(absl::string_view check, absl::string_view result, absl::string_view detail) {
    v1::Finding& finding = *report_.add_findings();
    finding.set_check(std::string(check));
    finding.set_result(std::string(result));
    finding.set_detail(std::string(detail));
  }

  v1::DoctorReport report_;
};

}  // namespace

int RunDoctor(const Call& call) {
  if (call.arguments.words.size() > 1) return call.UsageError("doctor takes no words");
  Doctor doctor;
  if (call.arguments.Has("config")) {
    const absl::StatusOr<v1::Config> config = RequireConfig(call.arguments);
    if (!config.ok()) return call.Fail(config.status());
    doctor.Configuration(*config);
  }
  doctor.Capabilities();
  doctor.Kernel();
  doctor.Clocks();
  doctor.Leftovers();
  const v1::DoctorReport report = doctor.Take();
  std::string text;
  for (const v1::Finding& finding : report.findings()) {
    absl::StrAppendFormat(&text, "%-8s %-16s %s\n", finding.result(), finding.check(), finding.detail());
  }
  return call.Print(report, text, report.ok() ? kExitOk : kExitFailure);
}

}  // namespace hedgerow::cli
