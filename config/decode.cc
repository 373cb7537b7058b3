// SPDX-License-Identifier: Apache-2.0
#include "config/decode.h"

#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "config/format.h"
#include "config/scalar.h"
#include "config/schema.h"
#include "config/source.h"
#include "config/suggest.h"
#include "config/tree.h"

namespace hedgerow::config {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::string Join(absl::string_view path, absl::string_view key) {
  return path.empty() ? std::string(key) : absl::StrCat(path, ".", key);
}

// A value where a map or a list is due is not repeated: the file may be a key file, named by mistake.
std::string DescribeNoContainer(const Tree& tree) {
  return tree.kind == Tree::Kind::kScalar ? "a single value" : Describe(tree);
}

class Decoder {
 public:
  Decoder(Locations& locations, Diagnostics& errors, const Advice& advice)
      : locations_(locations), errors_(errors), advice_(advice) {}

  void Map(const Tree& tree, Message& message, const std::string& path) {
    locations_.Record(path, tree.mark);
    const Descriptor& type = *message.GetDescriptor();
    if (tree.kind != Tree::Kind::kMap) {
      errors_.Add(tree.mark, path,
                  absl::StrCat("got ", DescribeNoContainer(tree), ", expected a map with the keys ",
                               absl::StrJoin(KeysOf(type), ", ")));
      return;
    }
    absl::flat_hash_set<std::string> seen;
    for (size_t i = 0; i < tree.keys.size(); ++i) {
      const Tree& key = tree.keys[i];
      const FieldDescriptor* field = Key(key, type, path, seen);
      if (field != nullptr) Field(tree.items[i], *field, message, path);
    }
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      if (!seen.contains(KeyOf(field))) Absent(tree, field, message, path);
    }
  }

 private:
  // The field that a key names, or null and an error.
  const FieldDescriptor* Key(const Tree& key, const Descriptor& type, const std::string& path,
                             absl::flat_hash_set<std::string>& seen) {
    if (key.kind != Tree::Kind::kScalar) {
      errors_.Add(
          key.mark, path,
          absl::StrCat("got ", Describe(key), " as a key, expected one of ", absl::StrJoin(KeysOf(type), ", ")));
      return nullptr;
    }
    const FieldDescriptor* field = FindKey(type, key.scalar);
    if (field == nullptr) {
      for (int i = 0; i < type.field_count(); ++i) {
        const std::string& former = RuleOf(*type.field(i)).former_key();
        if (former.empty() || former != key.scalar) continue;
        errors_.Add(key.mark, path,
                    absl::StrCat("the key ", Quote(key.scalar), " has another name now, write \"",
                                 KeyOf(*type.field(i)), "\""));
        return nullptr;
      }
      for (int i = 0; i < type.options().ExtensionSize(removed_key); ++i) {
        const RemovedKey& removed = type.options().GetExtension(removed_key, i);
        if (removed.key() != key.scalar) continue;
        errors_.Add(key.mark, path, absl::StrCat("the key ", Quote(key.scalar), " is gone, ", removed.advice()));
        return nullptr;
      }
      if (const std::string advice = advice_ ? advice_("", key.scalar) : ""; !advice.empty()) {
        errors_.Add(key.mark, path, absl::StrCat("unknown key ", Quote(key.scalar), ": ", advice));
        return nullptr;
      }
      const std::string guess = Suggest(key.scalar, KeysOf(type));
      errors_.Add(key.mark, path,
                  absl::StrCat("unknown key ", Quote(key.scalar),
                               guess.empty() ? absl::StrCat(", expected one of ", absl::StrJoin(KeysOf(type), ", "))
                                             : absl::StrCat(", did you mean \"", guess, "\"?")));
      return nullptr;
    }
    if (!seen.insert(key.scalar).second) {
      errors_.Add(key.mark, Join(path, key.scalar), "the key is given twice, expected it once");
      return nullptr;
    }
    return field;
  }

  void Field(const Tree& value, const FieldDescriptor& field, Message& message, const std::string& parent) {
    const std::string path = Join(parent, KeyOf(field));
    locations_.Record(path, value.mark);
    if (field.is_repeated()) {
      List(value, field, message, path);
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      Map(value, *message.GetReflection()->MutableMessage(&message, &field), path);
    } else {
      Scalar(value, field, message, path);
    }
  }

  static std::string ExpectedList(const FieldDescriptor& field) {
    return absl::StrCat("a list of ", RuleOf(field).min_items(), " to ", RuleOf(field).max_items(), " entries");
  }

  void List(const Tree& value, const FieldDescriptor& field, Message& message, const std::string& path) {
    const Rule& rule = RuleOf(field);
    const std::string expected = ExpectedList(field);
    if (value.kind != Tree::Kind::kList) {
      errors_.Add(value.mark, path, absl::StrCat("got ", DescribeNoContainer(value), ", expected ", expected));
      return;
    }
    if (value.items.size() < rule.min_items() || value.items.size() > rule.max_items()) {
      errors_.Add(value.mark, path, absl::StrCat("got ", value.items.size(), " entries, expected ", expected));
      if (value.items.size() > rule.max_items()) return;
    }
    for (size_t i = 0; i < value.items.size(); ++i) {
      const std::string item_path = absl::StrCat(path, "[", i, "]");
      if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        locations_.Record(item_path, value.items[i].mark);
        message.GetReflection()->AddString(&message, &field, "");
        Scalar(value.items[i], field, message, item_path);
      } else {
        Map(value.items[i], *message.GetReflection()->AddMessage(&message, &field), item_path);
      }
    }
  }

  // A key that was not written: its default, an error, or an empty block whose
  // own keys then take their defaults.
  void Absent(const Tree& map, const FieldDescriptor& field, Message& message, const std::string& parent) {
    const Rule& rule = RuleOf(field);
    const std::string path = Join(parent, KeyOf(field));
    if (rule.required()) {
      errors_.Add(map.mark, path,
                  absl::StrCat("the key is missing, expected ",
                               field.is_repeated() ? ExpectedList(field) : Expectation(field)));
      return;
    }
    if (field.is_repeated()) return;
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (rule.optional() || HasRequiredKeys(*field.message_type())) return;  // optional block
      const Tree empty{.kind = Tree::Kind::kMap, .mark = map.mark};
      Map(empty, *message.GetReflection()->MutableMessage(&message, &field), path);
      return;
    }
    if (rule.default_value().empty()) return;
    const Tree value{.kind = Tree::Kind::kScalar, .mark = map.mark, .scalar = rule.default_value()};
    Scalar(value, field, message, path);
  }

  static bool HasRequiredKeys(const Descriptor& type) {
    for (int i = 0; i < type.field_count(); ++i) {
      if (RuleOf(*type.field(i)).required()) return true;
    }
    return false;
  }

  void Scalar(const Tree& value, const FieldDescriptor& field, Message& message, const std::string& path) {
    if (RuleOf(field).secret()) locations_.RecordSecret(path);
    if (value.kind != Tree::Kind::kScalar || !Set(value, field, message)) {
      errors_.Add(value.mark, path,
                  absl::StrCat("got ", WhatWasGiven(value, field), ", expected ", WhatItTakes(value, field, path)));
    }
  }

  // A secret that is one digit short is a secret all the same.
  static std::string WhatWasGiven(const Tree& value, const FieldDescriptor& field) {
    if (!RuleOf(field).secret() || value.kind != Tree::Kind::kScalar) return Describe(value);
    return absl::StrCat("a value of ", value.scalar.size(), " characters");
  }

  // The expectation, with the reason where an address is of the wrong sort, or the advice to a word of others.
  std::string WhatItTakes(const Tree& value, const FieldDescriptor& field, const std::string& path) const {
    std::string expected = Expectation(field);
    if (value.kind != Tree::Kind::kScalar) return expected;
    std::string reason = WhyRefused(RuleOf(field).format(), value.scalar);
    if (reason.empty() && advice_) reason = advice_(path, value.scalar);
    if (!reason.empty()) absl::StrAppend(&expected, " (", reason, ")");
    return expected;
  }

  static bool Set(const Tree& value, const FieldDescriptor& field, Message& message) {
    const Reflection& reflection = *message.GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING: {
        const Rule& rule = RuleOf(field);
        std::optional<std::string> text = Canonical(rule.format(), value.scalar);
        if (!text.has_value()) return false;
        const auto& words = rule.one_of();
        if (!words.empty() && std::find(words.begin(), words.end(), *text) == words.end()) return false;
        if (field.is_repeated()) {
          reflection.SetRepeatedString(&message, &field, reflection.FieldSize(message, &field) - 1, *std::move(text));
        } else {
          reflection.SetString(&message, &field, *std::move(text));
        }
        return true;
      }
      case FieldDescriptor::CPPTYPE_ENUM: {
        const EnumValueDescriptor* word = FindEnumWord(*field.enum_type(), value.scalar);
        if (word == nullptr) return false;
        reflection.SetEnum(&message, &field, word);
        return true;
      }
      case FieldDescriptor::CPPTYPE_BOOL: {
        const auto [no, yes] = BoolWords(field);
        // "on" in quotes is what writers make of it that know YAML 1.1, where it is a bool without them.
        const bool is_switch = RuleOf(field).unit() == UNIT_SWITCH;
        if ((value.quoted && !is_switch) || (value.scalar != yes && value.scalar != no)) return false;
        reflection.SetBool(&message, &field, value.scalar == yes);
        return true;
      }
      case FieldDescriptor::CPPTYPE_INT64:
      case FieldDescriptor::CPPTYPE_UINT32: {
        const std::optional<int64_t> number = Number(value, field);
        if (!number.has_value()) return false;
        if (field.cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
          reflection.SetInt64(&message, &field, *number);
        } else {
          reflection.SetUInt32(&message, &field, static_cast<uint32_t>(*number));
        }
        return true;
      }
      default: return false;  // schema_test.cc: the schema has no other types
    }
  }

  static std::optional<int64_t> Number(const Tree& value, const FieldDescriptor& field) {
    const Rule& rule = RuleOf(field);
    const std::optional<int64_t> number = rule.unit() == UNIT_DURATION  ? ParseDurationNs(value.scalar)
                                          : rule.unit() == UNIT_PERCENT ? ParsePercentPpm(value.scalar)
                                          : rule.unit() == UNIT_BYTES   ? ParseBytes(value.scalar)
                                          : value.quoted                ? std::nullopt
                                                                        : ParseWhole(value.scalar);
    if (!number.has_value() || *number < rule.min() || *number > rule.max()) return std::nullopt;
    return number;
  }

  Locations& locations_;
  Diagnostics& errors_;
  const Advice& advice_;
};

}  // namespace

bool Decode(absl::string_view text, Message& message, Locations& locations, Diagnostics& errors, const Advice& advice) {
  if (!CheckText(text, errors)) return false;
  const std::optional<Tree> tree = ParseTree(text, errors);
  if (tree.has_value()) Decoder(locations, errors, advice).Map(*tree, message, "");
  return tree.has_value();
}

}  // namespace hedgerow::config
