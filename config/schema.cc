// SPDX-License-Identifier: Apache-2.0
#include "config/schema.h"

#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "config/format.h"
#include "config/scalar.h"

namespace hedgerow::config {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

const Rule& RuleOf(const FieldDescriptor& field) { return field.options().GetExtension(rule); }

std::string KeyOf(const FieldDescriptor& field) {
  const std::string& key = RuleOf(field).key();
  return key.empty() ? field.name() : key;
}

const FieldDescriptor* FindKey(const Descriptor& message, absl::string_view key) {
  for (int i = 0; i < message.field_count(); ++i) {
    if (KeyOf(*message.field(i)) == key) return message.field(i);
  }
  return nullptr;
}

std::vector<std::string> KeysOf(const Descriptor& message) {
  std::vector<std::string> keys;
  for (int i = 0; i < message.field_count(); ++i) {
    keys.push_back(KeyOf(*message.field(i)));
  }
  return keys;
}

std::string EnumWord(const EnumValueDescriptor& value) {
  // CLOCK_KIND_HTB less the prefix that the name of value 0 shows.
  const std::string prefix(absl::StripSuffix(value.type()->FindValueByNumber(0)->name(), "UNSPECIFIED"));
  return absl::AsciiStrToLower(absl::StripPrefix(value.name(), prefix));
}

std::vector<std::string> EnumWords(const EnumDescriptor& type) {
  std::vector<std::string> words;
  for (int i = 0; i < type.value_count(); ++i) {
    if (type.value(i)->number() != 0) words.push_back(EnumWord(*type.value(i)));
  }
  return words;
}

const EnumValueDescriptor* FindEnumWord(const EnumDescriptor& type, absl::string_view word) {
  for (int i = 0; i < type.value_count(); ++i) {
    const EnumValueDescriptor* value = type.value(i);
    if (value->number() != 0 && EnumWord(*value) == word) return value;
  }
  return nullptr;
}

std::string InUnits(const FieldDescriptor& field, int64_t value) {
  switch (RuleOf(field).unit()) {
    case UNIT_DURATION: return FormatDurationNs(value);
    case UNIT_PERCENT: return FormatPercentPpm(value);
    case UNIT_BYTES: return FormatBytes(value);
    default: return absl::StrCat(value);
  }
}

std::array<absl::string_view, 2> BoolWords(const FieldDescriptor& field) {
  if (RuleOf(field).unit() == UNIT_SWITCH) return {"off", "on"};
  return {"false", "true"};
}

std::string ScalarText(const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING: return reflection.GetString(message, &field);
    case FieldDescriptor::CPPTYPE_ENUM: {
      const EnumValueDescriptor& value = *reflection.GetEnum(message, &field);
      return value.number() == 0 ? "" : EnumWord(value);
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      return std::string(BoolWords(field)[reflection.GetBool(message, &field) ? 1 : 0]);
    case FieldDescriptor::CPPTYPE_INT64: return InUnits(field, reflection.GetInt64(message, &field));
    default: return InUnits(field, reflection.GetUInt32(message, &field));
  }
}

std::vector<std::string> TextsOf(const Message& message, const FieldDescriptor& field) {
  std::vector<std::string> texts;
  for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i)
    texts.push_back(message.GetReflection()->GetRepeatedString(message, &field, i));
  return texts;
}

namespace {

std::string SuchAs(const Rule& rule) {
  return rule.example().empty() ? "" : absl::StrCat(", such as ", rule.example());
}

std::string StringExpectation(Format format) {
  static const auto& expectations = *new std::map<Format, std::string>{
      {FORMAT_INSTANCE, "1 to 15 of the characters a-z, 0-9 and -"},
      {FORMAT_NAME, "a name of 1 to 31 of the characters a-z, 0-9 and -, not starting with -"},
      {FORMAT_INTERFACE, "an interface name of 1 to 13 letters, digits, - or _, starting with a letter"},
      {FORMAT_IP, "an IPv4 or IPv6 unicast address, such as 10.77.0.11 or fd77::b"},
      {FORMAT_SERVER,
       "an IPv4 or IPv6 unicast address, such as 10.77.0.11 or fd77::b, or a loopback address of this host"},
      {FORMAT_SOCKET, absl::StrCat("an absolute path of at most ", kMaxSocketPathBytes, " bytes")},
      {FORMAT_LISTEN, "an address and port such as 127.0.0.1:9464 or [::1]:9464, unix:/PATH, or \"\" for none"},
      {FORMAT_KEY, "32 hexadecimal digits, not all 0"},
      {FORMAT_FILE, absl::StrCat("an absolute path of at most ", kMaxFilePathBytes, " bytes")},
      {FORMAT_EPOCH, "EPOCH/NUMBER as `hedgerow-node status` of a member says it, such as 1/61b68ac4e140c840"},
      {FORMAT_ENDPOINT, "an address and port, such as 10.0.0.1:4802 or [fd00::1]:4802"},
      {FORMAT_NETWORK, "a network, such as 10.0.0.0/8 or fd00::/8"},
      {FORMAT_BYTES, "1 to 16 bytes, as two hexadecimal digits each"},
      {FORMAT_PAYLOAD, absl::StrCat("1 to ", kMaxPayloadBytes, " bytes, as two hexadecimal digits each")},
      {FORMAT_TEXT, "1 to 8 printable characters"}};
  const auto found = expectations.find(format);
  return found == expectations.end() ? "a string" : found->second;
}

std::string NumberExpectation(const FieldDescriptor& field) {
  const Rule& rule = RuleOf(field);
  const absl::string_view noun = rule.unit() == UNIT_DURATION  ? "a duration"
                                 : rule.unit() == UNIT_PERCENT ? "a percentage"
                                 : rule.unit() == UNIT_BYTES   ? "a size"
                                                               : "a whole number";
  return absl::StrCat(noun, " between ", InUnits(field, rule.min()), " and ", InUnits(field, rule.max()), SuchAs(rule));
}

}  // namespace

std::string Expectation(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return absl::StrCat("a map with the keys ", absl::StrJoin(KeysOf(*field.message_type()), ", "));
    case FieldDescriptor::CPPTYPE_ENUM:
      return absl::StrCat("one of ", absl::StrJoin(EnumWords(*field.enum_type()), ", "));
    case FieldDescriptor::CPPTYPE_BOOL: {
      const auto [no, yes] = BoolWords(field);
      return absl::StrCat(yes, " or ", no);
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      const Rule& rule = RuleOf(field);
      return rule.one_of().empty() ? absl::StrCat(StringExpectation(rule.format()), SuchAs(rule))
                                   : absl::StrCat("one of ", absl::StrJoin(rule.one_of(), ", "));
    }
    default: return NumberExpectation(field);
  }
}

}  // namespace hedgerow::config
