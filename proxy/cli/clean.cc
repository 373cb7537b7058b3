// SPDX-License-Identifier: Apache-2.0
//
// `hedgerow clean`: removes what a crashed daemon left behind, found by the
// marks it put on everything. Refused while the instance's daemon lives.

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proxy/api/report.pb.h"
#include "proxy/cli/command.h"
#include "proxy/daemon/instance_lock.h"
#include "proxy/net/bpffs.h"
#include "proxy/net/capabilities.h"
#include "proxy/net/clean.h"

namespace hedgerow::cli {

int RunClean(const Arguments& arguments) {
  if (arguments.words.size() > 1) return UsageError(arguments, "clean takes no words");
  const absl::StatusOr<std::string> instance = InstanceName(arguments);
  if (!instance.ok()) return Fail(arguments, instance.status());
  const absl::Status privileged = net::RequireCapabilities(net::kCapabilitiesAlways);
  if (!privileged.ok()) return Fail(arguments, privileged);
  const absl::StatusOr<InstanceLock> lock = InstanceLock::Acquire(kRunFolder, *instance);
  if (!lock.ok()) return Fail(arguments, lock.status());
  const net::CleanReport cleaned = net::Clean(*instance, net::kDefaultBpffs);
  v1::CleanReport report;
  report.set_instance(*instance);
  std::string text;
  for (const std::string& line : cleaned.removed) {
    report.add_removed(line);
    absl::StrAppend(&text, "removed ", line, "\n");
  }
  for (const std::string& line : cleaned.failures) report.add_problems(line);
  if (!cleaned.failures.empty()) {
    if (!arguments.json()) {
      return Fail(arguments, kExitFailure, absl::StrCat(text, absl::StrJoin(cleaned.failures, "\n")));
    }
    return Print(arguments, report, "", kExitFailure);
  }
  if (text.empty()) text = absl::StrCat("nothing of instance ", *instance, " is left\n");
  return Print(arguments, report, text);
}

}  // namespace hedgerow::cli
