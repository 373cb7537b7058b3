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

int RunValidate(const Arguments& arguments) {
  if (arguments.words.size() > 1) return UsageError(arguments, "validate takes no words");
  const std::string path = arguments.Get("config");
  if (path.empty()) return UsageError(arguments, "--config FILE is missing");
  config::Diagnostics errors(path);
  const v1::Config config = config::LoadFile(path, errors);
  v1::ValidateReport report;
  report.set_ok(errors.empty());
  report.set_file(path);
  for (const config::Diagnostic& error : errors.InOrder()) {
    v1::ConfigError& out = *report.add_errors();
    out.set_line(error.mark.line);
    out.set_column(error.mark.column);
    out.set_path(error.path);
    out.set_message(error.message);
  }
  if (!errors.empty()) {
    if (!arguments.json()) return Fail(arguments, kExitUsage, absl::StrJoin(errors.Lines(), "\n"));
    return Print(arguments, report, "", kExitUsage);
  }
  report.set_services(config.services_size());
  for (const v1::Service& service : config.services())
    report.set_backends(report.backends() + service.backends_size());
  return Print(
      arguments, report,
      absl::StrCat(path, ": sound (", report.services(), " services, ", report.backends(), " backends)\n"));
}

}  // namespace hedgerow::cli
