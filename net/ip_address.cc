// SPDX-License-Identifier: Apache-2.0
#include "net/ip_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace hedgerow::net {
namespace {

constexpr std::array<uint8_t, 12> kMappedPrefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

}  // namespace

absl::StatusOr<IpAddress> IpAddress::FromBytes(std::span<const uint8_t> bytes) {
  IpAddress address;
  if (bytes.size() == 4) {
    std::copy(kMappedPrefix.begin(), kMappedPrefix.end(), address.bytes_.begin());
    std::copy(bytes.begin(), bytes.end(), address.bytes_.begin() + 12);
  } else if (bytes.size() == 16) {
    std::copy(bytes.begin(), bytes.end(), address.bytes_.begin());
  } else {
    return absl::InvalidArgumentError(absl::StrCat("an address of ", bytes.size(), " bytes; expected 4 or 16"));
  }
  return address;
}

absl::StatusOr<IpAddress> IpAddress::Parse(absl::string_view text) {
  const std::string terminated(text);
  std::array<uint8_t, 16> wire;
  if (inet_pton(AF_INET, terminated.c_str(), wire.data()) == 1) {
    return FromBytes(std::span<const uint8_t>(wire.data(), 4));
  }
  if (inet_pton(AF_INET6, terminated.c_str(), wire.data()) == 1) return FromBytes(wire);
  return absl::InvalidArgumentError(absl::StrCat("'", text, "' is neither an IPv4 nor an IPv6 address"));
}

bool IpAddress::is_v4() const { return std::equal(kMappedPrefix.begin(), kMappedPrefix.end(), bytes_.begin()); }

bool IpAddress::is_loopback() const {
  if (is_v4()) return bytes_[12] == 127;
  return std::all_of(bytes_.begin(), bytes_.end() - 1, [](uint8_t b) { return b == 0; }) && bytes_[15] == 1;
}

int IpAddress::family() const { return is_v4() ? AF_INET : AF_INET6; }

std::span<const uint8_t> IpAddress::wire() const {
  return is_v4() ? std::span<const uint8_t>(bytes_.data() + 12, 4) : std::span<const uint8_t>(bytes_);
}

std::string IpAddress::ToString() const {
  char text[INET6_ADDRSTRLEN];
  return inet_ntop(family(), wire().data(), text, sizeof(text)) ? text : "?";
}

}  // namespace hedgerow::net
