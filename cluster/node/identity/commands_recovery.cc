// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/identity/commands_recovery.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cluster/api/node.pb.h"
#include "cluster/node/admin/admin_client.h"
#include "cluster/node/config/config.h"
#include "cluster/node/identity/rejoin.h"
#include "cluster/node/identity/recovery_seed.h"
#include "cluster/storage/backup_file.h"
#include "cluster/storage/restore_log.h"
#include "cluster/transfer/load_state.h"

namespace hedgerow::node {
namespace {

// Proxies take one more at most (`services[].cluster.epoch`), and each recovery adds one.
constexpr uint64_t kEpochMax = 1'000'000'000'000'000'000;

using operate::Call;

std::vector<uint64_t> VotersOf(const raft::Configuration& configuration) {
  std::vector<uint64_t> ids;
  for (const raft::Member& member : configuration.members) {
    if (((configuration.deciding() >> member.slot) & 1) != 0) ids.push_back(member.id.value());
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

// Of the member that the node is by now. Whether it joins is what the file says: `recover` takes the log of one
// that has come back under another id like any other's. `restore` finds an empty folder, and goes by the file.
absl::StatusOr<NodeConfig> ConfigOf(const Call& call) {
  absl::StatusOr<NodeConfig> config = LoadNodeConfig(call.arguments.Get("config"));
  if (!config.ok()) return config;
  const bool joins = config->join;
  const absl::Status followed = FollowRejoin(*config);
  if (!followed.ok() && !absl::IsDataLoss(followed)) return followed;  // what is damaged is among the doubts
  config->join = joins;
  return config;
}

// A node whose folder was moved away under it goes on with its files, and has the kernel's maps of this one.
absl::Status CheckStopped(const NodeConfig& config) {
  const auto client = AdminClient::Connect(config.admin_socket);
  if (!client.ok() || !client->GetStatus().ok()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("a node answers on ", config.admin_socket, ": stop it first (systemctl stop hedgerow-node)"));
}

// systemd gives the folder to the node's user only where it is not that user's already.
absl::Status CheckFolderIsOurs(const NodeConfig& config) {
  struct stat info {};
  if (stat(config.data_dir.c_str(), &info) != 0 || info.st_uid == geteuid()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the folder ", config.data_dir, " belongs to user ", info.st_uid, ", and a log that user ", geteuid(),
      " makes in it is not that user's: remove the empty folder (rmdir), or run this command as that user (runuser -u)"));
}

// All of it is read before anything is written.
absl::StatusOr<v1::RestoreReport> Examine(const storage::Backup& backup) {
  const absl::StatusOr<std::unique_ptr<kv::StateMachine>> state = transfer::LoadState(*backup.snapshot);
  if (!state.ok()) return state.status();
  v1::RestoreReport report;
  report.set_keys((*state)->values());
  report.set_sessions((*state)->sessions());
  return report;
}

// The members in the files decide what a majority is. Files that differ could make two majorities.
absl::Status CheckMembers(const storage::Backup& backup, const NodeConfig& config) {
  const std::vector<uint64_t> had = VotersOf(backup.snapshot->header().snapshot.configuration);
  const std::vector<uint64_t> listed = VotersOf(ConfigurationOf(config));
  if (had == listed) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "members: the backup has ", absl::StrJoin(had, ", "), ", and the configuration file has ",
      absl::StrJoin(listed, ", "),
      ". All members of the recovered cluster must begin with the same members, or there may be two clusters. "
      "If they are to be ",
      absl::StrJoin(listed, ", "),
      ", see that the configuration files of all of them say so, and give --other-members on each"));
}

absl::StatusOr<v1::RestoreReport> Restore(const NodeConfig& config, const std::string& path, uint64_t epoch,
                                          bool other_members) {
  if (absl::Status stopped = CheckStopped(config); !stopped.ok()) return stopped;
  if (absl::Status ours = CheckFolderIsOurs(config); !ours.ok()) return ours;
  // With its own entry alone in its file it would be a cluster, with the others' key.
  if (config.join) {
    return absl::FailedPreconditionError(
        "join is on, and a node that joins a cluster gets everything from its leader: nothing is to be restored. "
        "`beginning` in its file says which recovery generation of the cluster it joins. If this node is to "
        "begin with the others, take `join` out of its file and list all members");
  }
  absl::StatusOr<storage::Backup> backup = storage::OpenBackup(path);
  if (!backup.ok()) return backup.status();
  if (absl::Status members = CheckMembers(*backup, config); !other_members && !members.ok()) return members;
  absl::StatusOr<v1::RestoreReport> report = Examine(*backup);
  if (!report.ok()) return report;
  backup = storage::OpenBackup(path);  // from its beginning
  if (!backup.ok()) return backup.status();
  storage::RecoveryGeneration generation = backup->header.begins;
  if (epoch != 0 && epoch < generation.epoch) {
    return absl::InvalidArgumentError(absl::StrCat("--epoch: got ", epoch, ", expected ", generation.epoch,
                                                   " or more: epoch ", backup->header.of.epoch, " was before"));
  }
  if (epoch != 0) generation.epoch = epoch;
  const absl::Status begun =
      storage::RestoreLog(config.data_dir, {.cluster_id = config.cluster_id, .node = config.self}, generation,
                          *backup->snapshot, ConfigurationOf(config));
  if (!begun.ok()) return begun;
  report->set_data_dir(config.data_dir);
  report->set_node(config.self.value());
  report->set_index(backup->header.last.index.value());
  report->set_cluster_epoch(generation.epoch);
  report->set_beginning(absl::StrFormat("%016x", generation.nonce));
  return report;
}

std::string RestoreText(const v1::RestoreReport& report, const NodeConfig& config, const std::string& path) {
  std::string text = absl::StrFormat(
      "node %d of the recovered cluster %d goes on after entry %d, with %d keys and %d sessions, in cluster "
      "epoch %d\n",
      report.node(), config.cluster_id, report.index(), report.keys(), report.sessions(), report.cluster_epoch());
  if (config.members.size() > 1) {
    absl::StrAppend(&text, "Its members are ", absl::StrJoin(VotersOf(ConfigurationOf(config)), ", "),
                    ". Restore the same file (", path, ") on every other one before the first of them starts.\n");
  }
  absl::StrAppend(&text, "Proxies believe it once their services' cluster.epoch is ", report.cluster_epoch(), ".\n");
  return text;
}

v1::RecoverReport ReportOf(const NodeConfig& config, const RecoverySeed& seed) {
  v1::RecoverReport report;
  report.set_node(config.self.value());
  report.set_last_index(seed.log.last.index.value());
  report.set_last_term(seed.log.last.term.value());
  report.set_snapshot_index(seed.log.raft.snapshot.last.index.value());
  report.set_cluster_epoch(seed.log.generation.epoch);
  for (const std::string& doubt : seed.log.doubts) report.add_doubts(doubt);
  report.set_keys(seed.state->values());
  report.set_sessions(seed.state->sessions());
  return report;
}

// The file names the members of the recovered cluster, and may be older than the log: members that were added
// since are missing in it, and removed ones are still there.
std::string MembersText(const NodeConfig& config, const RecoverySeed& seed) {
  const std::vector<uint64_t> by_log = VotersOf(MembersOf(seed.log.raft, config));
  const std::vector<uint64_t> by_file = VotersOf(ConfigurationOf(config));
  std::string text = absl::StrCat("  the members of the recovered cluster are those of the configuration file: ",
                                  absl::StrJoin(by_file, ", "), "\n");
  if (by_log != by_file) {
    absl::StrAppend(&text, "  IN DOUBT: by its log the voters were ", absl::StrJoin(by_log, ", "),
                    ". Say in the file who is to begin, with all addresses, the same on all of them\n");
  }
  return text;
}

std::string RecoverText(const v1::RecoverReport& report, const NodeConfig& config, const RecoverySeed& seed) {
  std::string text = absl::StrFormat(
      "node %d of cluster %d: its log in %s is of epoch %d and ends with term %d, entry %d\n"
      "  with all of it applied there are %d keys and %d sessions\n",
      report.node(), config.cluster_id, config.data_dir, report.cluster_epoch(), report.last_term(),
      report.last_index(), report.keys(), report.sessions());
  for (const std::string& doubt : report.doubts()) absl::StrAppend(&text, "  IN DOUBT: ", doubt, "\n");
  absl::StrAppend(&text, MembersText(config, seed));
  absl::StrAppend(&text,
                  "A cluster that begins with this LOSES every acknowledged write that this log does not hold, "
                  "and does for good\n"
                  "what this log holds and was never acknowledged. If another member has a folder left, run this "
                  "there as well. Take\n"
                  "the one of the highest epoch (the folder of a lower one is from before the last recovery, "
                  "however long its log is),\n"
                  "of these the highest term, and of these the highest entry; once, on that member alone. Do not "
                  "do it while a\n"
                  "majority can still be started: then nothing is lost.\n");
  return text;
}

// Asks for the cluster's id, so that it is not confirmed by habit.
bool Agreed(const Call& call, const NodeConfig& config, std::istream& in) {
  if (call.arguments.Has("yes")) return true;
  call.err << "Type the cluster's id (" << config.cluster_id << ") to go on: " << std::flush;
  std::string answer;
  std::getline(in, answer);
  return absl::StripAsciiWhitespace(answer) == absl::StrCat(config.cluster_id);
}

}  // namespace

int RunRestore(const Call& call) {
  const std::string path = call.arguments.Get("from");
  uint64_t epoch = 0;
  if (call.arguments.words.size() > 1 || path.empty() || !call.arguments.Has("config"))
    return call.UsageError("restore wants --config FILE and --from BACKUP");
  if (call.arguments.Has("epoch") &&
      (!absl::SimpleAtoi(call.arguments.Get("epoch"), &epoch) || epoch == 0 || epoch > kEpochMax))
    return call.UsageError(
        absl::StrCat("--epoch: got \"", call.arguments.Get("epoch"), "\", expected a number from 1 to ", kEpochMax));
  const absl::StatusOr<NodeConfig> config = ConfigOf(call);
  if (!config.ok()) return call.Fail(config.status());
  const absl::StatusOr<v1::RestoreReport> report = Restore(*config, path, epoch, call.arguments.Has("other-members"));
  if (!report.ok()) return call.Fail(report.status());
  return call.Print(*report, RestoreText(*report, *config, path));
}

int RunRecover(const Call& call) { return RunRecover(call, std::cin); }

int RunRecover(const Call& call, std::istream& in) {
  const std::string path = call.arguments.Get("out");
  const bool accepted = call.arguments.Has("accept-data-loss");
  if (call.arguments.words.size() > 1 || !call.arguments.Has("config"))
    return call.UsageError("recover wants --config FILE");
  if (accepted == path.empty())
    return call.UsageError("recover writes only with both --out FILE and --accept-data-loss");
  const absl::StatusOr<NodeConfig> config = ConfigOf(call);
  if (!config.ok()) return call.Fail(config.status());
  absl::StatusOr<RecoverySeed> seed = ReadRecoverySeed(*config);
  if (!seed.ok()) return call.Fail(seed.status());
  v1::RecoverReport report = ReportOf(*config, *seed);
  const std::string text = RecoverText(report, *config, *seed);
  if (!accepted) {
    return call.Print(report, absl::StrCat(text, "Nothing was written: --out FILE --accept-data-loss does.\n"));
  }
  if (config->join) {
    return call.Fail(
        operate::kExitFailure,
        "join is on: a recovered cluster has no cluster to join. Take it out of the configuration file, list all "
        "members that are to begin, the same on all of them, and do this again");
  }
  if (seed->log.last.index == raft::LogIndex())
    return call.Fail(operate::kExitFailure, "this log holds nothing that a cluster could begin with");
  if (!call.arguments.json()) call.err << text;
  if (!Agreed(call, *config, in)) return call.Fail(operate::kExitFailure, "nothing was written");
  const absl::StatusOr<storage::BackupHeader> header = WriteRecoveryBackup(path, *config, *seed);
  if (!header.ok()) return call.Fail(header.status());
  report.set_file(path);
  report.set_begins_epoch(header->begins.epoch);
  return call.Print(report,
                    absl::StrFormat("%s begins cluster epoch %d. On every member: move the old data_dir away, and\n"
                                    "  hedgerow-node restore --config FILE --from %s\n"
                                    "before the first of them starts. Use this file alone: another one, made on "
                                    "another member or by another\n"
                                    "run of this, begins another cluster, and they do not hear each other.\n",
                                    path, report.begins_epoch(), path));
}

operate::Program WithRecovery(operate::Program program) {
  for (operate::Command& command : program.commands) {
    if (command.name == "restore") command.run = RunRestore;
    if (command.name == "recover") command.run = RunRecover;
  }
  return program;
}

}  // namespace hedgerow::node
