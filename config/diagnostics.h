// SPDX-License-Identifier: Apache-2.0
//
// Where something stands in a configuration file, and the list of everything
// that is wrong with it. A file's errors are collected, never only the first,
// so that one round of editing repairs them all.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace hedgerow::config {

// Counted from 1, as editors do. A line of 0 means "the file as a whole".
struct Mark {
  int line = 0;
  int column = 0;
};

struct Diagnostic {
  Mark mark;
  std::string path;  // services[0].delay; empty for the file as a whole
  std::string message;
};

class Diagnostics {
 public:
  // A hostile file must not turn into megabytes of errors.
  static constexpr size_t kMaxKept = 100;

  explicit Diagnostics(absl::string_view file_name) : file_name_(file_name) {}

  // `files`: that the message is about. One that is not there may come by itself (await_files.h), and so may what
  // `may_come` says of.
  void Add(Mark mark, absl::string_view path, absl::string_view message, const std::vector<std::string>& files = {},
           bool may_come = false);

  bool empty() const { return kept_.empty(); }
  // Those that were kept, in the order of the file.
  std::vector<Diagnostic> InOrder() const;
  bool only_of_files() const { return of_files_ > 0 && of_files_ == kept_.size() + dropped_; }
  bool only_absent_files() const { return absent_ > 0 && absent_ == kept_.size() + dropped_; }
  const std::string& file_name() const { return file_name_; }

  // One line per error, in the order of the file.
  std::vector<std::string> Lines() const;
  // OkStatus, or InvalidArgument with all the lines.
  absl::Status ToStatus() const;

 private:
  std::string file_name_;
  std::vector<Diagnostic> kept_;
  size_t dropped_ = 0;
  size_t absent_ = 0, of_files_ = 0;
};

// Quotes a value from the file for an error message: printable, and at most
// some 60 characters of it.
std::string Quote(absl::string_view text);

}  // namespace hedgerow::config
