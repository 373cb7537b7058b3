// SPDX-License-Identifier: Apache-2.0
//
// Reads a configuration file as bytes, refusing what cannot be one: missing,
// unreadable, a directory or device, too large, or binary. Called by the loaders of
// both configurations before any parser sees the text.

#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "config/diagnostics.h"
#include "config/locations.h"
#include "operate/file_opener.h"
#include "operate/file_rights.h"

namespace hedgerow::config {

// 64 services of 8 backends take some 40 kB; a megabyte is no configuration.
inline constexpr size_t kMaxFileBytes = 1 << 20;

using Source = operate::FileText;

// Nothing, and an error in `errors`, for what is no text.
std::optional<Source> ReadSource(const std::string& path, Diagnostics& errors);

// Once it is decoded: errors at the keys that stand in a file which others can read, and for a file that `reader`
// does not follow (operate/file_rights.h).
void CheckRights(const Source& source, const Locations& locations, operate::Reader reader, Diagnostics& errors);

// Refuses text that is too large, or that holds NUL, other control characters
// or invalid UTF-8. Returns whether it passed.
bool CheckText(absl::string_view text, Diagnostics& errors);

}  // namespace hedgerow::config
