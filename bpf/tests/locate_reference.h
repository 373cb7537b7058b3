// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What bpf/proxy/locate.h computes, written anew over whole strings: for comparing. It shares the profile's structs
// with the kernel's code, and no line of it.
#pragma once

#include <array>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bpf/abi/config_abi.h"
#include "bpf/proxy/locate.h"

namespace hedgerow::packets {

struct Located {
  std::array<uint64_t, 2> correlation{};
  uint32_t mark = 0;
  bool operator==(const Located &) const = default;
};

// Of the bytes of a parked copy behind the UDP header, 16 must follow the place that is read.
inline constexpr size_t kLastPlace = HR_PARKED_L4_BYTES - 16 - 8;

inline uint64_t Number(std::string_view bytes, bool little_endian) {
  uint64_t number = 0;
  for (size_t i = 0; i < bytes.size(); ++i)
    number = number << 8 | static_cast<uint8_t>(bytes[little_endian ? bytes.size() - 1 - i : i]);
  return number;
}

inline std::array<uint64_t, 2> Padded(std::string_view bytes) {
  std::array<uint64_t, 2> words{};
  std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

inline std::optional<Located> FollowedPath(std::string_view payload, const hr_path &path, const hr_field &field) {
  Located located;
  size_t at = 0;
  for (int i = 0; i < path.count; ++i) {
    if (i == path.mark) located.mark = static_cast<uint32_t>(at);
    if (at > kLastPlace) return std::nullopt;
    const hr_step &step = path.steps[i];
    const std::string_view rest = payload.substr(at);
    if (step.kind == HR_STEP_SKIP) {
      if (rest.size() < step.bytes) return std::nullopt;
      at += step.bytes;
    } else if (step.kind == HR_STEP_LENGTH) {
      if (rest.size() < step.bytes) return std::nullopt;
      const int64_t length =
          static_cast<int64_t>(Number(rest.substr(0, step.bytes), step.little_endian != 0)) + step.add;
      if (length < 0 || static_cast<uint64_t>(length) > rest.size() - step.bytes) return std::nullopt;
      at += step.bytes + static_cast<size_t>(length);
    } else {
      if (rest.size() < 2) return std::nullopt;
      const uint8_t tag = static_cast<uint8_t>(rest[0]), first = static_cast<uint8_t>(rest[1]);
      if (tag % 32 == 31) return std::nullopt;
      const size_t more = first < 128 ? 0 : first - 128u;
      if (first >= 128 && (more < 1 || more > 4 || rest.size() < 2 + more)) return std::nullopt;
      const uint64_t length = first < 128 ? first : Number(rest.substr(2, more), false);
      const std::string_view inside = rest.substr(2 + more);
      if (step.kind == HR_STEP_BER_ENTER) {
        at += 2 + more;
        continue;
      }
      if (length > inside.size()) return std::nullopt;
      if (step.kind == HR_STEP_BER_SKIP) {
        at += 2 + more + length;
        continue;
      }
      if (length < 1 || length > 16 || at + 2 + more > kLastPlace) return std::nullopt;
      const std::string_view value = inside.substr(0, length);
      located.correlation = Padded(value);
      if (tag == 2 && length <= 8) {
        // A number in two's complement: the sign fills what is in front.
        const std::string sign(8 - length, (value[0] & 0x80) != 0 ? '\xff' : '\0');
        located.correlation = {Number(sign + std::string(value), false), 0};
      }
      return located;
    }
  }
  if (path.mark == path.count) located.mark = static_cast<uint32_t>(at);
  if (payload.size() < at + field.offset + field.length || at + field.offset > kLastPlace) return std::nullopt;
  located.correlation = Padded(payload.substr(at + field.offset, field.length));
  for (int i = 0; i < 2; ++i) located.correlation[i] &= field.mask[i];
  return located;
}

inline bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

inline std::string Unblanked(std::string_view text) {
  std::string kept;
  for (const char c : text)
    if (!IsBlank(c)) kept += c;
  return kept;
}

inline std::string Lowered(std::string text) {
  for (char &c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  return text;
}

inline std::string NameOf(const void *words, size_t bytes) {
  return std::string(static_cast<const char *>(words), bytes);
}

// The parameter's value in what stands behind a header's colon; empty: it is not there, or cut.
inline std::string ArgumentOf(std::string_view value, const std::string &parameter, bool whole) {
  const size_t comma = value.find(',');
  if (comma != std::string_view::npos) {
    value = value.substr(0, comma);
    whole = true;
  }
  size_t from = value.find(';');
  while (from != std::string_view::npos) {
    const size_t to = value.find(';', from + 1);
    std::string_view segment = value.substr(from + 1, to == std::string_view::npos ? to : to - from - 1);
    const size_t equals = segment.find('=');
    if (equals != std::string_view::npos && Lowered(Unblanked(segment.substr(0, equals))) == parameter) {
      segment.remove_prefix(equals + 1);
      while (!segment.empty() && IsBlank(segment[0])) segment.remove_prefix(1);
      size_t end = 0;
      while (end < segment.size() && !IsBlank(segment[end])) ++end;
      const bool ends = end < segment.size() || to != std::string_view::npos || whole;
      return ends ? std::string(segment.substr(0, end)) : "";
    }
    from = to;
  }
  return "";
}

inline std::optional<Located> FoundTokens(std::string_view payload, const hr_token *tokens, int count) {
  std::string_view text = payload.substr(0, HR_SCAN_BYTES);
  std::vector<std::optional<std::string>> found(count > 1 ? 2 : 1);
  const auto all = [&found] {
    for (const auto &each : found)
      if (!each) return false;
    return true;
  };
  while (!text.empty() && !all()) {
    const size_t feed = text.find('\n');
    const bool whole = feed != std::string_view::npos;
    std::string_view line = text.substr(0, feed);
    text = whole ? text.substr(feed + 1) : std::string_view();
    while (!line.empty() && line[0] == '\r') line.remove_prefix(1);
    if (line.empty()) break;
    if (IsBlank(line[0])) continue;
    size_t end = 1;  // a colon in front would be a part of the name
    while (end < line.size() && line[end] != ':' && !IsBlank(line[end])) ++end;
    const std::string name = Lowered(std::string(line.substr(0, end)));
    if (name.size() > HR_TOKEN_NAME_BYTES) continue;
    while (end < line.size() && IsBlank(line[end])) ++end;
    if (end == line.size() || line[end] != ':') continue;
    const std::string_view value = line.substr(end + 1);
    for (size_t i = 0; i < found.size(); ++i) {
      const hr_token &token = tokens[i];
      const bool is_short = token.short_name != 0 && name == std::string(1, static_cast<char>(token.short_name));
      if (found[i] || (name != NameOf(token.name, token.name_bytes) && !is_short)) continue;
      const std::string said = token.parameter_bytes != 0
                                   ? ArgumentOf(value, NameOf(&token.parameter, token.parameter_bytes), whole)
                               : whole ? Unblanked(value)
                                       : "";
      if (!said.empty()) found[i] = said;
      break;
    }
  }
  if (!all()) return std::nullopt;
  Located located;
  for (size_t i = 0; i < found.size(); ++i) {
    uint64_t hash = 14695981039346656037u;
    for (const char c : *found[i]) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211u;
    located.correlation[i] = hash;
  }
  return located;
}

// What the kernel's code makes of the same, compiled for this side.
inline hr_parked ParkedOf(std::string_view payload, uint8_t filling) {
  hr_parked parked;
  std::memset(&parked, filling, sizeof(parked));
  std::memcpy(parked.l4 + HR_UDP_HEADER_BYTES, payload.data(),
              std::min(payload.size(), sizeof(parked.l4) - HR_UDP_HEADER_BYTES));
  return parked;
}

inline std::optional<Located> NativePath(std::string_view payload, const hr_path &path, const hr_field &field,
                                         uint8_t filling) {
  const hr_parked parked = ParkedOf(payload, filling);
  hr_located located{};
  if (hr_follow_path(&parked, static_cast<uint32_t>(payload.size()), &path, &field, &located) != 0) return std::nullopt;
  return Located{{located.correlation[0], located.correlation[1]}, located.mark};
}

inline std::optional<Located> NativeTokens(std::string_view payload, const hr_token *tokens, int count) {
  hr_scan scan;
  hr_located located{};
  hr_scan_begin(&scan, static_cast<uint32_t>(count));
  for (const char byte : payload.substr(0, HR_SCAN_BYTES))
    if (hr_scan_byte(&scan, tokens, static_cast<uint8_t>(byte)) != 0) break;
  if (hr_scan_result(&scan, &located) != 0) return std::nullopt;
  return Located{{located.correlation[0], located.correlation[1]}, located.mark};
}

}  // namespace hedgerow::packets
