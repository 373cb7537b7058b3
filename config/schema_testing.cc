// SPDX-License-Identifier: Apache-2.0
#include "config/schema_testing.h"

#include <fstream>
#include <optional>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "build_paths.h"
#include "config/scalar.h"
#include "config/schema.h"

namespace hedgerow::config {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using Visit = std::function<void(const std::string&, const FieldDescriptor&)>;

void Walk(const Descriptor& type, const std::string& parent, const Visit& visit) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    std::string path = parent.empty() ? KeyOf(field) : absl::StrCat(parent, ".", KeyOf(field));
    if (field.is_repeated()) path += "[]";
    visit(path, field);
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) Walk(*field.message_type(), path, visit);
  }
}

std::optional<int64_t> Quantity(const FieldDescriptor& field, const std::string& text) {
  switch (RuleOf(field).unit()) {
    case UNIT_DURATION: return ParseDurationNs(text);
    case UNIT_PERCENT: return ParsePercentPpm(text);
    case UNIT_BYTES: return ParseBytes(text);
    default: return ParseWhole(text);
  }
}

std::vector<std::string> WordsOf(const FieldDescriptor& field) {
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) return EnumWords(*field.enum_type());
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
    const auto words = BoolWords(field);
    return {words.begin(), words.end()};
  }
  const auto& words = RuleOf(field).one_of();
  return {words.begin(), words.end()};
}

void ExpectRow(const FieldDescriptor& field, const std::string& row) {
  const Rule& rule = RuleOf(field);
  EXPECT_EQ(absl::StrContains(row, "| required |"), rule.required()) << row;
  if (!rule.required() && !rule.default_value().empty()) {
    EXPECT_TRUE(absl::StrContains(row, absl::StrCat("| `", rule.default_value(), "` |"))) << row;
  }
  if (IsNumber(field)) {
    const std::string range = absl::StrCat(InUnits(field, rule.min()), " to ", InUnits(field, rule.max()));
    EXPECT_TRUE(absl::StrContains(row, range)) << "\"" << range << "\" in " << row;
  }
  for (const std::string& word : WordsOf(field)) {
    EXPECT_TRUE(absl::StrContains(row, absl::StrCat("`", word, "`"))) << word << " in " << row;
  }
}

}  // namespace

void ForEachKey(const Descriptor& type, const Visit& visit) { Walk(type, "", visit); }

bool IsNumber(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_INT64 || field.cpp_type() == FieldDescriptor::CPPTYPE_UINT32;
}

void ExpectSoundRules(const Descriptor& type) {
  ForEachKey(type, [](const std::string& path, const FieldDescriptor& field) {
    const Rule& rule = RuleOf(field);
    const bool is_text = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    const bool is_block = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    EXPECT_TRUE(IsNumber(field) || is_text || is_block || field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM ||
                field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL)
        << path;
    if (field.is_repeated()) {
      EXPECT_TRUE(is_block || is_text) << path;
      EXPECT_GT(rule.max_items(), 0u) << path;
    }
    if (!IsNumber(field)) return;
    EXPECT_LT(rule.min(), rule.max()) << path;
    EXPECT_TRUE(rule.min() >= 0 || field.cpp_type() == FieldDescriptor::CPPTYPE_INT64) << path;
    if (rule.default_value().empty()) return;
    const std::optional<int64_t> value = Quantity(field, rule.default_value());
    ASSERT_TRUE(value.has_value()) << path;
    EXPECT_GE(*value, rule.min()) << path;
    EXPECT_LE(*value, rule.max()) << path;
  });
}

void ExpectDocumented(const Descriptor& type, const std::vector<std::string>& pages) {
  std::stringstream text;
  for (const std::string& page : pages) {
    std::ifstream file(absl::StrCat(HEDGEROW_SOURCE_DIR, "/", page));
    ASSERT_TRUE(file.good()) << page;
    text << file.rdbuf();
  }
  const std::vector<std::string> lines = absl::StrSplit(text.str(), '\n');
  std::set<const FieldDescriptor*> documented;
  ForEachKey(type, [&](const std::string& path, const FieldDescriptor& field) {
    if (!documented.insert(&field).second) return;
    std::string row;
    for (const std::string& line : lines) {
      if (row.empty() && absl::StartsWith(line, absl::StrCat("| `", path, "` |"))) row = line;
    }
    ASSERT_FALSE(row.empty()) << "no row for " << path;
    ExpectRow(field, row);
  });
}

}  // namespace hedgerow::config
