// SPDX-License-Identifier: Apache-2.0
#include "config/format.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "config/address.h"
#include "config/scalar.h"
#include "net/networks.h"
#include "operate/key_file.h"

namespace hedgerow::config {
namespace {

bool IsLowerOrDigit(char c) {
  return absl::ascii_islower(static_cast<unsigned char>(c)) || absl::ascii_isdigit(static_cast<unsigned char>(c));
}

bool IsWord(absl::string_view text, size_t most) {
  return !text.empty() && text.size() <= most &&
         std::all_of(text.begin(), text.end(), [](char c) { return IsLowerOrDigit(c) || c == '-'; });
}

bool IsInterface(absl::string_view text) {
  return !text.empty() && text.size() <= kMaxInterfaceBytes &&
         absl::ascii_isalpha(static_cast<unsigned char>(text[0])) && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_';
         });
}

std::optional<std::string> CanonicalIp(absl::string_view text, bool loopback) {
  const auto address = net::IpAddress::Parse(text);
  if (!address.ok() || (!WhyNotUnicast(*address).empty() && !(loopback && address->is_loopback()))) return std::nullopt;
  return address->ToString();
}

bool IsFile(absl::string_view text, size_t most) {
  return text.size() > 1 && text[0] == '/' && text.back() != '/' && text.size() <= most;
}

std::optional<std::string> CanonicalListen(absl::string_view text) {
  if (text.empty()) return "";
  if (absl::string_view path = text; absl::ConsumePrefix(&path, kUnixPrefix))
    return IsFile(path, kMaxSocketPathBytes) ? std::optional(std::string(text)) : std::nullopt;
  const std::optional<Endpoint> endpoint = ParseEndpoint(text);
  if (!endpoint.has_value()) return std::nullopt;
  return FormatEndpoint(endpoint->address.ToString(), endpoint->port);
}

std::optional<std::string> CanonicalEndpoint(absl::string_view text) {
  const std::optional<Endpoint> endpoint = ParseEndpoint(text);
  if (!endpoint.has_value() || endpoint->port == 0) return std::nullopt;
  return FormatEndpoint(endpoint->address.ToString(), endpoint->port);
}

bool IsBytes(absl::string_view text, size_t most) {
  return !text.empty() && text.size() % 2 == 0 && text.size() <= 2 * most &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); });
}

// "1/61b68ac4e140c840".
bool IsEpoch(absl::string_view text) {
  constexpr size_t kNumberBytes = 8;
  const size_t slash = text.find('/');
  if (slash == absl::string_view::npos) return false;
  const std::optional<int64_t> epoch = ParseWhole(text.substr(0, slash));
  const absl::string_view number = text.substr(slash + 1);
  return epoch.has_value() && *epoch > 0 && number.size() == 2 * kNumberBytes && IsBytes(number, kNumberBytes);
}

bool IsPrintable(absl::string_view text, size_t most) {
  return !text.empty() && text.size() <= most && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isprint(static_cast<unsigned char>(c));
  });
}

}  // namespace

std::optional<std::string> Canonical(Format format, absl::string_view text) {
  const auto as_it_is = [text](bool fits) { return fits ? std::optional(std::string(text)) : std::nullopt; };
  switch (format) {
    case FORMAT_IP:
    case FORMAT_SERVER: return CanonicalIp(text, /*loopback=*/format == FORMAT_SERVER);
    case FORMAT_LISTEN: return CanonicalListen(text);
    case FORMAT_INSTANCE: return as_it_is(IsWord(text, 15));
    case FORMAT_NAME: return as_it_is(IsWord(text, 31) && text[0] != '-');
    case FORMAT_INTERFACE: return as_it_is(IsInterface(text));
    case FORMAT_KEY: return operate::KeyDigits(text);
    case FORMAT_SOCKET: return as_it_is(IsFile(text, kMaxSocketPathBytes));
    case FORMAT_BYTES:
      if (!IsBytes(text, kMaxBytes)) return std::nullopt;
      return absl::AsciiStrToLower(text);
    case FORMAT_PAYLOAD:
      if (!IsBytes(text, kMaxPayloadBytes)) return std::nullopt;
      return absl::AsciiStrToLower(text);
    case FORMAT_TEXT: return as_it_is(IsPrintable(text, kMaxTextBytes));
    case FORMAT_EPOCH: return as_it_is(IsEpoch(text));
    case FORMAT_ENDPOINT: return CanonicalEndpoint(text);
    case FORMAT_NETWORK: {
      const auto network = net::Network::Parse(text);
      return network.ok() ? std::optional(network->ToString()) : std::nullopt;
    }
    case FORMAT_FILE: return as_it_is(IsFile(text, kMaxFilePathBytes));
    default: return std::string(text);
  }
}

std::string WhyNotListened(absl::string_view listen, absl::string_view tls_key, bool tls, absl::string_view token_key,
                           bool token) {
  const std::string got = absl::StrCat("got \"", listen, "\", expected ");
  if (absl::StartsWith(listen, kUnixPrefix)) {
    return tls || token ? absl::StrCat(got, "an address and port beside ", tls_key, " and ", token_key,
                                       ": a socket's group says who may ask there")
                        : "";
  }
  const std::optional<Endpoint> endpoint = ParseEndpoint(listen);
  if (!endpoint.has_value() || endpoint->address.is_loopback() || (tls && token)) return "";
  return absl::StrCat(got, "a loopback address, or ", tls_key, " and ", token_key,
                      " beside it, because other hosts can connect there");
}

std::string WhyRefused(Format format, absl::string_view text) {
  if (format == FORMAT_IP || format == FORMAT_SERVER) {
    const auto address = net::IpAddress::Parse(text);
    return address.ok() ? absl::StrCat("this is ", WhyNotUnicast(*address)) : "";
  }
  if (format == FORMAT_NETWORK && net::IpAddress::Parse(text.substr(0, text.find('/'))).ok())
    return std::string(net::Network::Parse(text).status().message());
  return "";
}

}  // namespace hedgerow::config
