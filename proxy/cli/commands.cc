// SPDX-License-Identifier: Apache-2.0
//
// The table of commands and what they share; see command.h.

#include <sys/utsname.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bpf/abi/base_abi.h"
#include "config/json.h"
#include "proxy/admin/version.h"
#include "proxy/api/report.pb.h"
#include "proxy/cli/command.h"
#include "proxy/config/format.h"
#include "proxy/config/load.h"

namespace hedgerow::cli {
namespace {

constexpr char kDefaultSocket[] = "/run/hedgerow/admin.sock";

}  // namespace

const std::vector<Command>& Commands() {
  static const auto* commands = new std::vector<Command>{
      {"validate", "--config FILE", "check a configuration; touches nothing", {"config"}, RunValidate},
      {"plan", "--config FILE", "what `up` would make on this machine; makes nothing", {"config"}, RunPlan},
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
      {"down", "", "remove everything and end the daemon", {"socket", "config"}, RunDown},
      {"clean",
       "[--instance NAME]",
       "remove what a crashed daemon left, without a daemon",
       {"instance", "config", "socket"},
       RunClean},
      {"doctor", "[--config FILE]", "what this machine lacks, and why", {"config"}, RunDoctor},
      {"version", "", "versions", {}, RunVersion},
      {"help", "[COMMAND]", "this text", {}, RunHelp},
  };
  return *commands;
}

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
      return kExitUsage;
    case absl::StatusCode::kUnavailable:
      return kExitNotRunning;
    case absl::StatusCode::kPermissionDenied:
      return kExitMissingCapability;
    default:
      return kExitFailure;
  }
}

int Fail(const Arguments& arguments, int exit_code, const std::string& text) {
  if (arguments.json()) {
    v1::Failure failure;
    failure.set_error(text);
    failure.set_exit_code(exit_code);
    fputs(ToJson(failure).c_str(), stdout);
  } else {
    fprintf(stderr, "%s\n", text.c_str());
  }
  return exit_code;
}

int Fail(const Arguments& arguments, const absl::Status& status) {
  return Fail(arguments, ExitCodeOf(status), std::string(status.message()));
}

int UsageError(const Arguments& arguments, const std::string& text) {
  std::string usage;
  for (const Command& command : Commands()) {
    if (!arguments.words.empty() && command.name == arguments.words[0]) {
      usage = absl::StrCat("usage: hedgerow ", command.name, " ", command.usage);
    }
  }
  if (usage.empty()) usage = "`hedgerow help` lists the commands";
  return Fail(arguments, kExitUsage, absl::StrCat("hedgerow: ", text, "\n", usage));
}

int Print(const Arguments& arguments, const google::protobuf::Message& message, const std::string& text,
          int exit_code) {
  fputs(arguments.json() ? ToJson(message).c_str() : text.c_str(), stdout);
  return exit_code;
}

absl::StatusOr<v1::Config> RequireConfig(const Arguments& arguments) {
  const std::string path = arguments.Get("config");
  if (path.empty()) return absl::InvalidArgumentError("hedgerow: --config FILE is missing");
  return config::LoadFile(path);
}

absl::StatusOr<std::string> SocketPath(const Arguments& arguments) {
  if (arguments.options.contains("socket")) return arguments.Get("socket");
  if (!arguments.options.contains("config")) return kDefaultSocket;
  const absl::StatusOr<v1::Config> config = RequireConfig(arguments);
  if (!config.ok()) return config.status();
  return config->admin().socket();
}

absl::StatusOr<std::string> InstanceName(const Arguments& arguments) {
  if (arguments.options.contains("instance")) {
    const auto name = config::Canonical(v1::FORMAT_INSTANCE, arguments.Get("instance"));
    if (name.has_value()) return *name;
    return absl::InvalidArgumentError(absl::StrCat("hedgerow: --instance: got \"", arguments.Get("instance"),
                                                   "\", expected 1 to 15 of the characters a-z, 0-9 and -"));
  }
  if (!arguments.options.contains("config")) return "default";
  const absl::StatusOr<v1::Config> config = RequireConfig(arguments);
  if (!config.ok()) return config.status();
  return config->instance();
}

int RunVersion(const Arguments& arguments) {
  utsname kernel{};
  uname(&kernel);
  v1::VersionReport report;
  report.set_version(kVersion);
  report.set_kernel(kernel.release);
  report.set_abi_version(HR_ABI_VERSION);
  return Print(arguments, report, absl::StrCat("hedgerow ", kVersion, " (map layout ", HR_ABI_VERSION, ")\n"));
}

int RunHelp(const Arguments& arguments) {
  const std::string topic = arguments.words.size() > 1 ? arguments.words[1] : "";
  std::string text;
  if (topic.empty()) {
    text = "usage: hedgerow COMMAND [OPTIONS]\n\n";
    for (const Command& command : Commands()) {
      absl::StrAppendFormat(&text, "  %-9s %s\n", command.name, command.summary);
    }
    text +=
        "\nEvery command takes --json. Those that ask the daemon take --socket PATH (default\n"
        "/run/hedgerow/admin.sock) or --config FILE, which names it.\n"
        "Exit codes: 0 done, 1 failure, 2 usage or configuration error, 3 the daemon is not running,\n"
        "4 a capability is missing.\n";
  } else {
    for (const Command& command : Commands()) {
      if (command.name == topic) {
        text =
            absl::StrCat("usage: hedgerow ", command.name, " ", command.usage, "\n\n", command.summary, "\n");
      }
    }
    if (text.empty()) return UsageError(arguments, absl::StrCat("no command ", topic));
  }
  fputs(text.c_str(), stdout);
  return kExitOk;
}

}  // namespace hedgerow::cli
