// SPDX-License-Identifier: Apache-2.0
//
// Profiles without a configuration around them, for tests. What has errors ends the process.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string>

#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "proxy/config/built_in_profiles.h"
#include "proxy/profiles/profile.h"

namespace hedgerow {

inline hr_profile BuiltInProfile(const std::string& name, std::initializer_list<absl::string_view> duplicate = {}) {
  v1::Service service;
  service.set_profile(name);
  for (const absl::string_view operation : duplicate) service.add_duplicate(std::string(operation));
  return ProfileOf(service);
}

// `block`: the text of a service's `raw` block.
inline hr_profile OwnProfile(absl::string_view block) {
  config::Diagnostics errors("profile");
  v1::Service service;
  service.set_profile(config::kOwnProfile);
  *service.mutable_raw() = config::LoadProfile(block, errors);
  if (!errors.empty()) {
    std::fprintf(stderr, "%s\n", absl::StrJoin(errors.Lines(), "\n").c_str());
    std::abort();
  }
  return ProfileOf(service);
}

}  // namespace hedgerow
