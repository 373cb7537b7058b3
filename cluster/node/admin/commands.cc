// SPDX-License-Identifier: Apache-2.0
//
// hedgerow-node's table of commands and the commands themselves; see the header.

#include "cluster/node/admin/commands.h"

#include <algorithm>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cluster/api/node.pb.h"
#include "cluster/node/admin/admin_client.h"
#include "cluster/node/config/config.h"
#include "cluster/node/host/deadline.h"
#include "cluster/node/status/status_message.h"
#include "cluster/node/status/status_text.h"
#include "cluster/wire/announce.h"
#include "config/diagnostics.h"
#include "config/suggest.h"
#include "operate/version.h"

namespace hedgerow::node {
namespace {

constexpr absl::Duration kTransferPoll = absl::Milliseconds(20);
constexpr absl::Duration kSnapshotPoll = absl::Milliseconds(50);

absl::StatusOr<NodeConfig> RequireConfig(const operate::Arguments& arguments) {
  if (arguments.Get("config").empty())
    return absl::InvalidArgumentError("hedgerow-node: --config FILE is missing");
  return LoadNodeConfig(arguments.Get("config"));
}

int RefuseToRun(const Call& call) { return call.UsageError("run wants --config FILE and nothing else"); }

int RefuseElsewhere(const Call& call) { return call.UsageError("this program has no such command"); }

}  // namespace

absl::StatusOr<std::unique_ptr<AdminClient>> ConnectToNode(const operate::Arguments& arguments) {
  if (arguments.Has("socket")) return AdminClient::Connect(arguments.Get("socket"));
  if (!arguments.Has("config")) return AdminClient::Connect(NodeConfig().admin_socket);
  const absl::StatusOr<NodeConfig> config = RequireConfig(arguments);
  if (!config.ok()) return config.status();
  return AdminClient::Connect(config->admin_socket);
}

const operate::Program& TheProgram() {
  static const auto* program = new operate::Program{
      "hedgerow-node",
      {
          {"run",
           "--config FILE",
           "serve in the foreground until SIGTERM or SIGINT; the log goes to stderr",
           {"config"},
           RefuseToRun},
          {"validate", "--config FILE", "check a configuration; touches nothing", {"config"}, RunValidate},
          {"status", "", "how the node is doing", {"socket", "config"}, RunStatus},
          {"transfer",
           "[--to ID]",
           "hand leadership to a member (the most advanced one unless told), and wait until it leads",
           {"socket", "config", "to"},
           RunTransfer},
          {"snapshot",
           "",
           "take a snapshot now, cut the log, and wait until that is done",
           {"socket", "config"},
           RunSnapshot},
          {"members",
           "[add ID PEER-ADDRESS | promote ID | remove ID | replace OLD NEW | rejoin LOST NEW | move ID "
           "PEER-ADDRESS]",
           "the cluster's members; or changes them, and waits until that is done (the leader does it)",
           {"socket", "config"},
           RunMembers},
          {"settings",
           "[set NAME=VALUE ...]",
           "the limits that hold on all nodes; or changes them, and waits until that is done (the leader does "
           "it)",
           {"socket", "config"},
           RunSettings},
          {"keys",
           "[reload | add cluster|announce --from FILE | switch cluster|announce | remove cluster|announce] [--force]",
           "which keys the members have; or changes this node's key files, and has it read them",
           {"socket", "config", "from"},
           RunKeys,
           {"force"}},
          {"purge",
           "--prefix PREFIX",
           "delete all keys that begin with it, in portions beside the cluster's other work (the leader does it)",
           {"socket", "config", "prefix"},
           RunPurge},
          {"backup",
           "--out FILE",
           "write everything that was applied by now to a file that a cluster can be recovered from",
           {"socket", "config", "out"},
           RunBackup},
          {"restore",
           "--config FILE --from BACKUP [--epoch NUMBER] [--other-members]",
           "make the log of a node that does not run, of a backup; on every member, of the same file, before "
           "any starts",
           {"config", "from", "epoch"},
           RefuseElsewhere,
           {"other-members"}},
          {"recover",
           "--config FILE [--out FILE --accept-data-loss [--yes]]",
           "what a node that does not run has left, and what would be lost; or a file of it to recover a "
           "cluster from",
           {"config", "out"},
           RefuseElsewhere,
           {"accept-data-loss", "yes"}},
          {"proxy-key",
           "--config FILE NAME",
           "print the key that the proxy NAME is configured with; both while the announce key is changed, as a key file",
           {"config"},
           RunProxyKey},
          {"version", "", "versions", {}, RunVersion},
          {"help", "[COMMAND]", "this text", {}, operate::RunHelp},
      },
      "Every command but run takes --json. Those that ask the node take --socket PATH (default\n"
      "/run/hedgerow-node/admin.sock) or --config FILE, which names it.\n"
      "Exit codes: 0 done, 1 failure, 2 usage or configuration error, 3 the node is not running,\n"
      "4 this user may not open the socket.\n"};
  return *program;
}

int RunStatus(const Call& call) {
  if (call.arguments.words.size() > 1) return call.UsageError("status takes no words");
  const auto client = ConnectToNode(call.arguments);
  if (!client.ok()) return call.Fail(client.status());
  const auto status = (*client)->GetStatus();
  if (!status.ok()) return call.Fail(status.status());
  return call.Print(*status, StatusText(*status));
}

int RunTransfer(const Call& call) { return RunTransfer(call, kTransferPatience); }

int RunTransfer(const Call& call, absl::Duration patience) {
  uint64_t target = 0;
  if (call.arguments.words.size() > 1) return call.UsageError("transfer takes no words; --to names a member");
  if (call.arguments.Has("to") && (!absl::SimpleAtoi(call.arguments.Get("to"), &target) || target == 0)) {
    return call.UsageError(
        absl::StrCat("--to: got \"", call.arguments.Get("to"), "\", expected the id of a member"));
  }
  const auto client = ConnectToNode(call.arguments);
  if (!client.ok()) return call.Fail(client.status());
  const auto before = (*client)->GetStatus();
  if (!before.ok()) return call.Fail(before.status());
  const absl::Status begun = (*client)->Transfer(raft::NodeId(target));
  if (!begun.ok()) return call.Fail(begun);
  // The node only begins; a target that is down or far behind may never take over.
  const Deadline deadline(patience);
  while (!deadline.passed()) {
    const auto status = (*client)->AwaitStatus(deadline);
    if (!status.ok()) return call.Fail(status.status());
    if (status->leader() != 0 && status->leader() != before->node()) {
      v1::TransferReport report;
      report.set_from(before->node());
      report.set_leader(status->leader());
      report.set_term(status->term());
      return call.Print(report, absl::StrFormat("node %d leads in term %d\n", report.leader(), report.term()));
    }
    absl::SleepFor(kTransferPoll);
  }
  return call.Fail(
      kExitFailure,
      absl::StrFormat(
          "no member has taken over from node %d within %s; `hedgerow-node status` shows which members it hears",
          before->node(), absl::FormatDuration(patience)));
}

uint64_t SnapshotFailuresOf(const v1::NodeStatus& status) {
  const auto found = status.counters().find("snapshots.failed");
  return found == status.counters().end() ? 0 : found->second;
}

int RunSnapshot(const Call& call) { return RunSnapshot(call, kSnapshotPatience); }

int RunSnapshot(const Call& call, absl::Duration patience) {
  if (call.arguments.words.size() > 1) return call.UsageError("snapshot takes no words");
  const auto client = ConnectToNode(call.arguments);
  if (!client.ok()) return call.Fail(client.status());
  const auto before = (*client)->GetStatus();  // else one that fails at once would not be seen to
  if (!before.ok()) return call.Fail(before.status());
  const auto index = (*client)->TakeSnapshot();
  if (!index.ok()) return call.Fail(index.status());
  const Deadline deadline(patience);
  while (!deadline.passed()) {
    const auto status = (*client)->AwaitStatus(deadline);
    if (!status.ok()) return call.Fail(status.status());
    if (status->snapshots().last_index() >= index->value()) {
      v1::SnapshotReport report;
      report.set_index(status->snapshots().last_index());
      report.set_size_bytes(status->snapshots().size_bytes());
      return call.Print(report, absl::StrFormat("the last snapshot is at entry %d, %d bytes\n", report.index(),
                                                report.size_bytes()));
    }
    if (SnapshotFailuresOf(*status) > SnapshotFailuresOf(*before)) {
      return call.Fail(kExitFailure, "the snapshot failed; `hedgerow-node status` says why. It is tried again");
    }
    absl::SleepFor(kSnapshotPoll);
  }
  return call.Fail(kExitFailure, absl::StrFormat("no snapshot at entry %d within %s; it is still being taken",
                                                 index->value(), absl::FormatDuration(patience)));
}

int RunProxyKey(const Call& call) {
  if (call.arguments.words.size() != 2) return call.UsageError("proxy-key wants the name of one proxy");
  const absl::StatusOr<NodeConfig> config = RequireConfig(call.arguments);
  if (!config.ok()) return call.Fail(config.status());
  const std::string& name = call.arguments.words[1];
  std::vector<std::string> names;
  for (const ProxyConfig& proxy : config->proxies) names.push_back(proxy.name);
  // A key for a name that no node announces to would never fit anything.
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    const std::string guess = config::Suggest(name, names);
    return call.Fail(
        kExitFailure,
        absl::StrCat("no proxy ", config::Quote(name), " in ", call.arguments.Get("config"),
                     guess.empty() ? "" : absl::StrCat(", did you mean \"", guess, "\"?"),
                     names.empty() ? " (proxies is empty)"
                                   : absl::StrCat(" (there are: ", absl::StrJoin(names, ", "), ")")));
  }
  v1::ProxyKeyReport report;
  report.set_proxy(name);
  report.set_key(wire::FormatKey(wire::DeriveProxyKey(config->announce_keys->seals().key, name)));
  std::string text = absl::StrCat(report.key(), "\n");
  if (const wire::KeyRing::Entry* const other = config->announce_keys->other(); other != nullptr) {
    report.set_other_key(wire::FormatKey(wire::DeriveProxyKey(other->key, name)));
    absl::StrAppend(&text, report.other_key(), "\n");
  }
  return call.Print(report, text);
}

int RunValidate(const Call& call) {
  if (call.arguments.words.size() > 1) return call.UsageError("validate takes no words");
  const std::string path = call.arguments.Get("config");
  if (path.empty()) return call.UsageError("--config FILE is missing");
  config::Diagnostics errors(path);
  const NodeConfig config = LoadNodeConfig(path, errors);
  v1::ValidateReport report;
  report.set_ok(errors.empty());
  report.set_file(path);
  *report.mutable_errors() = operate::ConfigErrors(errors);
  if (!errors.empty()) {
    if (call.arguments.Has("json")) return call.Print(report, "", kExitUsage);
    return call.Fail(kExitUsage, absl::StrJoin(errors.Lines(), "\n"));
  }
  report.set_node(config.self.value());
  report.set_members(static_cast<uint32_t>(config.members.size()));
  report.set_proxies(static_cast<uint32_t>(config.proxies.size()));
  for (const kv::Setting setting : config.settings_in_file) {
    report.add_seeds(kv::InfoOf(setting).name);
  }
  std::string text = absl::StrCat(path, ": sound (node ", report.node(), " of ", report.members(), ", ",
                                  report.proxies(), report.proxies() == 1 ? " proxy)\n" : " proxies)\n");
  if (!report.seeds().empty()) {
    absl::StrAppend(&text, absl::StrJoin(report.seeds(), ", "),
                    ": only for a new cluster; `hedgerow-node settings` shows and changes what a running one goes by\n");
  }
  return call.Print(report, text);
}

int RunVersion(const Call& call) {
  v1::VersionReport report;
  report.set_version(operate::kVersion);
  return call.Print(report, absl::StrCat("hedgerow-node ", operate::kVersion, "\n"));
}

}  // namespace hedgerow::node
