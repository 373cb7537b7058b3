// SPDX-License-Identifier: Apache-2.0
//
// One snapshot as a file: what it is of, then the state machine's chunks, then an end. Everything has a CRC-32
// that covers its place as well, so that a chunk of another snapshot, or in another's place, is as recognisable
// as a flipped bit. Little-endian:
//
//   header   magic, format version, length of the rest; cluster, index, term, configuration; checksum
//   chunk    length (never 0), checksum, bytes; as many as there are
//   end      0, checksum, number of chunks, bytes in them; nothing comes after it
//
// Used by SnapshotFolder, which knows where such files are.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/raft/types.h"
#include "cluster/storage/load_progress.h"
#include "net/unique_fd.h"

namespace hedgerow::storage {

// Raised when an older program could misread what a newer one writes; what was written before is read for ever.
// 1: the configuration is a list of voters.
inline constexpr uint32_t kSnapshotVersion = 2;
// A longer one is damage, and not read into memory.
inline constexpr size_t kSnapshotChunkMax_bytes = 16 * 1024 * 1024;

struct SnapshotHeader {
  uint64_t cluster_id = 0;
  raft::Snapshot snapshot{};

  bool operator==(const SnapshotHeader&) const = default;
};

// Writes from the beginning. What was not finished is no snapshot.
class SnapshotFileWriter {
 public:
  // A file of this name is written over.
  static absl::StatusOr<SnapshotFileWriter> Create(const std::string& path, const SnapshotHeader& header);

  // The same in a new file, behind `before`; AlreadyExists.
  static absl::StatusOr<SnapshotFileWriter> CreateBehind(const std::string& path, std::string_view before,
                                                         const SnapshotHeader& header);

  absl::Status Append(std::string_view chunk);
  // Writes the end. Everything is synced when it returns; the file's name is not.
  absl::Status Finish();

  const std::string& path() const { return path_; }
  const SnapshotHeader& header() const { return header_; }
  uint64_t size_bytes() const { return size_bytes_; }

 private:
  SnapshotFileWriter(std::string path, SnapshotHeader header, net::UniqueFd file)
      : path_(std::move(path)), header_(std::move(header)), file_(std::move(file)) {}

  absl::Status Write(std::string_view bytes);

  std::string path_;
  SnapshotHeader header_;
  net::UniqueFd file_;
  uint64_t chunks_ = 0;
  uint64_t chunk_bytes_ = 0;
  uint64_t unsynced_bytes_ = 0;
  uint64_t size_bytes_ = 0;
};

class SnapshotReader {
 public:
  // DataLoss: it is damaged. FailedPrecondition: a format of a later program.
  // `offset`: where it begins in the file, in bytes.
  static absl::StatusOr<std::unique_ptr<SnapshotReader>> Open(const std::string& path, uint64_t offset = 0);

  const SnapshotHeader& header() const { return header_; }
  // What is read from now on is reported there.
  void ReportTo(LoadProgress& progress);
  // The next chunk; nothing once all were given and the end has said that they are all. DataLoss: it is
  // damaged.
  absl::StatusOr<std::optional<std::string>> Next();

 private:
  SnapshotReader(std::string path, net::UniqueFd file) : path_(std::move(path)), file_(std::move(file)) {}

  absl::Status ReadHeader();
  absl::Status ReadEnd(uint64_t checksum);
  absl::StatusOr<std::string> Read(size_t bytes);
  absl::Status Damaged(const std::string& what) const;

  std::string path_;
  net::UniqueFd file_;
  SnapshotHeader header_;
  uint64_t chunks_ = 0;
  uint64_t chunk_bytes_ = 0;
  bool ended_ = false;
  LoadProgress* progress_ = nullptr;
};

}  // namespace hedgerow::storage
