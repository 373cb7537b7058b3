// SPDX-License-Identifier: Apache-2.0
//
// The 16 bytes that make a tag. A cluster has one for its peers and one from which each proxy's is derived;
// they are secrets: they come from the configuration, and no error, log line or metric repeats them. All
// functions are pure.

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "bpf/abi/siphash_abi.h"

namespace hedgerow::wire {

struct Key {
  std::array<uint8_t, 16> bytes{};

  bool operator==(const Key&) const = default;
};

// From exactly 32 hexadecimal digits of either case. kInvalidArgument says what is wrong without repeating any
// of it.
absl::StatusOr<Key> ParseKey(std::string_view hex);

// 32 small hexadecimal digits: for the one command that prints a proxy's key.
std::string FormatKey(const Key& key);

// What nodes of a recovered cluster seal with (docs/adr/0019). `epoch` 0: the key
// itself. One generation's key tells nothing of another's.
Key DeriveClusterKey(const Key& cluster_key, uint64_t epoch, uint64_t nonce);

// The form in which SipHash takes it.
hr_siphash_key SipHashKey(const Key& key);

}  // namespace hedgerow::wire
