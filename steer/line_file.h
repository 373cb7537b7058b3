// SPDX-License-Identifier: Apache-2.0
//
// The lines of a file that a user names (`--devices FILE`). It may be anything: a device without an end or without lines, a pipe to
// which no process writes. Each of these ends with an error that says so; a pipe whose writer is slow is waited for, and said to be.

#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "net/unique_fd.h"

namespace hedgerow::steer {

class LineFile {
 public:
  static constexpr size_t kLineMax_bytes = 4096;
  static constexpr uint64_t kLinesMax = 10'000'000;
  // After such a silence the user is told, or, of a pipe without a writer, the reading ends.
  static constexpr absl::Duration kSilence = absl::Seconds(5);

  // "-": standard input. `err` gets what a user should know while it waits.
  static absl::StatusOr<LineFile> Open(const std::string& path, std::ostream& err, absl::Duration silence = kSilence);

  // Without its end. Nothing: there are no more.
  absl::StatusOr<std::optional<std::string>> Next();
  uint64_t lines() const { return lines_; }

 private:
  LineFile(std::string name, net::UniqueFd file, int fd, std::ostream& err, absl::Duration silence)
      : name_(std::move(name)), file_(std::move(file)), fd_(fd), err_(&err), silence_(silence) {}

  // False: it is at its end.
  absl::StatusOr<bool> Fill();
  absl::StatusOr<bool> Wait();
  absl::Status Error(const std::string& what) const;

  std::string name_;
  net::UniqueFd file_;  // not valid: standard input
  int fd_;
  std::ostream* err_;
  absl::Duration silence_;
  bool told_ = false;
  std::string bytes_;
  size_t at_ = 0;  // in bytes_
  uint64_t lines_ = 0;
};

}  // namespace hedgerow::steer
