// SPDX-License-Identifier: Apache-2.0
//
// One address type for both families: 16 bytes, IPv4 as ::ffff:a.b.c.d, the same form the kernel programs' maps
// use. Everything in net/ that names an address uses it, so that no function exists twice for two
// families.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hedgerow::net {

class IpAddress {
 public:
  IpAddress() = default;  // The unspecified IPv6 address.

  // Accepts "10.0.0.1" and "fd00::1". "::ffff:10.0.0.1" is IPv4, since that is how IPv4 is stored.
  static absl::StatusOr<IpAddress> Parse(absl::string_view text);
  // `bytes` in network order: 4 (IPv4) or 16 (IPv6 or mapped IPv4). Any other length is InvalidArgument.
  static absl::StatusOr<IpAddress> FromBytes(std::span<const uint8_t> bytes);

  bool is_v4() const;
  bool is_loopback() const;  // 127.0.0.0/8 or ::1
  int family() const;        // AF_INET or AF_INET6
  int prefix_bits() const { return is_v4() ? 32 : 128; }

  // The stored form, network order.
  const std::array<uint8_t, 16>& mapped() const { return bytes_; }
  // The wire form: 4 bytes for IPv4, 16 for IPv6. Valid as long as this object is.
  std::span<const uint8_t> wire() const;
  std::string ToString() const;

  friend bool operator==(const IpAddress&, const IpAddress&) = default;
  friend auto operator<=>(const IpAddress&, const IpAddress&) = default;

 private:
  std::array<uint8_t, 16> bytes_{};
};

}  // namespace hedgerow::net
