// SPDX-License-Identifier: Apache-2.0
#include "proxy/data_plane/endpoint.h"

#include <arpa/inet.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace hedgerow {

absl::StatusOr<hr_address> ParseAddress(const std::string& text) {
  hr_address address{};
  in_addr ipv4{};
  if (inet_pton(AF_INET, text.c_str(), &ipv4) == 1) {
    address.words[2] = htonl(0xffff);
    address.words[3] = ipv4.s_addr;
    return address;
  }
  if (inet_pton(AF_INET6, text.c_str(), address.bytes) == 1) return address;
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not an IPv4 or IPv6 address"));
}

absl::StatusOr<hr_endpoint> ParseEndpoint(const std::string& address, uint16_t port) {
  auto parsed = ParseAddress(address);
  if (!parsed.ok()) return parsed.status();
  hr_endpoint endpoint{};
  endpoint.address = *parsed;
  endpoint.port_be = htons(port);
  return endpoint;
}

}  // namespace hedgerow
