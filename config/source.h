// SPDX-License-Identifier: Apache-2.0
//
// Reads a configuration file as bytes, refusing what cannot be one: missing,
// unreadable, a directory or device, too large, or binary. Called by load.cc
// before any parser sees the text.

#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "config/diagnostics.h"

namespace hedgerow::config {

// 64 services of 8 backends take some 40 kB; a megabyte is no configuration.
inline constexpr size_t kMaxFileBytes = 1 << 20;

// The file's text, or nothing and an error in `errors`.
std::optional<std::string> ReadSource(const std::string& path, Diagnostics& errors);

// Refuses text that is too large, or that holds NUL, other control characters
// or invalid UTF-8. Returns whether it passed.
bool CheckText(absl::string_view text, Diagnostics& errors);

}  // namespace hedgerow::config
