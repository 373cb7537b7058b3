// SPDX-License-Identifier: Apache-2.0
//
// hedgerow-node's table of commands and the commands themselves; see the header.

#include "cluster/node/commands.h"

#include <algorithm>
#include <iostream>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cluster/api/node.pb.h"
#include "cluster/node/admin_client.h"
#include "cluster/node/config.h"
#include "cluster/node/status_message.h"
#include "cluster/node/status_text.h"
#include "cluster/wire/announce.h"
#include "config/diagnostics.h"
#include "config/json.h"
#include "config/suggest.h"

namespace hedgerow::node {
namespace {

constexpr absl::Duration kTransferPoll = absl::Milliseconds(20);

// Returns `exit_code`.
int Fail(const Arguments& arguments, const Streams& streams, int exit_code, const std::string& text) {
  if (arguments.Has("json")) {
    v1::Failure failure;
    failure.set_error(text);
    failure.set_exit_code(exit_code);
    streams.out << ToJson(failure);
  } else {
    streams.err << text << "\n";
  }
  return exit_code;
}

int Fail(const Arguments& arguments, const Streams& streams, const absl::Status& status) {
  return Fail(arguments, streams, ExitCodeOf(status), std::string(status.message()));
}

int UsageError(const Arguments& arguments, const Streams& streams, const std::string& text) {
  std::string usage = "`hedgerow-node help` lists the commands";
  for (const Command& command : Commands()) {
    if (!arguments.words.empty() && command.name == arguments.words[0]) {
      usage = absl::StrCat("usage: hedgerow-node ", command.name, " ", command.usage);
    }
  }
  return Fail(arguments, streams, kExitUsage, absl::StrCat("hedgerow-node: ", text, "\n", usage));
}

int Print(const Arguments& arguments, const Streams& streams, const google::protobuf::Message& message,
          const std::string& text, int exit_code = kExitOk) {
  streams.out << (arguments.Has("json") ? ToJson(message) : text);
  return exit_code;
}

absl::StatusOr<NodeConfig> RequireConfig(const Arguments& arguments) {
  if (arguments.Get("config").empty())
    return absl::InvalidArgumentError("hedgerow-node: --config FILE is missing");
  return LoadNodeConfig(arguments.Get("config"));
}

// --socket, else the configuration's, else the default.
absl::StatusOr<std::unique_ptr<AdminClient>> Connect(const Arguments& arguments) {
  if (arguments.Has("socket")) return AdminClient::Connect(arguments.Get("socket"));
  if (!arguments.Has("config")) return AdminClient::Connect(NodeConfig().admin_socket);
  const absl::StatusOr<NodeConfig> config = RequireConfig(arguments);
  if (!config.ok()) return config.status();
  return AdminClient::Connect(config->admin_socket);
}

// An option that the command does not know would otherwise be silently without effect.
const std::string* ForeignOption(const Command& command, const Arguments& arguments) {
  for (const auto& [name, value] : arguments.options) {
    const bool known = name == "json" || name == "help" ||
                       std::find(command.options.begin(), command.options.end(), name) != command.options.end();
    if (!known) return &name;
  }
  return nullptr;
}

std::string Overview() {
  std::string text = "usage: hedgerow-node COMMAND [OPTIONS]\n\n";
  for (const Command& command : Commands()) {
    absl::StrAppendFormat(&text, "  %-10s %s\n", command.name, command.summary);
  }
  text +=
      "\nEvery command but run takes --json. Those that ask the node take --socket PATH (default\n"
      "/run/hedgerow-node/admin.sock) or --config FILE, which names it.\n"
      "Exit codes: 0 done, 1 failure, 2 usage or configuration error, 3 the node is not running,\n"
      "4 this user may not open the socket.\n";
  return text;
}

}  // namespace

const std::vector<Command>& Commands() {
  static const auto* commands = new std::vector<Command>{
      {"run",
       "--config FILE",
       "serve in the foreground until SIGTERM or SIGINT; the log goes to stderr",
       {"config"},
       nullptr},
      {"validate", "--config FILE", "check a configuration; touches nothing", {"config"}, RunValidate},
      {"status", "", "how the node is doing", {"socket", "config"}, RunStatus},
      {"transfer",
       "[--to ID]",
       "hand leadership to a member (the most advanced one unless told), and wait until it leads",
       {"socket", "config", "to"},
       RunTransfer},
      {"proxy-key",
       "--config FILE NAME",
       "print the key that the proxy NAME is configured with",
       {"config"},
       RunProxyKey},
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
      return kExitNotAllowed;
    default:
      return kExitFailure;
  }
}

int RunCommand(const std::vector<std::string>& argv) { return RunCommand(argv, {std::cout, std::cerr}); }

int RunCommand(const std::vector<std::string>& argv, const Streams& streams) {
  absl::StatusOr<Arguments> parsed = ParseArguments(argv);
  if (!parsed.ok()) {
    Arguments asked;
    if (std::find(argv.begin(), argv.end(), "--json") != argv.end()) asked.options["json"] = "";
    return UsageError(asked, streams, std::string(parsed.status().message()));
  }
  Arguments& arguments = *parsed;
  if (arguments.words.empty()) {
    if (arguments.Has("version")) return RunVersion(arguments, streams);
    if (arguments.Has("help")) return RunHelp(arguments, streams);
    return UsageError(arguments, streams, "which command?");
  }
  std::vector<std::string> names;
  for (const Command& command : Commands()) {
    names.push_back(command.name);
    if (command.name != arguments.words[0]) continue;
    if (arguments.Has("help")) {
      arguments.words = {"help", command.name};
      return RunHelp(arguments, streams);
    }
    if (const std::string* foreign = ForeignOption(command, arguments); foreign != nullptr) {
      return UsageError(arguments, streams, absl::StrCat(command.name, " takes no --", *foreign));
    }
    if (command.run != nullptr) return command.run(arguments, streams);
    return UsageError(arguments, streams, "run wants --config FILE and nothing else");
  }
  const std::string guess = config::Suggest(arguments.words[0], names);
  return UsageError(arguments, streams,
                    absl::StrCat("no command ", arguments.words[0],
                                 guess.empty() ? "" : absl::StrCat(", did you mean ", guess, "?")));
}

int RunStatus(const Arguments& arguments, const Streams& streams) {
  if (arguments.words.size() > 1) return UsageError(arguments, streams, "status takes no words");
  const auto client = Connect(arguments);
  if (!client.ok()) return Fail(arguments, streams, client.status());
  const auto status = (*client)->GetStatus();
  if (!status.ok()) return Fail(arguments, streams, status.status());
  return Print(arguments, streams, *status, StatusText(*status));
}

int RunTransfer(const Arguments& arguments, const Streams& streams) {
  return RunTransfer(arguments, streams, kTransferPatience);
}

int RunTransfer(const Arguments& arguments, const Streams& streams, absl::Duration patience) {
  uint64_t target = 0;
  if (arguments.words.size() > 1)
    return UsageError(arguments, streams, "transfer takes no words; --to names a member");
  if (arguments.Has("to") && (!absl::SimpleAtoi(arguments.Get("to"), &target) || target == 0)) {
    return UsageError(arguments, streams,
                      absl::StrCat("--to: got \"", arguments.Get("to"), "\", expected the id of a member"));
  }
  const auto client = Connect(arguments);
  if (!client.ok()) return Fail(arguments, streams, client.status());
  const auto before = (*client)->GetStatus();
  if (!before.ok()) return Fail(arguments, streams, before.status());
  const absl::Status begun = (*client)->Transfer(raft::NodeId(target));
  if (!begun.ok()) return Fail(arguments, streams, begun);
  // The node only begins; a target that is down or far behind may never take over.
  const absl::Time until = absl::Now() + patience;
  while (absl::Now() < until) {
    const auto status = (*client)->GetStatus();
    if (!status.ok()) return Fail(arguments, streams, status.status());
    if (status->leader() != 0 && status->leader() != before->node()) {
      v1::TransferReport report;
      report.set_from(before->node());
      report.set_leader(status->leader());
      report.set_term(status->term());
      return Print(arguments, streams, report,
                   absl::StrFormat("node %d leads in term %d\n", report.leader(), report.term()));
    }
    absl::SleepFor(kTransferPoll);
  }
  return Fail(arguments, streams, kExitFailure,
              absl::StrFormat(
                  "nobody has taken over from node %d within %s; `hedgerow-node status` shows whom it hears",
                  before->node(), absl::FormatDuration(patience)));
}

int RunProxyKey(const Arguments& arguments, const Streams& streams) {
  if (arguments.words.size() != 2)
    return UsageError(arguments, streams, "proxy-key wants the name of one proxy");
  const absl::StatusOr<NodeConfig> config = RequireConfig(arguments);
  if (!config.ok()) return Fail(arguments, streams, config.status());
  const std::string& name = arguments.words[1];
  std::vector<std::string> names;
  for (const ProxyConfig& proxy : config->proxies) names.push_back(proxy.name);
  // A key for a name that no node announces to would never fit anything.
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    const std::string guess = config::Suggest(name, names);
    return Fail(arguments, streams, kExitFailure,
                absl::StrCat("no proxy ", config::Quote(name), " in ", arguments.Get("config"),
                             guess.empty() ? "" : absl::StrCat(", did you mean \"", guess, "\"?"),
                             names.empty() ? " (proxies is empty)"
                                           : absl::StrCat(" (there are: ", absl::StrJoin(names, ", "), ")")));
  }
  v1::ProxyKeyReport report;
  report.set_proxy(name);
  report.set_key(wire::FormatKey(wire::DeriveProxyKey(*config->announce_key, name)));
  return Print(arguments, streams, report, absl::StrCat(report.key(), "\n"));
}

int RunValidate(const Arguments& arguments, const Streams& streams) {
  if (arguments.words.size() > 1) return UsageError(arguments, streams, "validate takes no words");
  const std::string path = arguments.Get("config");
  if (path.empty()) return UsageError(arguments, streams, "--config FILE is missing");
  config::Diagnostics errors(path);
  const NodeConfig config = LoadNodeConfig(path, errors);
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
    if (arguments.Has("json")) return Print(arguments, streams, report, "", kExitUsage);
    return Fail(arguments, streams, kExitUsage, absl::StrJoin(errors.Lines(), "\n"));
  }
  report.set_node(config.self.value());
  report.set_members(static_cast<uint32_t>(config.members.size()));
  report.set_proxies(static_cast<uint32_t>(config.proxies.size()));
  return Print(arguments, streams, report,
               absl::StrCat(path, ": sound (node ", report.node(), " of ", report.members(), ", ",
                            report.proxies(), report.proxies() == 1 ? " proxy)\n" : " proxies)\n"));
}

int RunVersion(const Arguments& arguments, const Streams& streams) {
  v1::VersionReport report;
  report.set_version(std::string(Version()));
  return Print(arguments, streams, report, absl::StrCat("hedgerow-node ", Version(), "\n"));
}

int RunHelp(const Arguments& arguments, const Streams& streams) {
  const std::string topic = arguments.words.size() > 1 ? arguments.words[1] : "";
  if (topic.empty()) {
    streams.out << Overview();
    return kExitOk;
  }
  for (const Command& command : Commands()) {
    if (command.name != topic) continue;
    streams.out << "usage: hedgerow-node " << command.name << " " << command.usage << "\n\n"
                << command.summary << "\n";
    return kExitOk;
  }
  return UsageError(arguments, streams, absl::StrCat("no command ", topic));
}

}  // namespace hedgerow::node
