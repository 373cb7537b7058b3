// SPDX-License-Identifier: Apache-2.0
//
// The 16 bytes that make a tag. A cluster has one for its peers and one from which each proxy's is derived;
// they are secrets: they come from the configuration, and no error, log line or metric repeats them. All
// functions are pure.

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "bpf/abi/siphash_abi.h"

namespace hedgerow::wire {

struct Key {
  std::array<uint8_t, 16> bytes{};

  bool operator==(const Key&) const = default;
};

// What names a key on the wire, in status and in messages: hr_key_id(). Never 0.
uint32_t KeyId(const Key& key);
// "1f00ab2c"
std::string FormatKeyId(uint32_t id);

// The keys of one purpose that are valid now: one, or two while it is changed (docs/adr/0042). The first one seals, and
// both open.
class KeyRing {
 public:
  struct Entry {
    Key key{};
    uint32_t id = 0;

    bool operator==(const Entry&) const = default;
  };

  KeyRing() : KeyRing(Key()) {}  // a key of zeros, which no configuration accepts
  KeyRing(const Key& seals, const std::optional<Key>& other = std::nullopt);  // NOLINT: a key is a ring of one

  const Entry& seals() const { return seals_; }
  const Entry* other() const { return other_.has_value() ? &*other_ : nullptr; }
  // Null: it is none of them.
  const Entry* Find(uint32_t id) const;
  bool Holds(const Key& key) const { return seals_.key == key || (other_.has_value() && other_->key == key); }
  // Whether a key stands in both.
  bool Shares(const KeyRing& ring) const {
    return ring.Holds(seals_.key) || (other_.has_value() && ring.Holds(other_->key));
  }
  // Other keys made of these, under the names of these.
  KeyRing Derived(const std::function<Key(const Key&)>& derive) const;

  bool operator==(const KeyRing&) const = default;

 private:
  Entry seals_;
  std::optional<Entry> other_;
};

// From exactly 32 hexadecimal digits of either case. kInvalidArgument says what is wrong without repeating any
// of it.
absl::StatusOr<Key> ParseKey(std::string_view hex);

// 32 small hexadecimal digits: for the one command that prints a proxy's key.
std::string FormatKey(const Key& key);

// What nodes of a recovered cluster seal with (docs/adr/0019). `epoch` 0: the key
// itself. One generation's key tells nothing of another's.
Key DeriveClusterKey(const Key& cluster_key, uint64_t epoch, uint64_t nonce);
// Of each, under the names that the configured keys have.
KeyRing DeriveClusterKeys(const KeyRing& cluster_keys, uint64_t epoch, uint64_t nonce);

// The form in which SipHash takes it.
hr_siphash_key SipHashKey(const Key& key);

}  // namespace hedgerow::wire
