// SPDX-License-Identifier: Apache-2.0
#include "config/address.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace hedgerow::config {
namespace {

bool AllZero(std::span<const uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t b) { return b == 0; });
}

std::string WhyNotUnicastV4(std::span<const uint8_t> v4) {
  if (v4[0] == 0) return "an unspecified address";
  if (v4[0] == 127) return "a loopback address";
  if (v4[0] >= 224 && v4[0] <= 239) return "a multicast address";
  if (v4[0] == 255) return "a broadcast address";
  if (v4[0] >= 240) return "a reserved address";
  if (v4[0] == 169 && v4[1] == 254) return "a link-local address";
  return "";
}

std::string WhyNotUnicastV6(std::span<const uint8_t> v6) {
  if (AllZero(v6)) return "an unspecified address";
  if (AllZero(v6.first(15)) && v6[15] == 1) return "a loopback address";
  if (v6[0] == 0xff) return "a multicast address";
  if (v6[0] == 0xfe && (v6[1] & 0xc0) == 0x80) return "a link-local address";
  return "";
}

}  // namespace

std::string WhyNotUnicast(const net::IpAddress& address) {
  return address.is_v4() ? WhyNotUnicastV4(address.wire()) : WhyNotUnicastV6(address.wire());
}

std::optional<Endpoint> ParseEndpoint(absl::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return std::nullopt;
  absl::string_view host = text.substr(0, colon);
  const absl::string_view port_text = text.substr(colon + 1);
  const bool bracketed = absl::ConsumePrefix(&host, "[");
  if (bracketed && !absl::ConsumeSuffix(&host, "]")) return std::nullopt;
  const auto address = net::IpAddress::Parse(host);
  if (!address.ok() || address->is_v4() == bracketed) return std::nullopt;
  uint32_t port = 0;
  const bool digits = !port_text.empty() && port_text.size() <= 5 &&
                      std::all_of(port_text.begin(), port_text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits || !absl::SimpleAtoi(port_text, &port) || port > 65535) {
    return std::nullopt;
  }
  return Endpoint{*address, static_cast<uint16_t>(port)};
}

net::Networks NetworksOf(const std::vector<std::string>& texts) {
  std::vector<net::Network> list;
  for (const std::string& text : texts) {
    if (const absl::StatusOr<net::Network> network = net::Network::Parse(text); network.ok()) list.push_back(*network);
  }
  return net::Networks(std::move(list));
}

std::string FormatEndpoint(absl::string_view address, uint32_t port) {
  return absl::StrContains(address, ':') ? absl::StrCat("[", address, "]:", port) : absl::StrCat(address, ":", port);
}

}  // namespace hedgerow::config
