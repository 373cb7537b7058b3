// SPDX-License-Identifier: Apache-2.0
//
// The hash of the store's indexes. Clients choose keys and nonces, so it has a secret that each process draws for
// itself: keys that all fall into one bucket of one process are spread over those of another, and cannot be computed in
// advance (Crosby and Wallach, "Denial of Service via Algorithmic Complexity Attacks", 2003). For texts it is
// SipHash-2-4, for numbers a multiplication by the secret whose result no client sees. Replicas have different secrets,
// so the order of a bucket, and of a walk over a map, must never decide anything that is replicated.

#pragma once

#include <cstdint>
#include <string_view>

#include "bpf/abi/siphash_abi.h"

namespace hedgerow::kv {

struct HashSecret {
  uint64_t first = 0;
  uint64_t second = 0;
};

// What a map that is made now takes: the process's, drawn from the kernel's generator when it is first asked for,
// unless a ScopedHashSecret of this thread says another. Any thread.
HashSecret TheHashSecret();

// For the simulator, whose runs are repeated bit by bit, and for tests. One at a time in a thread.
class ScopedHashSecret {
 public:
  explicit ScopedHashSecret(const HashSecret& secret);
  ~ScopedHashSecret();
  ScopedHashSecret(const ScopedHashSecret&) = delete;
  ScopedHashSecret& operator=(const ScopedHashSecret&) = delete;
};

inline uint64_t KeyedHash(const HashSecret& secret, std::string_view text) {
  const hr_siphash_key key = {.k0 = secret.first, .k1 = secret.second};
  return hr_siphash(&key, text.data(), text.size());
}
inline uint64_t KeyedHash(const HashSecret& secret, uint64_t number) {
  const unsigned __int128 product = static_cast<unsigned __int128>(number ^ secret.first) * (secret.second | 1);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace hedgerow::kv
