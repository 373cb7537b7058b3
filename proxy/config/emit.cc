// SPDX-License-Identifier: Apache-2.0
#include "proxy/config/emit.h"

#include "absl/strings/str_cat.h"
#include "proxy/config/schema.h"

namespace hedgerow::config {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Double quotes, because a name such as "1e3" or "no" would change its type.
// Socket paths may hold any character but a control character.
std::string QuoteYaml(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

std::string ValueText(const Message& message, const FieldDescriptor& field) {
  const std::string text = ScalarText(message, field);
  return field.cpp_type() == FieldDescriptor::CPPTYPE_STRING ? QuoteYaml(text) : text;
}

// A string that was not given and has no default: written out, it would be an error.
bool IsAbsent(const Message& message, const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_STRING && RuleOf(field).default_value().empty() &&
         message.GetReflection()->GetString(message, &field).empty();
}

// `lead` replaces the indentation of the first line: "- " of a list's entry.
void Emit(const Message& message, const std::string& indent, std::string lead, Secrets secrets,
          std::string& out) {
  const Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    const std::string prefix = absl::StrCat(lead, KeyOf(field), ":");
    if (field.is_repeated()) {
      if (reflection.FieldSize(message, &field) == 0) continue;  // left out; an empty list would be an error
      if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
        absl::StrAppend(&out, prefix, " [", WordsText(message, field), "]\n");
        lead = indent;
        continue;
      }
      absl::StrAppend(&out, prefix, "\n");
      for (int j = 0; j < reflection.FieldSize(message, &field); ++j) {
        Emit(reflection.GetRepeatedMessage(message, &field, j), indent + "    ", indent + "  - ", secrets, out);
      }
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (!reflection.HasField(message, &field)) continue;
      absl::StrAppend(&out, prefix, "\n");
      Emit(reflection.GetMessage(message, &field), indent + "  ", indent + "  ", secrets, out);
    } else {
      if (IsAbsent(message, field)) continue;
      const bool hidden = RuleOf(field).secret() && secrets == Secrets::kHidden;
      absl::StrAppend(&out, prefix, " ", hidden ? "\"(hidden)\"" : ValueText(message, field), "\n");
    }
    lead = indent;
  }
}

}  // namespace

std::string EmitYaml(const Message& config, Secrets secrets) {
  std::string out;
  Emit(config, "", "", secrets, out);
  return out;
}

}  // namespace hedgerow::config
