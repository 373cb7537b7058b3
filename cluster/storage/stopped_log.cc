// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/stopped_log.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/storage/restore_log.h"
#include "cluster/storage/errors.h"
#include "cluster/storage/log_reader.h"
#include "cluster/storage/snapshot_folder.h"

namespace hedgerow::storage {
namespace {

// FailedPrecondition, DataLoss: as when a node opens it. NotFound: there is none.
absl::StatusOr<LogHeader> HeaderOf(const StorageOptions& options, const StoredIdentity& expected) {
  absl::StatusOr<std::optional<LogHeader>> header = ReadLogHeader(options.path, expected);
  if (!header.ok()) return header.status();
  if (!header->has_value()) return absl::NotFoundError(absl::StrCat("there is no log in ", options.path));
  return **std::move(header);
}

// As ChooseSnapshot does, but none is removed, and one that goes further than the log is taken as well: it is
// synced by itself, while the log that goes on from it may have been in the page cache alone (memory mode).
// What the log holds and it does not was never committed. True: the log goes on from the one that was loaded.
bool LoadPart(const SnapshotFolder& folder, const raft::EntryId& last, const StoredIdentity& expected,
              const LoadSnapshot& load, StoppedLog& log) {
  const raft::RestoredState& raft = log.raft;
  const uint64_t place = last.index.value() - std::min(last.index, raft.start.index).value();
  const bool part = last == raft.start || (last.index > raft.start.index && place <= raft.entries.size() &&
                                           raft.entries[place - 1].term == last.term);
  const bool further = last.index > log.last.index && last.term >= log.last.term;
  if (!part && !further) return false;
  absl::StatusOr<std::unique_ptr<SnapshotReader>> reader = SnapshotReader::Open(folder.PathOf(last));
  absl::Status status = reader.status();
  if (status.ok() && (*reader)->header().snapshot.last != last) {
    status = absl::DataLossError("it is not of the entry that its name says");
  }
  if (status.ok() && (*reader)->header().cluster_id != expected.cluster_id) {
    status = absl::DataLossError("it is of another cluster");
  }
  if (status.ok()) status = load(**reader);
  if (!status.ok()) {
    log.doubts.push_back(absl::StrCat("a snapshot cannot be used: ", status.message()));
    return false;
  }
  log.raft.snapshot = (*reader)->header().snapshot;
  if (further) {
    log.doubts.push_back(absl::StrCat("its newest snapshot, of entry ", last.index.value(),
                                      ", goes further than its log, which ends with entry ", log.last.index.value(),
                                      ": the log's end is gone, or the snapshot had just been received"));
    log.raft.start = last;
    log.raft.entries.clear();
    log.last = last;
  }
  return true;
}

}  // namespace

absl::StatusOr<StoppedLog> ReadStoppedLog(const StorageOptions& options, const StoredIdentity& expected,
                                          const LoadSnapshot& load) {
  const absl::StatusOr<LogHeader> header = HeaderOf(options, expected);
  if (!header.ok()) return header.status();
  if (absl::Status status = CheckFinished(options.path); !status.ok()) return status;
  absl::StatusOr<Watermark> lock = Watermark::Open(options.path, /*must_exist=*/true);
  if (!lock.ok()) return lock.status();
  StoppedLog log{.lock = *std::move(lock), .generation = header->generation, .copy_id = header->copy_id};
  const Watermark::Value mark = log.lock.value();
  if (mark.unsynced && !IsSameBoot(mark.boot_id, options.boot_id)) {
    log.doubts.push_back(
        "it was written in memory mode and this host has restarted since: what was not on its disk by then is "
        "gone");
  }
  absl::StatusOr<ReadLog> found = ReadSegments(options.path, header->copy_id, options.progress);
  if (!found.ok()) return found.status();
  if (!found->damage.empty()) log.doubts.push_back(absl::StrCat("its newest part is damaged: ", found->damage));
  const uint64_t written = std::max(mark.batch, found->last_batch_seen);
  if (found->state.batch == 0 && written > 0) {
    return DamagedError(options.path,
                        absl::StrCat("nothing of it can be read, though ", written, " batches had been written"));
  }
  if (found->state.batch < written) {
    log.doubts.push_back(absl::StrCat("the log ends with batch ", found->state.batch, ", though batch ", written,
                                      " had been written: what came in between is gone"));
  }
  log.raft = std::move(found->raft);
  log.last = {.index = found->state.last_index, .term = found->state.last_term};

  const absl::StatusOr<SnapshotFolder> folder = SnapshotFolder::Open(options.path);
  if (!folder.ok()) return folder.status();
  for (const raft::EntryId& last : folder->List()) {
    if (LoadPart(*folder, last, expected, load, log)) break;
  }
  if (log.raft.snapshot.last.index < log.raft.start.index) {
    return DamagedError(options.path, absl::StrCat("it begins after entry ", log.raft.start.index.value(),
                                                   ", and there is no whole snapshot of what came before"));
  }
  return log;
}

absl::StatusOr<RecoveryGeneration> ReadGenerationOfStopped(const StorageOptions& options,
                                                           const StoredIdentity& expected) {
  const absl::StatusOr<LogHeader> header = HeaderOf(options, expected);
  if (!header.ok()) return header.status();
  return header->generation;
}

}  // namespace hedgerow::storage
