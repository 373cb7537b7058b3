// SPDX-License-Identifier: Apache-2.0
//
// What must be true of every field of the configuration's schema, whoever adds
// one: it has a type the decoder knows, its default lies in its range, and
// docs/config.md documents it with that default and range.

#include "proxy/config/schema.h"

#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "build_paths.h"
#include "config/scalar.h"
#include "proxy/api/config.pb.h"
#include "proxy/config/built_in_profiles.h"

namespace hedgerow::config {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// Calls visit(path, field) for every key of the schema, blocks included.
template <typename Visit>
void ForEachKey(const Descriptor& type, const std::string& parent, const Visit& visit) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    std::string path = parent.empty() ? KeyOf(field) : absl::StrCat(parent, ".", KeyOf(field));
    if (field.is_repeated()) path += "[]";
    visit(path, field);
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) ForEachKey(*field.message_type(), path, visit);
  }
}

bool IsNumber(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_INT64 ||
         field.cpp_type() == FieldDescriptor::CPPTYPE_UINT32;
}

TEST(Schema, EveryFieldHasATypeTheDecoderKnows) {
  ForEachKey(*v1::Config::descriptor(), "", [](const std::string& path, const FieldDescriptor& field) {
    EXPECT_TRUE(IsNumber(field) || field.cpp_type() == FieldDescriptor::CPPTYPE_STRING ||
                field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM ||
                field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL ||
                field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE)
        << path;
    EXPECT_TRUE(!field.is_repeated() || field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE ||
                field.cpp_type() == FieldDescriptor::CPPTYPE_STRING)
        << path;
    if (field.is_repeated()) {
      EXPECT_GT(RuleOf(field).max_items(), 0u) << path;
    }
  });
}

TEST(Schema, EveryNumberHasARangeAndItsDefaultLiesInside) {
  int numbers = 0;
  ForEachKey(*v1::Config::descriptor(), "", [&](const std::string& path, const FieldDescriptor& field) {
    if (!IsNumber(field)) return;
    ++numbers;
    const v1::Rule& rule = RuleOf(field);
    EXPECT_LT(rule.min(), rule.max()) << path;
    EXPECT_GE(rule.min(), 0) << path;
    if (rule.required()) return;
    const auto value = rule.unit() == v1::UNIT_DURATION  ? ParseDurationNs(rule.default_value())
                       : rule.unit() == v1::UNIT_PERCENT ? ParsePercentPpm(rule.default_value())
                                                         : ParseWhole(rule.default_value());
    ASSERT_TRUE(value.has_value()) << path;
    EXPECT_GE(*value, rule.min()) << path;
    EXPECT_LE(*value, rule.max()) << path;
  });
  EXPECT_GT(numbers, 15);
}

// docs/config.md has one table row for each key, which starts with the path
// and says the default and both ends of the range.
TEST(Schema, EveryKeyIsDocumentedWithItsDefaultAndRange) {
  std::ifstream file(std::string(HEDGEROW_SOURCE_DIR) + "/docs/config.md");
  ASSERT_TRUE(file.good());
  std::stringstream text;
  text << file.rdbuf();
  const std::vector<std::string> lines = absl::StrSplit(text.str(), '\n');
  ForEachKey(*v1::Config::descriptor(), "", [&](const std::string& path, const FieldDescriptor& field) {
    std::string row;
    for (const std::string& line : lines) {
      if (absl::StartsWith(line, absl::StrCat("| `", path, "` |"))) row = line;
    }
    ASSERT_FALSE(row.empty()) << "docs/config.md has no row for " << path;
    const v1::Rule& rule = RuleOf(field);
    if (rule.required()) {
      EXPECT_TRUE(absl::StrContains(row, "required")) << row;
    } else if (!rule.default_value().empty()) {
      EXPECT_TRUE(absl::StrContains(row, absl::StrCat("| `", rule.default_value(), "` |"))) << row;
    }
    if (IsNumber(field)) {
      EXPECT_TRUE(absl::StrContains(row, InUnits(field, rule.min()))) << row;
      EXPECT_TRUE(absl::StrContains(row, InUnits(field, rule.max()))) << row;
    }
    std::vector<std::string> words;
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) words = EnumWords(*field.enum_type());
    if (rule.format() == v1::FORMAT_PROFILE) words = ProfileNames();
    for (const std::string& word : words) {
      EXPECT_TRUE(absl::StrContains(row, absl::StrCat("`", word, "`"))) << row;
    }
  });
}

}  // namespace
}  // namespace hedgerow::config
