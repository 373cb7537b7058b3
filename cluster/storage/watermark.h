// SPDX-License-Identifier: Apache-2.0
//
// A file beside the log's that says: batches up to this one were durable. It answers the question that a
// log cannot answer about its own end: was what is missing there torn by a crash, or synced and
// then lost? It is written after a batch is durable and before anybody hears of it, and not synced itself, so
// it may lag behind after a power cut and is never ahead. It also holds the folder's lock, and says whether
// memory mode has left something unsynced.

#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/unique_fd.h"

namespace hedgerow::storage {

// The kernel's name of the host's present run; empty where it cannot be read. An empty one is no other's equal:
// not to know in which run something was written is to have no proof that it is this one.
std::string KernelBootId();
inline bool IsSameBoot(const std::string& recorded, const std::string& now) { return !now.empty() && recorded == now; }

class Watermark {
 public:
  struct Value {
    uint64_t batch = 0;
    // Some batches up to `batch` may be in the page cache only, of the run of the host that `boot_id` names.
    bool unsynced = false;
    std::string boot_id{};  // at most 64 bytes

    bool operator==(const Value&) const = default;
  };

  // Takes the lock of the folder `path`: Unavailable if another process has it. Without the file it makes one,
  // synced, unless `must_exist`.
  static absl::StatusOr<Watermark> Open(const std::string& path, bool must_exist);

  const Value& value() const { return value_; }
  absl::Status Write(const Value& value);
  absl::Status Sync();
  // Whether the next process to open `path` would find this very file: not where the folder was removed, moved or
  // mounted over. A caller that may not wait for the disk learns of a removed file only.
  bool IsThere(bool may_wait) const;

 private:
  explicit Watermark(std::string path) : path_(std::move(path)) {}
  absl::Status Read(bool must_exist);

  std::string path_;
  net::UniqueFd file_;
  Value value_;
};

}  // namespace hedgerow::storage
