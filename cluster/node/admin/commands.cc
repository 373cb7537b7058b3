// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/admin/commands.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cluster/api/node.pb.h"
#include "cluster/node/admin/admin_client.h"
#include "cluster/node/config/config.h"
#include "cluster/node/host/deadline.h"
#include "cluster/node/host/node_memory.h"
#include "cluster/node/status/stall_problem.h"
#include "cluster/node/status/status_message.h"
#include "cluster/node/status/status_text.h"
#include "cluster/wire/announce.h"
#include "cluster/wire/peer_name.h"
#include "config/diagnostics.h"
#include "config/suggest.h"
#include "operate/commit.h"
#include "operate/unit.h"
#include "operate/version.h"

namespace hedgerow::node {
namespace {

absl::StatusOr<NodeConfig> RequireConfig(const operate::Arguments& arguments) {
  if (arguments.Get("config").empty()) return absl::InvalidArgumentError("hedgerow-node: --config FILE is missing");
  return LoadNodeConfig(arguments.Get("config"));
}

int RefuseToRun(const Call& call) { return call.UsageError("run wants --config FILE and nothing else"); }

operate::Option ConfigOption() { return {"config", "FILE", "the configuration, node.yaml(5)", true}; }

// Of the commands that ask the node; `more` stand before them.
std::vector<operate::Option> NodeOptionsAnd(std::vector<operate::Option> more) {
  more.push_back({"socket", "PATH", absl::StrCat("the node's socket (default ", NodeConfig().admin_socket, ")")});
  more.push_back({"config", "FILE", "a configuration that names the socket, instead of --socket"});
  return more;
}

std::vector<operate::Option> NodeOptions() { return NodeOptionsAnd({}); }

int RefuseElsewhere(const Call& call) { return call.UsageError("this program has no such command"); }

// What a sound file asks for and this host does not have.
std::vector<std::string> WarningsOf(const NodeConfig& config, const std::string& root) {
  std::vector<std::string> warnings;
  const std::vector<kv::Setting>& said = config.settings_in_file;
  // Where the file names no limit, a new cluster takes what the memory is enough for.
  if (std::find(said.begin(), said.end(), kv::Setting::kMemory) != said.end()) {
    const uint64_t available_bytes = AvailableMemory_bytes(root);
    v1::Memory memory;
    memory.set_limit_bytes(config.settings.memory_bytes);
    memory.set_available_bytes(available_bytes == UINT64_MAX ? 0 : available_bytes);
    std::string problem = MemoryProblem(memory);
    if (!problem.empty()) warnings.push_back(std::move(problem));
  }
  if (!config.peer_tls.has_value()) return warnings;
  const absl::StatusOr<operate::TlsMaterial> tls = operate::ReadTlsMaterial(
      config.peer_tls->files, wire::PeerName(config.peer_tls->name, config.self), operate::Reader::kShows);
  const std::string end =
      tls.ok() ? operate::CertificateEndText(tls->not_after_s, absl::ToUnixSeconds(absl::Now())) : "";
  if (!end.empty())
    warnings.push_back(absl::StrCat("the certificate in ", config.peer_tls->files.certificate, " ", end));
  return warnings;
}

}  // namespace

absl::StatusOr<AdminClient> ConnectToNode(const operate::Arguments& arguments) {
  if (arguments.Has("socket")) return AdminClient::Connect(arguments.Get("socket"));
  if (!arguments.Has("config")) return AdminClient::Connect(NodeConfig().admin_socket);
  const absl::StatusOr<NodeConfig> config = RequireConfig(arguments);
  if (!config.ok()) return config.status();
  return AdminClient::Connect(config->admin_socket);
}

const operate::Program& TheProgram() {
  static const auto* program = new operate::Program{
      .name = "hedgerow-node",
      .summary = "run, watch and change a node of the replicated store",
      .commands =
          {
              {"run",
               "",
               "serve in the foreground until SIGTERM or SIGINT; SIGHUP reads the key files again; the log goes to stderr",
               {ConfigOption()},
               RefuseToRun,
               {"hedgerow-node run --config /etc/hedgerow-node/node.yaml"}},
              {"validate",
               "",
               "check a configuration; touches nothing",
               {ConfigOption()},
               RunValidate,
               {"hedgerow-node validate --config /etc/hedgerow-node/node.yaml"}},
              {"status",
               "",
               "show how the node is doing",
               NodeOptionsAnd({{"ready", "", "exit 1 unless the node is ready, for probes"}}),
               RunStatus,
               {"hedgerow-node status", "hedgerow-node status --ready"}},
              {"transfer",
               "",
               "hand leadership to a member, and wait until it leads",
               NodeOptionsAnd({{"to", "ID", "the member (default: the most advanced one)"}}),
               RunTransfer,
               {"hedgerow-node transfer --to 2"}},
              {"snapshot",
               "",
               "take a snapshot, cut the log, and wait until that is done",
               NodeOptions(),
               RunSnapshot,
               {"hedgerow-node snapshot"}},
              {"members",
               "[add ID PEER-ADDRESS | promote ID | remove ID | replace OLD NEW | rejoin LOST NEW | move ID "
               "PEER-ADDRESS]",
               "show the cluster's members; or change them, and wait until that is done (the leader does it)",
               NodeOptions(),
               RunMembers,
               {"hedgerow-node members", "hedgerow-node members add 4 10.0.0.4:4800",
                "hedgerow-node members promote 4"}},
              {"settings",
               "[set NAME=VALUE ...]",
               "show the limits that hold on all nodes; or change them, and wait until that is done (the leader does "
               "it)",
               NodeOptions(),
               RunSettings,
               {"hedgerow-node settings", "hedgerow-node settings set sessions.max=20000"}},
              {"keys",
               "[reload | add cluster|announce | switch cluster|announce | remove cluster|announce]",
               "show which keys the members have; or change this node's key files, and have the node read them",
               NodeOptionsAnd({{"from", "FILE", "`add`: the file with the new key"},
                               {"force", "", "although a member does not have the key yet"}}),
               RunKeys,
               {"hedgerow-node keys",
                "hedgerow-node keys add cluster --from new.key --config /etc/hedgerow-node/node.yaml"}},
              {"purge",
               "",
               "delete all keys with a prefix, in portions beside the cluster's other work (the leader does it)",
               NodeOptionsAnd({{"prefix", "PREFIX", "what the keys begin with", true}}),
               RunPurge,
               {"hedgerow-node purge --prefix cache/"}},
              {"backup",
               "",
               "write everything that was applied by now to a file that a cluster can be recovered from",
               NodeOptionsAnd({{"out", "FILE", "the file to write", true}}),
               RunBackup,
               {"hedgerow-node backup --out store.backup"}},
              {"restore",
               "",
               "make the log of a node that does not run from a backup; on every member, from the same file, before "
               "any starts",
               {ConfigOption(),
                {"from", "BACKUP", "the backup", true},
                {"epoch", "NUMBER", "the cluster epoch to begin (default: the one after the backup's)"},
                {"other-members", "", "confirm that the configuration's members are others than the backup's"}},
               RefuseElsewhere,
               {"hedgerow-node restore --config /etc/hedgerow-node/node.yaml --from store.backup"}},
              {"recover",
               "",
               "show what a node that does not run has left, and what would be lost; or write a file of it to recover "
               "a cluster from",
               {ConfigOption(),
                {"out", "FILE", "the file to write; with --accept-data-loss"},
                {"accept-data-loss", "", "writes that only the lost nodes have are given up; with --out"},
                {"yes", "", "ask nothing"}},
               RefuseElsewhere,
               {"hedgerow-node recover --config /etc/hedgerow-node/node.yaml",
                "hedgerow-node recover --config /etc/hedgerow-node/node.yaml --out seed --accept-data-loss"}},
              {"proxy-key",
               "NAME",
               "print the key of the proxy NAME; both, as a key file, while the announce key is changed",
               {ConfigOption()},
               RunProxyKey,
               {"hedgerow-node proxy-key web1 --config /etc/hedgerow-node/node.yaml"}},
              {"version", "", "print the version", {}, RunVersion},
              operate::HelpCommand(),
          },
      .options = {{"json", "", "print one JSON object, on failure as well (not `run`)"}},
      .notes = {"`hedgerow-node help COMMAND` lists the options of one command."},
      .exit_codes = {{"0", "done"},
                     {"1", "failure; the message has the reason"},
                     {"2", "usage or configuration error"},
                     {"3", "the node is not running"},
                     {"4", "this user may not open the socket"}},
      .files = {{"/etc/hedgerow-node/node.yaml", "the configuration that the unit hedgerow-node.service serves"},
                {"/var/lib/hedgerow-node", "the log, snapshots and identity"},
                {NodeConfig().admin_socket, "the node's socket"}},
      .see_also = {"hedgerow(8)", "hkv(1)"}};
  return *program;
}

int RunStatus(const Call& call) {
  const auto client = ConnectToNode(call.arguments);
  if (!client.ok()) return call.Fail(client.status());
  const auto status = client->GetStatus();
  if (!status.ok()) return call.Fail(status.status());
  const int printed = call.Print(*status, StatusText(*status));
  return call.arguments.Has("ready") && !status->ready() ? kExitFailure : printed;
}

int RunTransfer(const Call& call) { return RunTransfer(call, kTransferTimeout); }

int RunTransfer(const Call& call, absl::Duration timeout) {
  uint64_t target = 0;
  if (call.arguments.Has("to") && (!absl::SimpleAtoi(call.arguments.Get("to"), &target) || target == 0)) {
    return call.UsageError(absl::StrCat("--to: got \"", call.arguments.Get("to"), "\", expected the id of a member"));
  }
  const auto client = ConnectToNode(call.arguments);
  if (!client.ok()) return call.Fail(client.status());
  const auto before = client->GetStatusOfStarted();
  if (!before.ok()) return call.Fail(before.status());
  v1::TransferRequest request;
  request.set_target(target);
  const absl::Status begun = client->Ask(&AdminClient::Stub::Transfer, request).status();
  if (!begun.ok()) return call.Fail(begun);
  // The node only begins; a target that is down or far behind may never take over.
  const auto status = client->Await(
      Deadline(timeout),
      [&before](const v1::NodeStatus& now) { return now.leader() != 0 && now.leader() != before->node(); },
      absl::StrFormat(
          "no member has taken over from node %d within %s; `hedgerow-node status` shows which members it hears",
          before->node(), absl::FormatDuration(timeout)));
  if (!status.ok()) return call.Fail(status.status());
  v1::TransferReport report;
  report.set_from(before->node());
  report.set_leader(status->leader());
  report.set_term(status->term());
  return call.Print(report, absl::StrFormat("node %d leads in term %d\n", report.leader(), report.term()));
}

absl::StatusOr<v1::NodeStatus> SnapshotNow(const AdminClient& client, absl::Duration timeout) {
  const auto failures = [](const v1::NodeStatus& status) {
    const auto found = status.counters().find("snapshots.failed");
    return found == status.counters().end() ? 0 : found->second;
  };
  const auto before = client.GetStatusOfStarted();  // else one that fails at once would not be seen to
  if (!before.ok()) return before;
  const auto index = client.Ask(&AdminClient::Stub::TakeSnapshot);
  if (!index.ok()) return index.status();
  return client.Await(
      Deadline(timeout),
      [&](const v1::NodeStatus& now) -> absl::StatusOr<bool> {
        if (now.snapshots().last_index() >= index->index()) return true;
        if (failures(now) == failures(*before)) return false;
        return absl::InternalError(
            "the snapshot failed; `hedgerow-node status` says why (a full disk, say). It is tried again");
      },
      absl::StrFormat("no snapshot at entry %d within %s; it is still being taken", index->index(),
                      absl::FormatDuration(timeout)));
}

int RunSnapshot(const Call& call) { return RunSnapshot(call, kSnapshotTimeout); }

int RunSnapshot(const Call& call, absl::Duration timeout) {
  const auto client = ConnectToNode(call.arguments);
  if (!client.ok()) return call.Fail(client.status());
  const auto status = SnapshotNow(*client, timeout);
  if (!status.ok()) return call.Fail(status.status());
  v1::SnapshotReport report;
  report.set_index(status->snapshots().last_index());
  report.set_size_bytes(status->snapshots().size_bytes());
  return call.Print(
      report, absl::StrFormat("the last snapshot is at entry %d, %d bytes\n", report.index(), report.size_bytes()));
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
    return call.Fail(kExitFailure,
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

int RunValidate(const Call& call) { return RunValidate(call, ""); }

int RunValidate(const Call& call, const std::string& root) {
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
  for (std::string& warning : WarningsOf(config, root)) report.add_warnings(std::move(warning));
  std::string text = absl::StrCat(path, ": sound (node ", report.node(), " of ", report.members(), ", ",
                                  report.proxies(), report.proxies() == 1 ? " proxy)\n" : " proxies)\n");
  if (!report.seeds().empty()) {
    absl::StrAppend(
        &text, absl::StrJoin(report.seeds(), ", "),
        ": only for a new cluster; `hedgerow-node settings` shows and changes what a running one goes by\n");
  }
  if (report.members() == 2) report.add_warnings("two members tolerate the failure of neither: take three");
  const std::vector<std::string> closed = absl::StartsWith(path, "/etc/hedgerow-node/")
                                              ? operate::WhyNotReadBy("hedgerow-node", config.read_from)
                                              : std::vector<std::string>();
  for (const std::string& why : closed) report.add_warnings(why);
  for (const std::string& warning : report.warnings()) absl::StrAppend(&text, "WARNING: ", warning, "\n");
  return call.Print(report, text, closed.empty() ? kExitOk : kExitFailure);
}

int RunVersion(const Call& call) {
  v1::VersionReport report;
  report.set_version(operate::kVersion);
  report.set_commit(operate::kCommit);
  report.set_commit_date(operate::kCommitDate);
  return call.Print(report, absl::StrCat("hedgerow-node ", operate::kVersion, " (commit ", operate::kCommit, " of ",
                                         operate::kCommitDate, ")\n"));
}

}  // namespace hedgerow::node
