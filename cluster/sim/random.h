// SPDX-License-Identifier: Apache-2.0
//
// The simulator's only source of chance: xoshiro256** seeded by splitmix64 (Blackman and Vigna), the same on
// every platform, unlike the distributions of the standard library.

#pragma once

#include <bit>
#include <cstdint>
#include <initializer_list>

namespace hedgerow::sim {

class Random {
 public:
  explicit Random(uint64_t seed) {
    for (uint64_t& word : state_) {
      seed += 0x9e3779b97f4a7c15;
      uint64_t mixed = seed;
      mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
      mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
      word = mixed ^ (mixed >> 31);
    }
  }

  uint64_t Next() {
    const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  uint64_t Below(uint64_t bound) { return Next() % bound; }
  uint64_t Between(uint64_t low, uint64_t high) { return low + Below(high - low + 1); }
  // In millionths.
  bool Chance(uint64_t ppm) { return Below(1'000'000) < ppm; }

  template <typename Value>
  Value Pick(std::initializer_list<Value> values) {
    return values.begin()[Below(values.size())];
  }

 private:
  uint64_t state_[4];
};

}  // namespace hedgerow::sim
