// SPDX-License-Identifier: Apache-2.0
#include "cluster/wire/key.h"

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cluster/raft/bytes.h"

namespace hedgerow::wire {
namespace {

// Sets this key's use apart from datagrams, announcements and transfers, which begin otherwise.
constexpr std::string_view kEpochPurpose = "hedgerow epoch 1";

constexpr std::string_view kDigits = "0123456789abcdef";

// -1: not a digit.
int DigitOf(char character) {
  if (character >= '0' && character <= '9') return character - '0';
  if (character >= 'a' && character <= 'f') return character - 'a' + 10;
  if (character >= 'A' && character <= 'F') return character - 'A' + 10;
  return -1;
}

uint64_t LittleEndian(const uint8_t* bytes) {
  uint64_t number = 0;
  for (size_t i = 0; i < sizeof(number); ++i) number |= uint64_t{bytes[i]} << (8 * i);
  return number;
}

}  // namespace

uint32_t KeyId(const Key& key) {
  const hr_siphash_key siphash_key = SipHashKey(key);
  return hr_key_id(&siphash_key);
}

std::string FormatKeyId(uint32_t id) { return absl::StrCat(absl::Hex(id, absl::kZeroPad8)); }

KeyRing::KeyRing(const Key& seals, const std::optional<Key>& other) : seals_{.key = seals, .id = KeyId(seals)} {
  if (other.has_value()) other_ = {.key = *other, .id = KeyId(*other)};
}

const KeyRing::Entry* KeyRing::Find(uint32_t id) const {
  if (seals_.id == id) return &seals_;
  return other_.has_value() && other_->id == id ? &*other_ : nullptr;
}

KeyRing KeyRing::Derived(const std::function<Key(const Key&)>& derive) const {
  KeyRing derived = *this;
  derived.seals_.key = derive(seals_.key);
  if (derived.other_.has_value()) derived.other_->key = derive(derived.other_->key);
  return derived;
}

absl::StatusOr<Key> ParseKey(std::string_view hex) {
  Key key;
  if (hex.size() != 2 * key.bytes.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a key is ", 2 * key.bytes.size(), " hexadecimal digits; this has ", hex.size(), " characters"));
  }
  for (size_t i = 0; i < hex.size(); ++i) {
    const int digit = DigitOf(hex[i]);
    if (digit < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("a key is ", hex.size(), " hexadecimal digits; character ", i + 1, " is none"));
    }
    uint8_t& byte = key.bytes[i / 2];
    byte = static_cast<uint8_t>(byte << 4 | digit);
  }
  return key;
}

std::string FormatKey(const Key& key) {
  std::string hex;
  hex.reserve(2 * key.bytes.size());
  for (const uint8_t byte : key.bytes) {
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 0xf]);
  }
  return hex;
}

Key DeriveClusterKey(const Key& cluster_key, uint64_t epoch, uint64_t nonce) {
  if (epoch == 0) return cluster_key;
  const hr_siphash_key siphash_key = SipHashKey(cluster_key);
  Key key;
  for (size_t half = 0; half < 2; ++half) {
    ByteWriter writer(2 + kEpochPurpose.size() + 16);
    writer.PutText<uint8_t>(kEpochPurpose);
    writer.Put(static_cast<uint8_t>(half + 1));
    writer.Put(epoch);
    writer.Put(nonce);
    const uint64_t hash = hr_siphash(&siphash_key, writer.view().data(), writer.view().size());
    for (size_t i = 0; i < 8; ++i) key.bytes[half * 8 + i] = static_cast<uint8_t>(hash >> (8 * i));
  }
  return key;
}

KeyRing DeriveClusterKeys(const KeyRing& cluster_keys, uint64_t epoch, uint64_t nonce) {
  return cluster_keys.Derived([=](const Key& key) { return DeriveClusterKey(key, epoch, nonce); });
}

hr_siphash_key SipHashKey(const Key& key) {
  return {.k0 = LittleEndian(key.bytes.data()), .k1 = LittleEndian(key.bytes.data() + 8)};
}

}  // namespace hedgerow::wire
