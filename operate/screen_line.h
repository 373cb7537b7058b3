// SPDX-License-Identifier: Apache-2.0
//
// A line for people, with marks for what a terminal may show in colour. Pure.
#pragma once

#include <string>
#include <vector>

namespace hedgerow::operate {

enum class Mark { kPlain, kTitle, kQuiet, kWarning, kAlarm };

struct Span {
  std::string text;
  Mark mark = Mark::kPlain;
};
using Line = std::vector<Span>;

// Cut to `width`; with `colour`, marks as ANSI sequences.
std::string Render(const Line& line, int width, bool colour);

}  // namespace hedgerow::operate
