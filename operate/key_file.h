// SPDX-License-Identifier: Apache-2.0
//
// A key in a file of its own, as `openssl rand -hex 16` writes it: 32 hexadecimal digits and a line feed. A key
// that others can read, or change, is none, so such a file is refused. Called by the readers of configurations
// (proxy/config, cluster/node) and by `hedgerow plan`.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "operate/file_rights.h"

namespace hedgerow::operate {

// SipHash takes 16 bytes.
inline constexpr size_t kKeyDigits = 32;

// `text` in lower case if it is exactly 32 hexadecimal digits. Nothing for any other text, and for a key of
// zeros, because that is a placeholder left unfilled. Pure.
std::optional<std::string> KeyDigits(absl::string_view text);

// The key's 32 digits, in lower case; white space around them is ignored. InvalidArgument says what is wrong
// with the file, begins without its name ("cannot be opened: ...") and repeats nothing of its content: missing,
// not a regular file, of a mode that WhyNotSecret refuses, of an owner that WhyNotFollowed refuses (for a reader
// that serves), too long, something else inside. Never waits for a FIFO.
absl::StatusOr<std::string> ReadKeyFile(const std::string& path, Reader reader);

// The same of a file that holds one key or two, a line each: while a key is changed, both are valid. In the order of
// the file; the first one seals. Two that are the same are an error.
absl::StatusOr<std::vector<std::string>> ReadKeyRing(const std::string& path, Reader reader);

// Puts these keys into a file that is there, in one step and durably: a reader finds the former keys or these. Owner
// and mode stay. An error: the former keys are there.
absl::Status WriteKeyRing(const std::string& path, const std::vector<std::string>& keys);

// Puts a file there in one step and durably, with the owner and mode of `rights`. A link is replaced, not followed.
absl::Status ReplaceFile(const std::string& path, const std::string& text, const struct stat& rights);

}  // namespace hedgerow::operate
