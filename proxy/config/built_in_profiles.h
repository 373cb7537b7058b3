// SPDX-License-Identifier: Apache-2.0
//
// The profiles that are part of the program: the files of proxy/profiles/, in the words of a service's `raw`
// block, read and checked as such a block is. Called by the checks, by `plan` and by what makes the kernel's
// profile (proxy/profiles/profile.h).
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "config/diagnostics.h"
#include "proxy/api/config.pb.h"

namespace hedgerow::config {

inline constexpr char kOwnProfile[] = "raw";        // the service has a block of its own
inline constexpr char kNoNegativeReply[] = "none";  // in a service's `negative_replies`

// What `profile` may say: the built-in ones, and kOwnProfile.
std::vector<std::string> ProfileNames();

// The profile that a service goes by, its own or a built-in one; null where its `profile` is no name of one.
// Ends the process when a built-in profile has errors.
const v1::Profile* EffectiveProfile(const v1::Service& service);

// The same, and its `check` is the question of the service's own `check`, where that names one.
v1::Profile CheckedProfile(const v1::Service& service);

// One profile from the text of its block. Complete only where `errors` stays empty.
v1::Profile LoadProfile(absl::string_view text, Diagnostics& errors);

}  // namespace hedgerow::config
