// SPDX-License-Identifier: Apache-2.0
//
// The table of commands and what they share; see the header.

#include <sys/utsname.h>

#include "absl/strings/str_cat.h"
#include "bpf/abi/base_abi.h"
#include "config/json.h"
#include "operate/version.h"
#include "proxy/api/report.pb.h"
#include "proxy/cli/command.h"
#include "config/format.h"
#include "proxy/config/load.h"

namespace hedgerow::cli {
namespace {

constexpr char kDefaultSocket[] = "/run/hedgerow/admin.sock";

// With a command, main.cc has become hedgerow-node.
int RunCluster(const Call& call) { return call.UsageError("cluster wants a command of hedgerow-node"); }

}  // namespace

const operate::Program& TheProgram() {
  static const auto* program = new operate::Program{
      "hedgerow",
      {
          {"validate", "--config FILE", "check a configuration; touches nothing", {"config"}, RunValidate},
          {"plan",
           "--config FILE",
           "what `up` would make on this machine, or `reload` change of what runs; makes nothing",
           {"config"},
           RunPlan},
          {"up",
           "--config FILE [--log FILE]",
           "start the daemon and wait until it serves",
           {"config", "log"},
           RunUp},
          {"status", "", "how the services are doing", {"socket", "config"}, RunStatus},
          {"leader",
           "show [SERVICE] | set SERVICE BACKEND | unset SERVICE",
           "who leads; pin a leader, or give the choice back",
           {"socket", "config"},
           RunLeader},
          {"bypass",
           "SERVICE on|off",
           "on: no hedging, traffic flows to the leader",
           {"socket", "config"},
           RunBypass},
          {"dry-run",
           "SERVICE on|off",
           "on: what would be hedged is counted, with the budget played, and nothing is sent twice",
           {"socket", "config"},
           RunDryRun},
          {"drain",
           "BACKEND [SERVICE]",
           "give it no new requests and no hedges while anybody else is there",
           {"socket", "config"},
           RunDrain},
          {"undrain", "BACKEND [SERVICE]", "undo that", {"socket", "config"}, RunUndrain},
          {"reload",
           "[--dry-run|--preview]",
           "go over to what the configuration file says now, or say what that would change",
           {"socket", "config"},
           RunReload,
           {"dry-run", "preview"}},
          {"cluster",
           "COMMAND [OPTIONS]",
           "a command of hedgerow-node, which answers for itself: status, snapshot, transfer, ...",
           {},
           RunCluster},
          {"down", "", "remove everything and end the daemon", {"socket", "config"}, RunDown},
          {"clean",
           "[--instance NAME]",
           "remove what a crashed daemon left, without a daemon",
           {"instance", "config", "socket"},
           RunClean},
          {"top",
           "[SERVICE...] [--once] [--no-program-times]",
           "what happens now: per service, backend and kernel program, once a second; q ends it",
           {"socket", "config"},
           RunTop,
           {"once", "no-program-times"}},
          {"trace",
           "[--service S] [--backend B] [--client ADDRESS[/BITS]] [--port N] [--key HEX] [--hedged]\n"
           "       [--slower-than DURATION] [--rate N] [--count N] [--for DURATION] [--follow]",
           "single requests on their way through the kernel",
           {"socket", "config", "service", "backend", "client", "port", "key", "slower-than", "rate", "count",
            "for"},
           RunTrace,
           {"hedged", "follow"}},
          {"doctor", "[--config FILE]", "what this machine lacks, and why", {"config"}, RunDoctor},
          {"version", "", "versions", {}, RunVersion},
          {"help", "[COMMAND]", "this text", {}, operate::RunHelp},
      },
      "Every command takes --json. Those that ask the daemon take --socket PATH (default\n"
      "/run/hedgerow/admin.sock) or --config FILE, which names it.\n"
      "Exit codes: 0 done, 1 failure, 2 usage or configuration error, 3 the daemon is not running,\n"
      "4 a capability is missing.\n"};
  return *program;
}

int FailOnALine(const Call& call, const absl::Status& status) {
  if (!call.arguments.json()) return call.Fail(status);
  operate::v1::Failure failure;
  failure.set_error(std::string(status.message()));
  failure.set_exit_code(operate::ExitCodeOf(status));
  call.out << ToJsonLine(failure);
  return failure.exit_code();
}

absl::StatusOr<v1::Config> RequireConfig(const Arguments& arguments) {
  const std::string path = arguments.Get("config");
  if (path.empty()) return absl::InvalidArgumentError("hedgerow: --config FILE is missing");
  return config::LoadFile(path);
}

absl::StatusOr<std::string> SocketPath(const Arguments& arguments) {
  if (arguments.Has("socket")) return arguments.Get("socket");
  if (!arguments.Has("config")) return kDefaultSocket;
  const absl::StatusOr<v1::Config> config = RequireConfig(arguments);
  if (!config.ok()) return config.status();
  return config->admin().socket();
}

absl::StatusOr<std::string> InstanceName(const Arguments& arguments) {
  if (arguments.Has("instance")) {
    const auto name = config::Canonical(config::FORMAT_INSTANCE, arguments.Get("instance"));
    if (name.has_value()) return *name;
    return absl::InvalidArgumentError(absl::StrCat("hedgerow: --instance: got \"", arguments.Get("instance"),
                                                   "\", expected 1 to 15 of the characters a-z, 0-9 and -"));
  }
  if (!arguments.Has("config")) return "default";
  const absl::StatusOr<v1::Config> config = RequireConfig(arguments);
  if (!config.ok()) return config.status();
  return config->instance();
}

int RunVersion(const Call& call) {
  utsname kernel{};
  uname(&kernel);
  v1::VersionReport report;
  report.set_version(operate::kVersion);
  report.set_kernel(kernel.release);
  report.set_abi_version(HR_ABI_VERSION);
  return call.Print(report,
                    absl::StrCat("hedgerow ", operate::kVersion, " (map layout ", HR_ABI_VERSION, ")\n"));
}

}  // namespace hedgerow::cli
