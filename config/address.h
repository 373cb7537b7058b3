// SPDX-License-Identifier: Apache-2.0
//
// What the configuration asks of an IP address: that it is one packets can be
// hedged to, and how it is joined with a port; and lists of networks.
// The types themselves are net's.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "net/ip_address.h"
#include "net/networks.h"

namespace hedgerow::config {

// Why packets cannot be hedged to this address ("a loopback address"), or
// empty.
std::string WhyNotUnicast(const net::IpAddress& address);

struct Endpoint {
  net::IpAddress address;
  uint16_t port = 0;
};

// "127.0.0.1:9464" or "[::1]:9464".
std::optional<Endpoint> ParseEndpoint(absl::string_view text);
std::string FormatEndpoint(absl::string_view address, uint32_t port);

// Of texts that the decoder has accepted as FORMAT_NETWORK; those that it has refused are left out.
net::Networks NetworksOf(const std::vector<std::string>& texts);

}  // namespace hedgerow::config
