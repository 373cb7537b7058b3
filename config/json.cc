// SPDX-License-Identifier: Apache-2.0
#include "config/json.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <google/protobuf/text_format.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace hedgerow {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::string JsonQuote(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      absl::StrAppendFormat(&quoted, "\\u%04x", static_cast<unsigned char>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string Number(double value) { return std::isfinite(value) ? absl::StrFormat("%.9g", value) : "null"; }

class Writer {
 public:
  Writer(bool lines, absl::string_view colon, absl::string_view comma) : lines_(lines), colon_(colon), comma_(comma) {}

  std::string Write(const Message& message) {
    Object(message, "");
    return std::move(out_);
  }

 private:
  void Object(const Message& message, const std::string& indent) {
    const std::string inner = Deeper(indent);
    std::vector<const FieldDescriptor*> fields;
    for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
      const FieldDescriptor* field = message.GetDescriptor()->field(i);
      // An absent block has no values to print.
      if (field->is_repeated() || field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE ||
          message.GetReflection()->HasField(message, field)) {
        fields.push_back(field);
      }
    }
    Braces('{', '}', indent, fields.size(), [&](size_t i) {
      absl::StrAppend(&out_, inner, JsonQuote(fields[i]->name()), colon_);
      Field(message, *fields[i], inner);
    });
  }

  std::string Deeper(const std::string& indent) const { return lines_ ? indent + "  " : ""; }

  template <typename Item>
  void Braces(char open, char close, const std::string& indent, size_t count, const Item& item) {
    out_ += open;
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) absl::StrAppend(&out_, comma_);
      if (lines_) out_ += '\n';
      item(i);
    }
    if (count > 0 && lines_) absl::StrAppend(&out_, "\n", indent);
    out_ += close;
  }

  void Field(const Message& message, const FieldDescriptor& field, const std::string& indent) {
    if (field.is_map()) return Map(message, field, indent);
    if (!field.is_repeated()) return Value(message, field, -1, indent);
    const std::string inner = Deeper(indent);
    Braces('[', ']', indent, message.GetReflection()->FieldSize(message, &field), [&](size_t i) {
      out_ += inner;
      Value(message, field, static_cast<int>(i), inner);
    });
  }

  // Maps are sorted by key, so that two outputs can be compared as text.
  void Map(const Message& message, const FieldDescriptor& field, const std::string& indent) {
    const Reflection& reflection = *message.GetReflection();
    std::vector<const Message*> entries;
    for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
      entries.push_back(&reflection.GetRepeatedMessage(message, &field, i));
    }
    const FieldDescriptor& key = *field.message_type()->map_key();
    const FieldDescriptor& value = *field.message_type()->map_value();
    const auto key_of = [&](const Message* entry) { return entry->GetReflection()->GetString(*entry, &key); };
    std::sort(entries.begin(), entries.end(),
              [&](const Message* a, const Message* b) { return key_of(a) < key_of(b); });
    const std::string inner = Deeper(indent);
    Braces('{', '}', indent, entries.size(), [&](size_t i) {
      absl::StrAppend(&out_, inner, JsonQuote(key_of(entries[i])), colon_);
      Value(*entries[i], value, -1, inner);
    });
  }

  // Element `i` of a list, or, with -1, a field that is none.
  void Value(const Message& message, const FieldDescriptor& field, int i, const std::string& indent) {
    const Reflection& reflection = *message.GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Object(
            i < 0 ? reflection.GetMessage(message, &field) : reflection.GetRepeatedMessage(message, &field, i), indent);
      case FieldDescriptor::CPPTYPE_STRING:
        out_ +=
            JsonQuote(i < 0 ? reflection.GetString(message, &field) : reflection.GetRepeatedString(message, &field, i));
        return;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        out_ +=
            Number(i < 0 ? reflection.GetDouble(message, &field) : reflection.GetRepeatedDouble(message, &field, i));
        return;
      default: {  // whole numbers and booleans: protobuf's text is JSON's
        std::string text;
        google::protobuf::TextFormat::PrintFieldValueToString(message, &field, i, &text);
        out_ += text;
      }
    }
  }

  const bool lines_;
  const absl::string_view colon_, comma_;
  std::string out_;
};

}  // namespace

std::string ToJson(const Message& message) { return Writer(/*lines=*/true, ": ", ",").Write(message) + "\n"; }

std::string ToJsonLine(const Message& message) { return Writer(/*lines=*/false, ": ", ", ").Write(message) + "\n"; }

std::string ToCompactJson(const Message& message) { return Writer(/*lines=*/false, ":", ",").Write(message); }

}  // namespace hedgerow
