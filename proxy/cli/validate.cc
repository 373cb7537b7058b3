// SPDX-License-Identifier: Apache-2.0
//
// `hedgerow validate`: is this file a sound configuration? Needs no privilege
// and asks nothing of the machine.

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proxy/api/report.pb.h"
#include "proxy/cli/command.h"
#include "proxy/config/built_in_profiles.h"
#include "proxy/config/load.h"

namespace hedgerow::cli {
namespace {

constexpr uint32_t kTftpPort = 69;

bool IsOnTftpPort(const v1::Service& service) {
  const auto is_tftp = [](const v1::Backend& backend) { return backend.port() == kTftpPort; };
  return service.port() == kTftpPort || absl::c_any_of(service.backends(), is_tftp);
}

}  // namespace

int RunValidate(const Call& call) {
  const std::string path = call.arguments.Get("config");
  if (path.empty()) return call.UsageError("--config FILE is missing");
  config::Diagnostics errors(path);
  std::vector<std::string> notes;
  const v1::Config config = config::LoadFile(path, errors, config::KeyFiles::kLeave, &notes);
  v1::ValidateReport report;
  report.set_ok(errors.empty());
  report.set_file(path);
  *report.mutable_errors() = operate::ConfigErrors(errors);
  if (!errors.empty()) {
    if (!call.arguments.json()) return call.Fail(kExitUsage, absl::StrJoin(errors.Lines(), "\n"));
    return call.Print(report, "", kExitUsage);
  }
  report.set_services(config.services_size());
  for (const v1::Service& service : config.services()) report.set_backends(report.backends() + service.backends_size());
  std::string text =
      absl::StrCat(path, ": sound (", report.services(), " services, ", report.backends(), " backends)\n");
  for (const v1::Service& service : config.services()) {
    const v1::Profile* profile = config::EffectiveProfile(service);
    for (int i = 0; profile != nullptr && i < profile->must_share_size(); ++i)
      report.add_notes(absl::StrCat("service ", service.name(), ": its backends must share: ", profile->must_share(i)));
    if (profile != nullptr && profile->one_way() && service.profile() == config::kOwnProfile)
      report.add_notes(absl::StrCat("service ", service.name(), ": one_way, each datagram is forwarded once"));
    if (IsOnTftpPort(service))
      report.add_notes(absl::StrCat("service ", service.name(),
                                    ": port 69 is TFTP's, whose server answers from a new port, ",
                                    "which is no backend's: transfers fail. Give clients the server's own address"));
    if (service.backends_size() == 1)
      report.add_notes(absl::StrCat("service ", service.name(), ": one backend, so no request is sent to another"));
  }
  for (const std::string& note : notes) report.add_notes(note);
  for (const std::string& note : report.notes()) absl::StrAppend(&text, "  ", note, "\n");
  const std::vector<std::string> closed = ClosedToTheUnit(call.arguments, config);
  for (const std::string& why : closed) {
    report.add_notes(why);
    absl::StrAppend(&text, "PROBLEM: ", why, "\n");
  }
  return call.Print(report, text, closed.empty() ? kExitOk : kExitFailure);
}

}  // namespace hedgerow::cli
