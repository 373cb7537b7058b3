// SPDX-License-Identifier: Apache-2.0
//
// Some text that outlives the daemon, beside what it is about: a pinned BPF map that no program reads. It is
// written in two halves in turn, each with a checksum, so that a daemon killed while it writes leaves the text
// before. A text that does not fit is written into a larger map, which takes the place of the former. The instance's
// record (proxy/api/record.proto) is kept in one.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proxy/kernel_part/pinned_array.h"

namespace hedgerow {

class RecordMap {
 public:
  static constexpr size_t kFirstHalfBytes = 256 * 1024;

  // AlreadyExists when something is pinned at `path`.
  static absl::StatusOr<RecordMap> Create(const std::string& path);
  // NotFound: nothing is pinned there. FailedPrecondition: something else is.
  static absl::StatusOr<RecordMap> Open(const std::string& path);

  absl::Status Write(absl::string_view text);
  // NotFound when nothing was ever written to its end.
  absl::StatusOr<std::string> Read() const;
  absl::StatusOr<bool> RestorePin(const std::string& path) const { return memory_.RestorePin(path); }

 private:
  RecordMap(std::string path, PinnedArray memory) : path_(std::move(path)), memory_(std::move(memory)) {}
  size_t HalfBytes() const;
  volatile char* Half(int half) const { return memory_.At<char>(0) + static_cast<size_t>(half) * HalfBytes(); }
  absl::Status Grow(size_t half_bytes, absl::string_view text);

  std::string path_;
  PinnedArray memory_;
};

}  // namespace hedgerow
