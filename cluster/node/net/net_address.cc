// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/net/net_address.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include <arpa/inet.h>
#include <netinet/in.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace hedgerow::node {
namespace {

constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

absl::Status Malformed(std::string_view text, const char* why) {
  return absl::InvalidArgumentError(absl::StrCat("\"", std::string(text), "\" ", why,
                                                 "; expected an address such as 10.0.0.1:4801 or [fd00::1]:4801"));
}

}  // namespace

absl::StatusOr<NetAddress> NetAddress::Parse(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return Malformed(text, "has no port");
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  NetAddress address;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc() || end != port.data() + port.size() || address.port == 0) {
    return Malformed(text, "has no port from 1 to 65535");
  }
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  const std::string host_text(host);
  if (bracketed) {
    if (inet_pton(AF_INET6, host_text.c_str(), address.bytes.data()) != 1) {
      return Malformed(text, "is no IPv6 address in its brackets");
    }
    return address;
  }
  std::copy(kMapped.begin(), kMapped.end(), address.bytes.begin());
  if (inet_pton(AF_INET, host_text.c_str(), address.bytes.data() + kMapped.size()) != 1) {
    return Malformed(text, "is no IPv4 address with a port");
  }
  return address;
}

NetAddress NetAddress::FromSockaddr(const sockaddr_storage& address) {
  NetAddress result;
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    std::copy(kMapped.begin(), kMapped.end(), result.bytes.begin());
    std::memcpy(result.bytes.data() + kMapped.size(), &v4.sin_addr, sizeof(v4.sin_addr));
    result.port = ntohs(v4.sin_port);
  } else {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
    std::memcpy(result.bytes.data(), &v6.sin6_addr, sizeof(v6.sin6_addr));
    result.port = ntohs(v6.sin6_port);
  }
  return result;
}

bool NetAddress::is_v4() const { return std::equal(kMapped.begin(), kMapped.end(), bytes.begin()); }

bool NetAddress::is_unspecified() const {
  const size_t first = is_v4() ? kMapped.size() : 0;
  return std::all_of(bytes.begin() + first, bytes.end(), [](uint8_t byte) { return byte == 0; });
}

socklen_t NetAddress::ToSockaddr(sockaddr_storage& address) const {
  address = {};
  if (is_v4()) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(address);
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    std::memcpy(&v4.sin_addr, bytes.data() + kMapped.size(), sizeof(v4.sin_addr));
    return sizeof(v4);
  }
  return ToSockaddr6(address);
}

socklen_t NetAddress::ToSockaddr6(sockaddr_storage& address) const {
  address = {};
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  std::memcpy(&v6.sin6_addr, bytes.data(), sizeof(v6.sin6_addr));
  return sizeof(v6);
}

std::string NetAddress::ToString() const {
  char text[INET6_ADDRSTRLEN];
  if (is_v4()) {
    inet_ntop(AF_INET, bytes.data() + kMapped.size(), text, sizeof(text));
    return absl::StrCat(text, ":", port);
  }
  inet_ntop(AF_INET6, bytes.data(), text, sizeof(text));
  return absl::StrCat("[", text, "]:", port);
}

}  // namespace hedgerow::node
