// SPDX-License-Identifier: Apache-2.0
#include "proxy/config/built_in_profiles.h"

#include <cstdio>
#include <cstdlib>
#include <map>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "built_in_profile_files.h"
#include "proxy/config/check_profile.h"
#include "config/decode.h"

namespace hedgerow::config {
namespace {

std::string NameOf(const operate::EmbeddedFile& file) { return std::string(absl::StripSuffix(file.name, ".yaml")); }

std::map<std::string, v1::Profile> LoadAll() {
  std::map<std::string, v1::Profile> profiles;
  for (const operate::EmbeddedFile& file : BuiltInProfileFiles()) {
    Diagnostics errors(file.name);
    profiles[NameOf(file)] = LoadProfile(file.bytes, errors);
    if (errors.empty()) continue;
    std::fprintf(stderr, "broken invariant: a built-in profile has errors\n%s\n",
                 absl::StrJoin(errors.Lines(), "\n").c_str());
    std::abort();
  }
  return profiles;
}

}  // namespace

std::vector<std::string> ProfileNames() {
  std::vector<std::string> names;
  for (const operate::EmbeddedFile& file : BuiltInProfileFiles()) names.push_back(NameOf(file));
  names.push_back(kOwnProfile);
  return names;
}

const v1::Profile* EffectiveProfile(const v1::Service& service) {
  static const auto& built_in = *new std::map<std::string, v1::Profile>(LoadAll());
  if (service.profile() == kOwnProfile) return &service.raw();
  const auto found = built_in.find(service.profile());
  return found == built_in.end() ? nullptr : &found->second;
}

v1::Profile CheckedProfile(const v1::Service& service) {
  const v1::Profile* known = EffectiveProfile(service);
  v1::Profile profile = known == nullptr ? v1::Profile() : *known;
  if (service.check().name().empty()) return profile;
  // A query with recursion desired for the name's SOA (RFC 1035 section 4.1), which every name has an answer about.
  std::string question;
  for (const absl::string_view label : absl::StrSplit(service.check().name(), '.', absl::SkipEmpty()))
    absl::StrAppend(&question, std::string(1, static_cast<char>(label.size())), label);
  profile.clear_check();
  profile.mutable_check()->set_bytes(
      absl::StrCat("000001000001000000000000", absl::BytesToHexString(question), "0000060001"));
  return profile;
}

v1::Profile LoadProfile(absl::string_view text, Diagnostics& errors) {
  v1::Profile profile;
  Locations locations;
  if (Decode(text, profile, locations, errors)) CheckProfile(profile, locations, errors);
  return profile;
}

}  // namespace hedgerow::config
