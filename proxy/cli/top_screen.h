// SPDX-License-Identifier: Apache-2.0
//
// A TopReport for people: lines of a given width, with marks for what a terminal
// may show in colour. Pure; printed by top.cc on a screen, or plainly into a pipe.

#pragma once

#include <string>
#include <vector>

#include "operate/screen_line.h"
#include "proxy/api/counts.pb.h"

namespace hedgerow::cli {

using operate::Line;
using operate::Mark;
using operate::Render;
using operate::Span;

// Lines no longer than `width` (of bytes, all ASCII but for names). From 120 columns on the kernel programs
// stand beside the services; below, under them.
std::vector<Line> LayOutTop(const v1::TopReport& report, int width);

// 12345.6 -> "12346", 3.21 -> "3.2", 1234567 -> "1.23M".
std::string RateText(double per_second);

}  // namespace hedgerow::cli
