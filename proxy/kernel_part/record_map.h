// SPDX-License-Identifier: Apache-2.0
//
// Some text that outlives the daemon, beside what it is about: a pinned BPF map that no program reads. It is
// written in two halves in turn, each with a checksum, so that a daemon killed while it writes leaves the text
// before. The instance's record (proxy/api/record.proto) is kept in one.
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
  static constexpr size_t kHalfBytes = 256 * 1024;

  // AlreadyExists when something is pinned at `path`.
  static absl::StatusOr<RecordMap> Create(const std::string& path);
  // NotFound: nothing is pinned there. FailedPrecondition: something else is.
  static absl::StatusOr<RecordMap> Open(const std::string& path);

  // InvalidArgument when it does not fit into half of the map.
  absl::Status Write(absl::string_view text);
  // NotFound when nothing was ever written to its end.
  absl::StatusOr<std::string> Read() const;
  absl::StatusOr<bool> RestorePin(const std::string& path) const { return memory_.RestorePin(path); }

 private:
  explicit RecordMap(PinnedArray memory) : memory_(std::move(memory)) {}
  volatile char* Half(int half) const { return memory_.At<char>(0) + static_cast<size_t>(half) * kHalfBytes; }

  PinnedArray memory_;
};

}  // namespace hedgerow
