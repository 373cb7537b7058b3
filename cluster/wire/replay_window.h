// SPDX-License-Identifier: Apache-2.0
//
// Which of a sender's packet numbers were seen: exact for the last 4,096 below the highest, and what lies
// further back counts as seen. Reordering within that costs nothing; a recorded datagram is worth nothing. One
// per peer, in PeerIncarnations. The idea is RFC 6479's (a ring of words instead of a shifted bitmap).

#pragma once

#include <array>
#include <cstdint>

namespace hedgerow::wire {

class ReplayWindow {
 public:
  static constexpr uint64_t kNumbers = 4096;

  enum class Verdict : uint8_t { kNew, kSeen, kTooOld };

  // Everything up to `floor` is old from now on.
  explicit ReplayWindow(uint64_t floor = 0) : floor_(floor), highest_(floor) {}

  // kNew once for each number; remembers it.
  Verdict Take(uint64_t number);

  uint64_t highest() const { return highest_; }

 private:
  void Advance(uint64_t number);

  uint64_t floor_;
  uint64_t highest_;
  std::array<uint64_t, kNumbers / 64> seen_{};  // bit number % kNumbers, for numbers in (highest - kNumbers, highest]
};

}  // namespace hedgerow::wire
