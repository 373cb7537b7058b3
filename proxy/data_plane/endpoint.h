// SPDX-License-Identifier: Apache-2.0
//
// Textual addresses into the 16-byte form of the kernel's maps.
#pragma once

#include <arpa/inet.h>

#include <algorithm>
#include <string>

#include "absl/status/statusor.h"
#include "bpf/abi/base_abi.h"
#include "net/ip_address.h"

namespace hedgerow {

// InvalidArgument names the text.
inline absl::StatusOr<hr_address> ParseAddress(const std::string& text) {
  const auto parsed = net::IpAddress::Parse(text);
  if (!parsed.ok()) return parsed.status();
  hr_address address{};
  std::copy(parsed->mapped().begin(), parsed->mapped().end(), address.bytes);
  return address;
}

// `port` in host order.
inline absl::StatusOr<hr_endpoint> ParseEndpoint(const std::string& address, uint16_t port) {
  const auto parsed = ParseAddress(address);
  if (!parsed.ok()) return parsed.status();
  hr_endpoint endpoint{};
  endpoint.address = *parsed;
  endpoint.port_be = htons(port);
  return endpoint;
}

}  // namespace hedgerow
