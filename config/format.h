// SPDX-License-Identifier: Apache-2.0
//
// The formats that strings in the configuration may have (rules.proto's
// Format): is this text one, what is its canonical spelling, and if not, why
// not. Called by the decoder for every string value.

#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "config/rules.pb.h"

namespace hedgerow::config {

// sockaddr_un holds 108 bytes; some are kept for a temporary name beside it.
inline constexpr size_t kMaxSocketPathBytes = 100;
// PATH_MAX is 4096; a folder needs room for the names of its files.
inline constexpr size_t kMaxFilePathBytes = 4000;
// IFNAMSIZ - 1, less the suffix "c0" of the clock's links.
inline constexpr size_t kMaxInterfaceBytes = 13;
inline constexpr size_t kMaxBytes = 16;
inline constexpr size_t kMaxPayloadBytes = 512;
inline constexpr size_t kMaxTextBytes = 8;

// The text in its canonical spelling, or nothing where it has another format.
std::optional<std::string> Canonical(Format format, absl::string_view text);

// Before the path of a socket, in FORMAT_LISTEN.
inline constexpr absl::string_view kUnixPrefix = "unix:";

// Why metrics may not be served at `listen`, which is of FORMAT_LISTEN; empty: they may. The keys are named as in the
// file.
std::string WhyNotListened(absl::string_view listen, absl::string_view tls_key, bool tls, absl::string_view token_key,
                           bool token);

// A reason that adds to the expectation ("a loopback address"), or empty.
std::string WhyRefused(Format format, absl::string_view text);

}  // namespace hedgerow::config
