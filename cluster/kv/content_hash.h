// SPDX-License-Identifier: Apache-2.0
//
// A hash of one record of the state. A table's content is the sum of its records' hashes: a change takes the old
// record's off and adds the new one's, so it covers every byte of a state of any size at the cost of what changes. What
// is taken off is computed of the bytes that are there, so a byte that has changed by itself leaves the sum wrong for
// good. Two replicas compare sums, so the hash is the same on every processor. It is no protection against somebody who
// makes collisions: clients choose the bytes, but on all replicas alike.

#pragma once

#include <endian.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string_view>

#include "cluster/kv/incremental_snapshot.h"

namespace hedgerow::kv {

class ContentHash {
 public:
  explicit ContentHash(SnapshotRecord kind) : hash_(kSecrets[0] + static_cast<uint64_t>(kind)) {}

  ContentHash& Word(uint64_t word) { return Pair(word, 0); }
  ContentHash& Pair(uint64_t first, uint64_t second) {
    hash_ = Fold(first ^ kSecrets[1], second ^ hash_);
    return *this;
  }
  // 16 bytes at a time, the last ones with some of those before them. Its length stands behind it, so that two texts
  // are never one.
  ContentHash& Text(std::string_view text) {
    const char* const bytes = text.data();
    const size_t size = text.size();
    if (size > 16) {
      for (size_t i = 0; i + 16 < size; i += 16) Pair(Load<uint64_t>(bytes + i), Load<uint64_t>(bytes + i + 8));
      Pair(Load<uint64_t>(bytes + size - 16), Load<uint64_t>(bytes + size - 8));
    } else if (size >= 8) {
      Pair(Load<uint64_t>(bytes), Load<uint64_t>(bytes + size - 8));
    } else if (size >= 4) {
      Pair(Load<uint32_t>(bytes), Load<uint32_t>(bytes + size - 4));
    } else if (size > 0) {
      Pair(Load<uint8_t>(bytes) << 16 | Load<uint8_t>(bytes + size / 2) << 8 | Load<uint8_t>(bytes + size - 1), 0);
    }
    return Word(size);
  }
  uint64_t Take() const { return Fold(hash_ ^ kSecrets[2], kSecrets[3]); }

 private:
  // Odd, with as many ones as zeros, as wyhash wants them.
  static constexpr uint64_t kSecrets[4] = {0xa0761d6478bd642f, 0xe7037ed1a0b428db, 0x8ebc6af09c88c6e3,
                                           0x589965cc75374cc3};

  static uint64_t Fold(uint64_t a, uint64_t b) {
    const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
  template <typename Number>
  static uint64_t Load(const char* bytes) {
    Number number;
    std::memcpy(&number, bytes, sizeof(number));
    if constexpr (sizeof(number) == sizeof(uint64_t)) return le64toh(number);
    if constexpr (sizeof(number) == sizeof(uint32_t)) return le32toh(number);
    return number;
  }

  uint64_t hash_;
};

inline uint64_t HashResult(ContentHash hash, const Result& result) {
  hash.Pair(static_cast<uint64_t>(result.code) << 32 | result.values.size(), result.session);
  for (const std::string& value : result.values) hash.Text(value);
  return hash.Take();
}

inline uint64_t HashValue(std::string_view key, std::string_view value) {
  return ContentHash(SnapshotRecord::kValue).Text(key).Text(value).Take();
}

inline uint64_t HashItem(std::string_view key, const Item& item) {
  return ContentHash(SnapshotRecord::kItem)
      .Text(key)
      .Text(item.value)
      .Pair(item.flags, item.unique)
      .Word(item.end_ns)
      .Take();
}

// A session is hashed in parts, since a write changes two of them and an answer has no bound.
inline uint64_t HashSession(const SessionRecord& session) {
  return ContentHash(SnapshotRecord::kSession)
      .Pair(session.name.id, session.name.token)
      .Pair(session.nonce, session.wrote)
      .Pair(session.lowest_unanswered, session.active_ns)
      .Take();
}
inline uint64_t HashAnswer(uint64_t session, uint64_t seq, const SessionAnswer& answer) {
  return HashResult(ContentHash(SnapshotRecord::kSession).Pair(session, seq).Word(answer.fingerprint), answer.result);
}

inline uint64_t HashSeen(const SeenTimes& times, const RequestKey& key, const Result& result) {
  const bool memcached = key.kind == CommandKind::kMemcached;
  ContentHash hash(memcached ? SnapshotRecord::kSeen : SnapshotRecord::kWindowed);
  hash.Pair(times.time_ns, times.origin_ns).Pair(key.a, key.b).Pair(key.c, key.d);
  return HashResult(hash, result);
}

}  // namespace hedgerow::kv
