// SPDX-License-Identifier: Apache-2.0
//
// The folder `snapshots` beside the log: which snapshots there are, and how one comes to be there as a whole or
// not at all. A file's name says what it is of; what is still being written has another ending and is removed
// at the next start. Used by LogStorage and by the writers and receivers of snapshots, each in a thread of its
// own.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/raft/types.h"
#include "cluster/storage/snapshot_file.h"

namespace hedgerow::storage {

class SnapshotFolder {
 public:
  // Makes it if need be, and removes what was not finished. Its name is durable when this returns.
  static absl::StatusOr<SnapshotFolder> Open(const std::string& log_path);

  // The newest first.
  std::vector<raft::EntryId> List() const;
  std::string PathOf(const raft::EntryId& last) const;

  // `what`, lower-case letters, keeps writers apart: "taking", "receiving".
  std::string UnfinishedPathOf(const raft::EntryId& last, std::string_view what) const;
  absl::StatusOr<SnapshotFileWriter> Begin(const SnapshotHeader& header, std::string_view what) const;
  // A file that is whole and synced: from now on it is a snapshot, durably.
  absl::Status Publish(const std::string& unfinished_path, const raft::EntryId& last) const;
  void Discard(const SnapshotFileWriter& writer) const;

  void Remove(const raft::EntryId& last) const;
  void RemoveBefore(raft::LogIndex index) const;
  void RemoveAllBut(const raft::EntryId& last) const;
  uint64_t size_bytes() const;

 private:
  explicit SnapshotFolder(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

}  // namespace hedgerow::storage
