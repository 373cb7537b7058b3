// SPDX-License-Identifier: Apache-2.0
//
// What a program can do that an earlier one could not, as bits that nodes announce to each other. A leader proposes
// what needs a bit only while every member announces it, so that nodes of several versions are one cluster during an
// upgrade. A bit is never used again for another thing; once all supported versions have it, it may be asked for no
// more.

#pragma once

#include <cstdint>

namespace hedgerow::kv {

// Entries with each voter's fingerprint (state_checks.h): an earlier program takes them for the leader's.
inline constexpr uint32_t kStateChecksFeature = 1u << 0;

// Requests without a session say when they came (Command::came_ns): an earlier program does late ones, too.
inline constexpr uint32_t kCameFeature = 1u << 1;

inline constexpr uint32_t kAllFeatures = kStateChecksFeature | kCameFeature;

}  // namespace hedgerow::kv
