// SPDX-License-Identifier: Apache-2.0
#include "proxy/config/emit.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "config/schema.h"

namespace hedgerow::config {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// A block that is longer in one line has a line for each of its keys.
constexpr size_t kLineBytes = 110;

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

bool IsMessage(const FieldDescriptor& field) { return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE; }

class Emitter {
 public:
  Emitter(Secrets secrets, Defaults defaults) : secrets_(secrets), defaults_(defaults) {}

  // `lead` replaces the indentation of the first line: "- " of a list's entry.
  void Block(const Message& message, const std::string& indent, std::string lead, std::string& out) const {
    const Reflection& reflection = *message.GetReflection();
    for (const FieldDescriptor* field : Written(message)) {
      const std::string start = absl::StrCat(lead, KeyOf(*field), ":");
      lead = indent;
      const std::string line = Line(message, *field);
      if (!IsMessage(*field) || start.size() + line.size() < kLineBytes) {
        absl::StrAppend(&out, start, " ", line, "\n");
        continue;
      }
      absl::StrAppend(&out, start, "\n");
      if (!field->is_repeated()) Block(reflection.GetMessage(message, field), indent + "  ", indent + "  ", out);
      for (int i = 0; field->is_repeated() && i < reflection.FieldSize(message, field); ++i) {
        const Message& entry = reflection.GetRepeatedMessage(message, field, i);
        const std::string entry_line = absl::StrCat(indent, "  - ", Line(entry), "\n");
        if (entry_line.size() < kLineBytes)
          out += entry_line;
        else
          Block(entry, indent + "    ", indent + "  - ", out);
      }
    }
  }

 private:
  std::vector<const FieldDescriptor*> Written(const Message& message) const {
    std::vector<const FieldDescriptor*> written;
    for (int i = 0; i < message.GetDescriptor()->field_count(); ++i)
      if (IsWritten(message, *message.GetDescriptor()->field(i))) written.push_back(message.GetDescriptor()->field(i));
    return written;
  }

  // A list or a text that was not given would be an error.
  bool IsWritten(const Message& message, const FieldDescriptor& field) const {
    if (field.is_repeated()) return message.GetReflection()->FieldSize(message, &field) > 0;
    if (IsMessage(field)) return message.GetReflection()->HasField(message, &field);
    const Rule& rule = RuleOf(field);
    const std::string text = ScalarText(message, field);
    if (text == rule.default_value()) return !text.empty() && defaults_ == Defaults::kWritten;
    return true;
  }

  // The value of a field in one line: 10ms, [a, b], {offset: 4, text: "get "}.
  std::string Line(const Message& message, const FieldDescriptor& field) const {
    const Reflection& reflection = *message.GetReflection();
    const bool is_text = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
    if (field.is_repeated()) {
      std::vector<std::string> entries;
      for (int i = 0; i < reflection.FieldSize(message, &field); ++i)
        entries.push_back(is_text ? QuoteYaml(reflection.GetRepeatedString(message, &field, i))
                                  : Line(reflection.GetRepeatedMessage(message, &field, i)));
      return absl::StrCat("[", absl::StrJoin(entries, ", "), "]");
    }
    if (IsMessage(field)) return Line(reflection.GetMessage(message, &field));
    if (RuleOf(field).secret() && secrets_ == Secrets::kHidden) return "\"(hidden)\"";
    return is_text ? QuoteYaml(ScalarText(message, field)) : ScalarText(message, field);
  }

  std::string Line(const Message& message) const {
    std::vector<std::string> pairs;
    for (const FieldDescriptor* field : Written(message))
      pairs.push_back(absl::StrCat(KeyOf(*field), ": ", Line(message, *field)));
    return absl::StrCat("{", absl::StrJoin(pairs, ", "), "}");
  }

  const Secrets secrets_;
  const Defaults defaults_;
};

}  // namespace

std::string EmitYaml(const Message& config, Secrets secrets, Defaults defaults) {
  std::string out;
  Emitter(secrets, defaults).Block(config, "", "", out);
  return out;
}

}  // namespace hedgerow::config
