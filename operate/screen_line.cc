// SPDX-License-Identifier: Apache-2.0
#include "operate/screen_line.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace hedgerow::operate {
namespace {

// In the order of Mark.
constexpr std::array kSequences = {"", "\033[1m", "\033[2m", "\033[1;33m", "\033[1;31m"};
static_assert(kSequences.size() == static_cast<size_t>(Mark::kAlarm) + 1);

}  // namespace

std::string Render(const Line& line, int width, bool colour) {
  std::string out;
  int left = width;
  for (const Span& span : line) {
    std::string text = span.text.substr(0, static_cast<size_t>(std::max(left, 0)));
    if (text.empty()) continue;
    left -= static_cast<int>(text.size());
    const std::string sequence = colour ? kSequences.at(static_cast<size_t>(span.mark)) : "";
    absl::StrAppend(&out, sequence, text, sequence.empty() ? "" : "\033[0m");
  }
  if (!colour) absl::StripTrailingAsciiWhitespace(&out);
  return out;
}

}  // namespace hedgerow::operate
