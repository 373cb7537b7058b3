// SPDX-License-Identifier: Apache-2.0
//
// Lists of networks in CIDR notation (RFC 4632, RFC 4291 section 2.3): the sources from which a port takes packets. The
// configurations of nodes and proxies name them `clients`; a node's ports match each datagram's source against one.
// Pure; a list may be read by any thread.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "net/ip_address.h"

namespace hedgerow::net {

struct Network {
  IpAddress address{};  // its first one: no bit beyond the prefix is set
  int bits = 0;         // of the prefix, in the address's own family: 0 to 32, or 0 to 128

  // "10.0.0.0/8" or "fd00::/8"; an address alone is the network of that address. InvalidArgument says what is wrong
  // with the text, and what was meant where bits beyond the prefix are set.
  static absl::StatusOr<Network> Parse(absl::string_view text);
  // The prefix's bits, of the 16 bytes of IpAddress::mapped.
  std::array<uint8_t, 16> mask() const;
  bool Contains(const IpAddress& other) const;
  // An address that a host may have: the second one, of a network of several.
  IpAddress Host() const;
  // With its prefix, always.
  std::string ToString() const;

  bool operator==(const Network&) const = default;
};

class Networks {
 public:
  Networks() = default;  // Contains nothing.
  explicit Networks(std::vector<Network> networks);

  // `address` as IpAddress::mapped has it. IPv4 addresses are in IPv4 networks only: ::/0 does not contain 10.0.0.1.
  bool Contains(const std::array<uint8_t, 16>& address) const;
  absl::Span<const Network> list() const { return networks_; }

  bool operator==(const Networks& other) const { return networks_ == other.networks_; }

 private:
  // Of one network, over the 16 bytes of an address in two words, in memory order.
  struct Rule {
    uint64_t mask[2];
    uint64_t value[2];
    bool v4;
  };
  std::vector<Network> networks_;
  std::vector<Rule> rules_;
};

// Loopback (RFC 1122 section 3.2.1.3, RFC 4291), private (RFC 1918), unique local (RFC 4193) and link-local (RFC 3927,
// RFC 4291) addresses: those that no packet from the Internet has. Without the shared address space of RFC 6598, which
// a provider's customers have in common.
const Networks& PrivateNetworks();

}  // namespace hedgerow::net
