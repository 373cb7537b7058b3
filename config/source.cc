// SPDX-License-Identifier: Apache-2.0
#include "config/source.h"

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace hedgerow::config {
namespace {

// The length of the UTF-8 sequence at `text`, or 0 where there is none.
// Overlong forms, surrogates and values above U+10FFFF are refused.
size_t Utf8Length(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  size_t length = 0;
  uint32_t value = 0;
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) {
    length = 2, value = lead & 0x1f;
  } else if ((lead & 0xf0) == 0xe0) {
    length = 3, value = lead & 0x0f;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    length = 4, value = lead & 0x07;
  } else {
    return 0;
  }
  if (text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    value = value << 6 | (byte(i) & 0x3f);
  }
  if (length == 3 && (value < 0x800 || (value >= 0xd800 && value <= 0xdfff))) {
    return 0;
  }
  if (length == 4 && (value < 0x10000 || value > 0x10ffff)) return 0;
  return length;
}

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

bool IsForbiddenControl(unsigned char c) { return (c < 0x20 && c != '\n' && c != '\r' && c != '\t') || c == 0x7f; }

}  // namespace

bool CheckText(absl::string_view text, Diagnostics& errors) {
  if (text.size() > kMaxFileBytes) {
    errors.Add({}, "",
               absl::StrCat("got more than ", kMaxFileBytes,
                            " bytes, expected a configuration of at most "
                            "1 MiB"));
    return false;
  }
  Mark mark{1, 1};
  for (size_t i = 0; i < text.size();) {
    const size_t length = Utf8Length(text.substr(i));
    const auto c = static_cast<unsigned char>(text[i]);
    if (length == 0 || IsForbiddenControl(c)) {
      errors.Add(mark, "",
                 absl::StrFormat("got the byte 0x%02x, expected YAML text in "
                                 "UTF-8 without control characters (is this a "
                                 "binary file?)",
                                 c));
      return false;
    }
    if (c == '\n') {
      ++mark.line;
      mark.column = 1;
    } else {
      ++mark.column;
    }
    i += length;
  }
  return true;
}

std::optional<Source> ReadSource(const std::string& path, Diagnostics& errors) {
  // `status` repeats it in a message, which holds nothing else: there would be none for as long as the program runs.
  if (!IsUtf8(path)) {
    errors.Add({}, "", "the path is not UTF-8: rename the file or its folder");
    return std::nullopt;
  }
  absl::StatusOr<operate::FileText> source = operate::ReadText(path, kMaxFileBytes);
  if (!source.ok()) {
    errors.Add({}, "", source.status().message());
    return std::nullopt;
  }
  if (!CheckText(source->text, errors)) return std::nullopt;
  return *std::move(source);
}

void CheckRights(const Source& source, const Locations& locations, operate::Reader reader, Diagnostics& errors) {
  const std::string& path = errors.file_name();
  const std::string open = operate::WhyNotSecret(source.info, path);
  for (const std::string& key : locations.secrets()) {
    if (open.empty()) break;
    errors.Add(locations.Find(key), key, absl::StrCat("this file ", open, ", or put the key into a file of its own"));
  }
  const std::string strange = operate::WhyNotFollowed(source.info, path, geteuid());
  if (reader == operate::Reader::kServes && !strange.empty()) errors.Add({}, "", absl::StrCat("the file ", strange));
}

}  // namespace hedgerow::config
