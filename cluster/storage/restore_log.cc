// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/restore_log.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "cluster/raft/outputs.h"
#include "cluster/storage/durable_log.h"
#include "cluster/storage/errors.h"
#include "cluster/storage/folder.h"
#include "cluster/storage/identity.h"
#include "cluster/storage/snapshot_folder.h"

namespace hedgerow::storage {
namespace {

// No cluster writes so many entries after the backup that the next one begins with.
constexpr uint64_t kBeyond_entries = uint64_t{1} << 40;

absl::Status CheckEmpty(const std::string& path) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    if (entry.path().filename() == "lost+found") continue;  // a filesystem of its own
    return absl::AlreadyExistsError(
        absl::StrCat("the folder ", path, " is not empty, and what is in it is not touched: move it away first (mv ",
                     path, " ", path, ".before)"));
  }
  return error ? FromErrno(path, "read", error.value()) : absl::OkStatus();
}

absl::Status WriteSnapshot(const SnapshotFolder& folder, const SnapshotHeader& header, SnapshotReader& from) {
  absl::StatusOr<SnapshotFileWriter> writer = folder.Begin(header, "restoring");
  if (!writer.ok()) return writer.status();
  while (true) {
    const absl::StatusOr<std::optional<std::string>> chunk = from.Next();
    if (!chunk.ok()) return chunk.status();
    if (!chunk->has_value()) break;
    if (absl::Status status = writer->Append(**chunk); !status.ok()) return status;
  }
  if (absl::Status status = writer->Finish(); !status.ok()) return status;
  return folder.Publish(writer->path(), header.snapshot.last);
}

// The same log that a follower has that has just installed the snapshot and has not voted.
absl::Status WriteLog(const std::string& path, const StoredIdentity& identity, const RecoveryGeneration& generation,
                      const raft::EntryId& last, const raft::Configuration& configuration) {
  StorageOptions options;
  options.path = path;
  options.sync = true;
  options.generation = generation;
  options.begins_with = configuration;
  const absl::StatusOr<std::unique_ptr<DurableLog>> log = DurableLog::Open(options, identity);
  if (!log.ok()) return log.status();
  raft::Persist persist{.sequence = 1};
  persist.hard_state = raft::HardState{.term = last.term};
  persist.new_start = raft::NewStart{.after = last, .snapshot = last, .empties = true};
  (*log)->Gather(persist);
  return (*log)->Commit();
}

absl::Status Fill(const std::string& path, const StoredIdentity& identity, const RecoveryGeneration& generation,
                  SnapshotReader& snapshot, const raft::Configuration& configuration) {
  const absl::StatusOr<SnapshotFolder> folder = SnapshotFolder::Open(path);
  if (!folder.ok()) return folder.status();
  const raft::EntryId last = FirstOf(generation, snapshot.header().snapshot.last);
  const SnapshotHeader header{.cluster_id = identity.cluster_id,
                              .snapshot = {.last = last, .configuration = configuration}};
  if (absl::Status status = WriteSnapshot(*folder, header, snapshot); !status.ok()) return status;
  return WriteLog(path, identity, generation, last, configuration);
}

}  // namespace

// Of two recoveries after the same entry neither goes on where the other does. (splitmix64's last steps.)
raft::EntryId FirstOf(const RecoveryGeneration& generation, const raft::EntryId& last) {
  if (generation == RecoveryGeneration()) return last;
  uint64_t mixed = generation.nonce + generation.epoch * 0x9e3779b97f4a7c15;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  mixed ^= mixed >> 31;
  const uint64_t further = kBeyond_entries + mixed % kBeyond_entries;
  return {.index = raft::LogIndex(last.index.value() + further), .term = last.term};
}

absl::Status CheckFinished(const std::string& path) {
  const absl::StatusOr<std::optional<Identity>> identity = ReadIdentity(path);
  // What is damaged was finished once: it is written as a whole. The node does not start on it, and `recover` reads it.
  if (!identity.ok()) return absl::IsDataLoss(identity.status()) ? absl::OkStatus() : identity.status();
  if (!identity->has_value() || (*identity)->phase != Identity::Phase::kRestoring) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "the log in ", path,
      " was to be restored from a backup, and that was cut short: empty the folder, and restore it again"));
}

absl::Status RestoreLog(const std::string& path, const StoredIdentity& identity, const RecoveryGeneration& generation,
                        SnapshotReader& snapshot, const raft::Configuration& configuration) {
  if (absl::Status status = MakeFolder(path); !status.ok()) return status;
  if (absl::Status status = CheckEmpty(path); !status.ok()) return status;
  Identity named{.cluster_id = identity.cluster_id,
                 .node = identity.node,
                 .configured = identity.node,
                 .generation = generation,
                 .phase = Identity::Phase::kRestoring};
  // Of two that begin in one folder at once, one finds the other's.
  if (absl::Status status = CreateIdentity(path, named); !status.ok()) {
    if (!absl::IsAlreadyExists(status)) return status;
    return absl::AlreadyExistsError(absl::StrCat(status.message(), ": another `restore` fills the folder"));
  }
  if (absl::Status status = Fill(path, identity, generation, snapshot, configuration); !status.ok()) return status;
  named.phase = Identity::Phase::kRestored;
  return WriteIdentity(path, named);
}

}  // namespace hedgerow::storage
