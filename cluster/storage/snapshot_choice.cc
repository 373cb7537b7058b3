// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/snapshot_choice.h"

#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "cluster/storage/errors.h"

namespace hedgerow::storage {
namespace {

bool IsPartOf(const raft::RestoredState& log, const raft::EntryId& last) {
  if (last.index <= log.start.index) return last == log.start;
  const uint64_t place = last.index.value() - log.start.index.value();
  return place <= log.entries.size() && log.entries[place - 1].term == last.term;
}

absl::StatusOr<raft::Snapshot> Use(const SnapshotFolder& folder, const raft::EntryId& last,
                                   const StoredIdentity& identity, const LoadSnapshot& load, LoadProgress* progress) {
  const absl::StatusOr<std::unique_ptr<SnapshotReader>> reader = SnapshotReader::Open(folder.PathOf(last));
  if (!reader.ok()) return reader.status();
  const SnapshotHeader& header = (*reader)->header();
  if (header.snapshot.last != last) {
    return absl::DataLossError(absl::StrCat("the snapshot ", folder.PathOf(last), " is of entry ",
                                            header.snapshot.last.index.value(), " of term ",
                                            header.snapshot.last.term.value(), ", not of what its name says"));
  }
  if (header.cluster_id != identity.cluster_id) {
    return absl::FailedPreconditionError(absl::StrCat("the snapshot ", folder.PathOf(last), " is of cluster ",
                                                      header.cluster_id, ", and this is a node of cluster ",
                                                      identity.cluster_id));
  }
  if (progress != nullptr) (*reader)->ReportTo(*progress);
  if (absl::Status status = load(**reader); !status.ok()) return status;
  return header.snapshot;
}

}  // namespace

absl::Status ReadThrough(SnapshotReader& snapshot) {
  while (true) {
    const absl::StatusOr<std::optional<std::string>> chunk = snapshot.Next();
    if (!chunk.ok()) return chunk.status();
    if (!chunk->has_value()) return absl::OkStatus();
  }
}

absl::StatusOr<std::string> ChooseSnapshot(const SnapshotFolder& folder, const std::string& log_path,
                                           const StoredIdentity& identity, const LoadSnapshot& load,
                                           raft::RestoredState& restored, LoadProgress* progress) {
  std::string trouble;
  for (const raft::EntryId& last : folder.List()) {
    if (!IsPartOf(restored, last)) continue;
    absl::StatusOr<raft::Snapshot> snapshot = Use(folder, last, identity, load, progress);
    if (snapshot.ok()) {
      restored.snapshot = *std::move(snapshot);
      break;
    }
    if (!absl::IsDataLoss(snapshot.status())) return snapshot.status();
    absl::StrAppend(&trouble, trouble.empty() ? "" : "; ", snapshot.status().message());
  }
  const raft::LogIndex start = restored.start.index;
  if (restored.snapshot.last.index < start || restored.snapshot.last.index == raft::LogIndex()) {
    if (start > raft::LogIndex()) {
      return DamagedError(log_path, absl::StrCat("it begins after entry ", start.value(),
                                                 ", and there is no whole snapshot of what came before",
                                                 trouble.empty() ? "" : ": ", trouble));
    }
  }
  folder.RemoveAllBut(restored.snapshot.last);
  if (trouble.empty()) return trouble;
  return absl::StrCat(trouble, ". It was removed: the log reaches back to ",
                      restored.snapshot.last.index == raft::LogIndex() ? "its beginning" : "an older one",
                      ", so nothing is lost. Look for the cause (dmesg, smartctl)");
}

}  // namespace hedgerow::storage
