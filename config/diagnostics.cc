// SPDX-License-Identifier: Apache-2.0
#include "config/diagnostics.h"

#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hedgerow::config {

namespace {

// A key has 32 hexadecimal digits, and one that was copied badly a few less or more, or another letter among them.
// Nothing else that an error repeats has so many.
constexpr size_t kKeyLike = 24;

std::string WithoutKeys(absl::string_view text) {
  std::string out;
  for (size_t at = 0, end = 0; at < text.size(); at = end) {
    size_t digits = 0;
    for (end = at; end < text.size() && absl::ascii_isalnum(static_cast<unsigned char>(text[end])); ++end)
      digits += absl::ascii_isxdigit(static_cast<unsigned char>(text[end])) ? 1 : 0;
    if (end - at >= kKeyLike && digits >= (end - at) / 4 * 3)
      absl::StrAppend(&out, "(", end - at, " characters, perhaps a key)");
    else
      absl::StrAppend(&out, text.substr(at, std::max<size_t>(end - at, 1)));
    end = std::max(end, at + 1);
  }
  return out;
}

}  // namespace

// What stands in a wrong place may be a key, and errors come to a log, a status and a page that others read.
void Diagnostics::Add(Mark mark, absl::string_view path, absl::string_view message,
                      const std::vector<std::string>& files, bool may_come) {
  const auto absent = [](const std::string& file) { return access(file.c_str(), F_OK) != 0 && errno == ENOENT; };
  if (may_come || std::any_of(files.begin(), files.end(), absent)) ++absent_;
  if (may_come || !files.empty()) ++of_files_;
  if (kept_.size() >= kMaxKept) {
    ++dropped_;
    return;
  }
  kept_.push_back({mark, WithoutKeys(path), WithoutKeys(message)});
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
  const std::string shown = WithoutKeys(text);  // before it is cut, and the rest of a key is none
  const bool cut = shown.size() > kShown;
  return absl::StrCat("\"", absl::Utf8SafeCEscape(shown.substr(0, kShown)), cut ? "...\"" : "\"");
}

}  // namespace hedgerow::config
