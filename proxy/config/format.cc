// SPDX-License-Identifier: Apache-2.0
#include "proxy/config/format.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "operate/key_file.h"
#include "proxy/config/address.h"
#include "proxy/config/built_in_profiles.h"

namespace hedgerow::config {
namespace {

bool IsLowerOrDigit(char c) {
  return absl::ascii_islower(static_cast<unsigned char>(c)) ||
         absl::ascii_isdigit(static_cast<unsigned char>(c));
}

bool IsWord(absl::string_view text, size_t most) {
  return !text.empty() && text.size() <= most &&
         std::all_of(text.begin(), text.end(), [](char c) { return IsLowerOrDigit(c) || c == '-'; });
}

bool IsInterface(absl::string_view text) {
  return !text.empty() && text.size() <= kMaxInterfaceBytes &&
         absl::ascii_isalpha(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_';
         });
}

std::optional<std::string> CanonicalIp(absl::string_view text) {
  const auto address = net::IpAddress::Parse(text);
  if (!address.ok() || !WhyNotUnicast(*address).empty()) return std::nullopt;
  return address->ToString();
}

std::optional<std::string> CanonicalListen(absl::string_view text) {
  if (text.empty()) return "";
  const std::optional<Endpoint> endpoint = ParseEndpoint(text);
  if (!endpoint.has_value() || !endpoint->address.is_loopback()) {
    return std::nullopt;
  }
  return FormatEndpoint(endpoint->address.ToString(), endpoint->port);
}

bool IsBytes(absl::string_view text, size_t most) {
  return !text.empty() && text.size() % 2 == 0 && text.size() <= 2 * most &&
         std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); });
}

bool IsPrintable(absl::string_view text, size_t most) {
  return !text.empty() && text.size() <= most &&
         std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isprint(static_cast<unsigned char>(c)); });
}

bool IsFile(absl::string_view text, size_t most) {
  return text.size() > 1 && text[0] == '/' && text.back() != '/' && text.size() <= most;
}

}  // namespace

std::optional<std::string> Canonical(v1::Format format, absl::string_view text) {
  const auto as_it_is = [text](bool fits) { return fits ? std::optional(std::string(text)) : std::nullopt; };
  switch (format) {
    case v1::FORMAT_IP:
      return CanonicalIp(text);
    case v1::FORMAT_LISTEN:
      return CanonicalListen(text);
    case v1::FORMAT_INSTANCE:
      return as_it_is(IsWord(text, 15));
    case v1::FORMAT_NAME:
      return as_it_is(IsWord(text, 31) && text[0] != '-');
    case v1::FORMAT_INTERFACE:
      return as_it_is(IsInterface(text));
    case v1::FORMAT_KEY:
      return operate::KeyDigits(text);
    case v1::FORMAT_SOCKET:
      return as_it_is(IsFile(text, kMaxSocketPathBytes));
    case v1::FORMAT_BYTES:
      if (!IsBytes(text, kMaxBytes)) return std::nullopt;
      return absl::AsciiStrToLower(text);
    case v1::FORMAT_TEXT:
      return as_it_is(IsPrintable(text, kMaxTextBytes));
    case v1::FORMAT_PROFILE: {
      const std::vector<std::string> names = ProfileNames();
      return as_it_is(std::find(names.begin(), names.end(), text) != names.end());
    }
    case v1::FORMAT_FILE:
      return as_it_is(IsFile(text, kMaxFilePathBytes));
    default:
      return std::string(text);
  }
}

std::string WhyRefused(v1::Format format, absl::string_view text) {
  if (format == v1::FORMAT_IP) {
    const auto address = net::IpAddress::Parse(text);
    return address.ok() ? absl::StrCat("this is ", WhyNotUnicast(*address)) : "";
  }
  if (format == v1::FORMAT_LISTEN) {
    const std::optional<Endpoint> endpoint = ParseEndpoint(text);
    return endpoint.has_value() && !endpoint->address.is_loopback() ? "metrics are served on this host only"
                                                                    : "";
  }
  return "";
}

}  // namespace hedgerow::config
