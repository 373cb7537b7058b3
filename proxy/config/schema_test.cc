// SPDX-License-Identifier: Apache-2.0
//
// The proxy's schema: its rules are sound, docs/config.md and profile-language.md document it, and a service's profile
// may be what proxy/profiles/ has.

#include "config/schema.h"

#include <gtest/gtest.h>

#include "config/schema_testing.h"
#include "proxy/api/config.pb.h"
#include "proxy/config/built_in_profiles.h"

namespace hedgerow::config {
namespace {

TEST(Schema, EveryKeyHasATypeARangeAndADefaultInside) { ExpectSoundRules(*v1::Config::descriptor()); }

TEST(Schema, EveryNumberIsRequiredOrHasADefault) {
  int numbers = 0;
  ForEachKey(*v1::Config::descriptor(), [&](const std::string& path, const google::protobuf::FieldDescriptor& field) {
    if (!IsNumber(field)) return;
    ++numbers;
    EXPECT_NE(RuleOf(field).required(), !RuleOf(field).default_value().empty()) << path;
  });
  EXPECT_GT(numbers, 15);
}

TEST(Schema, EveryKeyIsDocumentedWithItsDefaultAndRange) {
  ExpectDocumented(*v1::Config::descriptor(), {"docs/config.md", "docs/profile-language.md"});
}

TEST(Schema, AProfileIsAFileOfTheFolderOrRaw) {
  const auto& words = RuleOf(*v1::Service::descriptor()->FindFieldByName("profile")).one_of();
  EXPECT_EQ(std::vector<std::string>(words.begin(), words.end()), ProfileNames());
}

}  // namespace
}  // namespace hedgerow::config
