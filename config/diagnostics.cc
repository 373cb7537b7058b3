// SPDX-License-Identifier: Apache-2.0
#include "config/diagnostics.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <tuple>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hedgerow::config {

void Diagnostics::Add(Mark mark, absl::string_view path, absl::string_view message,
                      const std::vector<std::string>& files) {
  const auto absent = [](const std::string& file) { return access(file.c_str(), F_OK) != 0 && errno == ENOENT; };
  if (std::any_of(files.begin(), files.end(), absent)) ++absent_;
  if (kept_.size() >= kMaxKept) {
    ++dropped_;
    return;
  }
  kept_.push_back({mark, std::string(path), std::string(message)});
}

std::vector<Diagnostic> Diagnostics::InOrder() const {
  std::vector<Diagnostic> sorted = kept_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Diagnostic& a, const Diagnostic& b) {
    return std::tie(a.mark.line, a.mark.column) < std::tie(b.mark.line, b.mark.column);
  });
  return sorted;
}

std::vector<std::string> Diagnostics::Lines() const {
  std::vector<std::string> lines;
  for (const Diagnostic& error : InOrder()) {
    std::string line = file_name_;
    if (error.mark.line > 0) {
      absl::StrAppend(&line, ":", error.mark.line, ":", error.mark.column);
    }
    absl::StrAppend(&line, ": ");
    if (!error.path.empty()) absl::StrAppend(&line, error.path, ": ");
    absl::StrAppend(&line, error.message);
    lines.push_back(std::move(line));
  }
  if (dropped_ > 0) {
    lines.push_back(absl::StrCat(file_name_, ": and ", dropped_, " more errors"));
  }
  return lines;
}

absl::Status Diagnostics::ToStatus() const {
  if (empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(Lines(), "\n"));
}

std::string Quote(absl::string_view text) {
  constexpr size_t kShown = 60;
  const bool cut = text.size() > kShown;
  return absl::StrCat("\"", absl::Utf8SafeCEscape(text.substr(0, kShown)), cut ? "...\"" : "\"");
}

}  // namespace hedgerow::config
