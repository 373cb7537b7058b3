// SPDX-License-Identifier: Apache-2.0
//
// One file of a log: a header in a page of its own, and records (records.h) one behind the other. A file has
// its size before it is used, and is used again once nothing in it is needed: each use draws a new salt, which
// the header says and every record is sealed with, so that nothing of an earlier use is ever read. For
// segments.h, which writes them, and log_reader.h.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/raft/types.h"
#include "net/unique_fd.h"

namespace hedgerow::storage {

// Header, and what a page cache reads and writes at once.
inline constexpr size_t kPage_bytes = 4096;

std::string SegmentFolderOf(const std::string& log_path);

struct OpenSegment {
  net::UniqueFd file;
  uint64_t salt = 0;
};

// A file that was not there, of this size, with its name durable. `written`: its blocks are, too, so that a
// sync of what is written to it later has only those bytes to write. It is removed again if that fails.
absl::StatusOr<OpenSegment> MakeSegment(const std::string& path, uint64_t copy_id, size_t bytes, bool written);
// A file in which nothing is needed any more.
absl::StatusOr<OpenSegment> RecycleSegment(const std::string& path, uint64_t copy_id);

// All of `bytes`, from `place` on.
absl::Status WriteAt(const net::UniqueFd& file, const std::string& path, std::string_view bytes, size_t place);
absl::StatusOr<std::string> ReadSegment(const std::string& path);

// Whole records with consecutive batches, without anything between them.
struct RecordRange {
  size_t begin = 0;  // in the file
  size_t end = 0;
  uint64_t first_batch = 0;
  uint64_t last_batch = 0;
  raft::LogIndex reached{};  // the furthest last entry of their batches

  bool begins_file() const { return begin == kPage_bytes; }
};
struct SegmentContents {
  uint64_t salt = 0;  // 0: it is no segment of this log
  // More than one: something between them is not as it was written. None: nothing was written in this use.
  std::vector<RecordRange> ranges{};
};
SegmentContents LookInto(std::string_view bytes, uint64_t copy_id);

}  // namespace hedgerow::storage
