// SPDX-License-Identifier: Apache-2.0
//
// Holds each client to a rate at which it cannot come round all frame ids within the dedupe window (ADR 0014).
// A client is an address with its port, as the window knows it. Bounded: a client that has used less than it
// may is like one that was never seen, and is forgotten. Owned by the node's front end, on the loop's thread.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>

#include "cluster/kv/keyed_hash.h"

namespace hedgerow::memcached {

class Rate {
 public:
  using Client = std::array<uint64_t, 3>;  // address, port

  enum class Verdict : uint8_t { kTaken, kTooFast, kTooManyClients };

  // What may come at once, in time at the rate: within any T at most (T + this) times the rate, and one more.
  static constexpr uint64_t kBurst_ns = 100'000'000;

  Rate(uint64_t per_s, size_t clients_max) : clients_max_(clients_max) { SetRate(per_s); }

  // From now on; a client that has sent more than that already waits a while.
  void SetRate(uint64_t per_s) { cost_ns_ = (1'000'000'000 + per_s - 1) / per_s; }

  Verdict Take(const Client& client, uint64_t now_ns);

  size_t clients() const { return paid_until_ns_.size(); }

 private:
  struct Hash {
    Hash() : secret(kv::TheHashSecret()) {}
    kv::HashSecret secret;
    size_t operator()(const Client& client) const {
      uint64_t hash = 0;
      for (const uint64_t word : client) hash = kv::KeyedHash(secret, hash ^ word);
      return hash;
    }
  };

  void Forget(uint64_t now_ns);

  uint64_t cost_ns_ = 0;
  size_t clients_max_;
  // The virtual scheduling algorithm (ITU-T I.371): when a client that sends at the rate would have sent what
  // it has sent.
  std::unordered_map<Client, uint64_t, Hash> paid_until_ns_;
  std::deque<Client> order_;  // each of them once
};

}  // namespace hedgerow::memcached
