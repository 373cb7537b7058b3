// SPDX-License-Identifier: Apache-2.0
//
// A configuration's schema as the YAML side sees it: keys, enum words and
// expectations in words, all read from the options in config/rules.proto.
// Used by the decoder, the emitter and the tests that keep docs/config.md and docs/cluster.md true.

#pragma once

#include <array>
#include <string>
#include <vector>

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "absl/strings/string_view.h"
#include "config/rules.pb.h"

namespace hedgerow::config {

const Rule& RuleOf(const google::protobuf::FieldDescriptor& field);

// The field's YAML key: `delay` for delay_ns.
std::string KeyOf(const google::protobuf::FieldDescriptor& field);
const google::protobuf::FieldDescriptor* FindKey(const google::protobuf::Descriptor& message, absl::string_view key);
std::vector<std::string> KeysOf(const google::protobuf::Descriptor& message);

// "clsact" for ATTACH_CLSACT. UNSPECIFIED values have no word.
std::string EnumWord(const google::protobuf::EnumValueDescriptor& value);
std::vector<std::string> EnumWords(const google::protobuf::EnumDescriptor& type);
const google::protobuf::EnumValueDescriptor* FindEnumWord(const google::protobuf::EnumDescriptor& type,
                                                          absl::string_view word);

// What false and true are written as.
std::array<absl::string_view, 2> BoolWords(const google::protobuf::FieldDescriptor& field);

// What a value must be: "a duration between 100us and 10s, such as 10ms".
std::string Expectation(const google::protobuf::FieldDescriptor& field);

// A limit or a value in the field's own notation: "10ms", "5%", "65535".
std::string InUnits(const google::protobuf::FieldDescriptor& field, int64_t value);
// The value of a field that is neither a list nor a block, as it would be written in YAML, a text without quotes.
std::string ScalarText(const google::protobuf::Message& message, const google::protobuf::FieldDescriptor& field);
// The texts of a list of strings.
std::vector<std::string> TextsOf(const google::protobuf::Message& message,
                                 const google::protobuf::FieldDescriptor& field);

}  // namespace hedgerow::config
