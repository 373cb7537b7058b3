// SPDX-License-Identifier: Apache-2.0
//
// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every input bit reaches every output bit. What servers
// draw from a request's id.
#pragma once

#include <cstdint>

namespace hedgerow::bench {

inline uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace hedgerow::bench
