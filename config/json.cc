// SPDX-License-Identifier: Apache-2.0
//
// Protobuf to JSON by reflection; see the header.

#include "config/json.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace hedgerow {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::string Number(double value) {
  if (!std::isfinite(value)) return "null";
  std::string text = absl::StrFormat("%.9g", value);
  return text;
}

class Writer {
 public:
  explicit Writer(bool compact) : compact_(compact), colon_(compact ? ":" : ": ") {}
  std::string Take() { return std::move(out_); }

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
      Value(message, *fields[i], inner);
    });
  }

 private:
  std::string Deeper(const std::string& indent) const { return compact_ ? "" : indent + "  "; }

  template <typename Item>
  void Braces(char open, char close, const std::string& indent, size_t count, const Item& item) {
    out_ += open;
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) out_ += ',';
      if (!compact_) out_ += '\n';
      item(i);
    }
    if (count > 0 && !compact_) absl::StrAppend(&out_, "\n", indent);
    out_ += close;
  }

  void Value(const Message& message, const FieldDescriptor& field, const std::string& indent) {
    const Reflection& reflection = *message.GetReflection();
    if (field.is_map()) {
      Map(message, field, indent);
    } else if (field.is_repeated()) {
      const std::string inner = Deeper(indent);
      Braces('[', ']', indent, reflection.FieldSize(message, &field), [&](size_t i) {
        out_ += inner;
        Repeated(message, field, static_cast<int>(i), inner);
      });
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      Object(reflection.GetMessage(message, &field), indent);
    } else {
      Scalar(message, field);
    }
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
      Value(*entries[i], value, inner);
    });
  }

  void Repeated(const Message& message, const FieldDescriptor& field, int i, const std::string& indent) {
    const Reflection& reflection = *message.GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        Object(reflection.GetRepeatedMessage(message, &field, i), indent);
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        out_ += JsonQuote(reflection.GetRepeatedString(message, &field, i));
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        absl::StrAppend(&out_, reflection.GetRepeatedInt64(message, &field, i));
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        absl::StrAppend(&out_, reflection.GetRepeatedUInt64(message, &field, i));
        break;
      default:
        out_ += "null";  // json_test.cc: our messages use no other type
    }
  }

  void Scalar(const Message& message, const FieldDescriptor& field) {
    const Reflection& reflection = *message.GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        out_ += JsonQuote(reflection.GetString(message, &field));
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        out_ += reflection.GetBool(message, &field) ? "true" : "false";
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        out_ += Number(reflection.GetDouble(message, &field));
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        absl::StrAppend(&out_, reflection.GetInt64(message, &field));
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        absl::StrAppend(&out_, reflection.GetUInt64(message, &field));
        break;
      case FieldDescriptor::CPPTYPE_INT32:
        absl::StrAppend(&out_, reflection.GetInt32(message, &field));
        break;
      case FieldDescriptor::CPPTYPE_UINT32:
        absl::StrAppend(&out_, reflection.GetUInt32(message, &field));
        break;
      default:
        out_ += "null";  // json_test.cc: our messages use no other type
    }
  }

  const bool compact_;
  const absl::string_view colon_;
  std::string out_;
};

}  // namespace

std::string JsonQuote(absl::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        quoted += "\\\"";
        break;
      case '\\':
        quoted += "\\\\";
        break;
      case '\n':
        quoted += "\\n";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          absl::StrAppendFormat(&quoted, "\\u%04x", static_cast<unsigned char>(c));
        } else {
          quoted += c;
        }
    }
  }
  return quoted + "\"";
}

std::string ToJson(const Message& message) {
  Writer writer(/*compact=*/false);
  writer.Object(message, "");
  return writer.Take() + "\n";
}

std::string ToCompactJson(const Message& message) {
  Writer writer(/*compact=*/true);
  writer.Object(message, "");
  return writer.Take();
}

}  // namespace hedgerow
