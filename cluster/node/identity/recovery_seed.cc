// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/identity/recovery_seed.h"

#include <unistd.h>

#include <ctime>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/kv/recovered_state.h"
#include "cluster/node/identity/identity_keeper.h"
#include "cluster/raft/configuration.h"
#include "cluster/storage/errors.h"
#include "cluster/storage/folder.h"
#include "cluster/storage/identity.h"
#include "cluster/storage/snapshot_file.h"
#include "cluster/storage/watermark.h"
#include "cluster/transfer/load_state.h"

namespace hedgerow::node {
namespace {

constexpr size_t kSlice_bytes = 1024 * 1024;

absl::Status WriteState(storage::SnapshotFileWriter& writer, kv::StateMachine& state) {
  state.BeginSnapshot();
  while (state.taking_snapshot()) {
    for (const std::string& chunk : state.ContinueSnapshot(kSlice_bytes)) {
      if (absl::Status status = writer.Append(chunk); !status.ok()) return status;
    }
  }
  return writer.Finish();
}

// What its identity says, beside the log itself.
void AddDoubts(const std::string& folder, storage::StoppedLog& log) {
  const absl::StatusOr<std::optional<storage::Identity>> identity = storage::ReadIdentity(folder);
  if (!identity.ok() || !identity->has_value()) {
    log.doubts.push_back(absl::StrCat("what it promised beside its log is not known: ",
                                      identity.ok() ? "there is no file `identity`" : identity.status().message()));
    return;
  }
  const storage::Identity& recorded = **identity;
  if (recorded.kernel_lost) {
    log.doubts.push_back(
        "it is LOST: the kernel held entries that it had acknowledged, and they are gone; to start it brings "
        "nothing back");
  } else if (recorded.KernelMayHold(storage::KernelBootId())) {
    log.doubts.push_back(
        "its process was killed, and the kernel may hold entries that it had acknowledged and the log lacks: "
        "if the node "
        "can be started, start it and stop it in order first, so that the log gets them; if it led, what it "
        "answered in its last half millisecond may be with the others alone");
  }
  // A folder that was restored and never started names no copy yet.
  if (recorded.unknown_to.has_value() || (recorded.copy_id != 0 && recorded.copy_id != log.copy_id)) {
    log.doubts.push_back(
        "its folder was emptied or put back (another member has recorded another copy of the log, or the host or a "
        "member a later state of this one; or `identity` is of another one), and what it acknowledged before is not "
        "in it");
  }
}

}  // namespace

raft::Configuration ConfigurationOf(const NodeConfig& config) {
  NodeConfig all = config;
  all.join = false;  // a recovered cluster has no members yet to join
  return all.Initial();
}

absl::StatusOr<RecoverySeed> ReadRecoverySeed(const NodeConfig& config) {
  storage::StorageOptions options;
  options.path = config.data_dir;
  std::unique_ptr<kv::StateMachine> state;
  const auto load = [&](storage::SnapshotReader& snapshot) {
    auto loaded = transfer::LoadState(snapshot);
    if (loaded.ok()) state = *std::move(loaded);
    return loaded.status();
  };
  absl::StatusOr<storage::StoppedLog> log =
      storage::ReadStoppedLog(options, {.cluster_id = config.cluster_id, .node = config.self}, load);
  if (!log.ok()) return log.status();
  if (state == nullptr) state = std::make_unique<kv::StateMachine>();
  AddDoubts(config.data_dir, *log);
  if (const raft::LogIndex none = kv::ApplyAll(log->raft, *state); none != raft::LogIndex()) {
    return storage::DamagedError(config.data_dir, absl::StrCat("entry ", none.value(), " is no command"));
  }
  return RecoverySeed{.log = *std::move(log), .state = std::move(state)};
}

absl::StatusOr<storage::BackupHeader> WriteRecoveryBackup(const std::string& path, const NodeConfig& config,
                                                          RecoverySeed& seed) {
  const storage::BackupHeader header{.cluster_id = config.cluster_id,
                                     .of = seed.log.generation,
                                     .begins = storage::NextGeneration(seed.log.generation),
                                     .node = config.self,
                                     .last = seed.log.last,
                                     .made_s = static_cast<uint64_t>(time(nullptr))};
  absl::StatusOr<storage::SnapshotFileWriter> writer = storage::SnapshotFileWriter::CreateBehind(
      path, storage::EncodeBackupHeader(header),
      {.cluster_id = config.cluster_id, .snapshot = {.last = header.last, .configuration = ConfigurationOf(config)}});
  if (!writer.ok()) return writer.status();
  absl::Status status = WriteState(*writer, *seed.state);
  if (status.ok()) status = storage::SyncParent(path);
  if (status.ok()) return header;
  (void)unlink(path.c_str());
  return status;
}

raft::Configuration MembersOf(const raft::RestoredState& log, const NodeConfig& config) {
  raft::Configuration latest = config.Initial();
  if (!log.snapshot.configuration.members.empty()) latest = log.snapshot.configuration;
  for (const raft::Entry& entry : log.entries) {
    if (entry.index <= log.snapshot.last.index || entry.kind != raft::EntryKind::kConfiguration) continue;
    if (auto decoded = raft::DecodeConfiguration(entry.payload.view()); decoded.has_value())
      latest = *std::move(decoded);
  }
  config.Readdress(latest);
  return latest;
}

}  // namespace hedgerow::node
