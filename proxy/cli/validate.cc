// SPDX-License-Identifier: Apache-2.0
//
// `hedgerow validate`: is this file a sound configuration? Needs no privilege
// and asks nothing of the machine.

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proxy/api/report.pb.h"
#include "proxy/cli/command.h"
#include "proxy/config/load.h"

namespace hedgerow::cli {

int RunValidate(const Call& call) {
  if (call.arguments.words.size() > 1) return call.UsageError("validate takes no words");
  const std::string path = call.arguments.Get("config");
  if (path.empty()) return call.UsageError("--config FILE is missing");
  config::Diagnostics errors(path);
  const v1::Config config = config::LoadFile(path, errors);
  v1::ValidateReport report;
  report.set_ok(errors.empty());
  report.set_file(path);
  *report.mutable_errors() = operate::ConfigErrors(errors);
  if (!errors.empty()) {
    if (!call.arguments.json()) return call.Fail(kExitUsage, absl::StrJoin(errors.Lines(), "\n"));
    return call.Print(report, "", kExitUsage);
  }
  report.set_services(config.services_size());
  for (const v1::Service& service : config.services())
    report.set_backends(report.backends() + service.backends_size());
  return call.Print(report, absl::StrCat(path, ": sound (", report.services(), " services, ", report.backends(),
                                         " backends)\n"));
}

}  // namespace hedgerow::cli
