// SPDX-License-Identifier: Apache-2.0
//
// Random numbers of the kernel's generator (getrandom(2)), a page of them at a time. A client sees the numbers that
// name its sessions (kv::SessionName) and may ask for many: a generator such as mt19937 could be computed on from
// those. On the loop's thread.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <sys/random.h>

#include "cluster/raft/check.h"

namespace hedgerow::node {

class SecretNumbers {
 public:
  // Each is given once, and nothing of it is kept.
  uint64_t Draw() {
    if (left_ == 0) Fill();
    return std::exchange(numbers_[--left_], 0);
  }

 private:
  // Up to 256 bytes come whole and uninterrupted once the kernel's generator is ready, and a node starts after that.
  void Fill() {
    HEDGEROW_CHECK(getrandom(numbers_.data(), sizeof(numbers_), 0) == sizeof(numbers_));
    left_ = numbers_.size();
  }

  std::array<uint64_t, 32> numbers_{};
  size_t left_ = 0;
};

}  // namespace hedgerow::node
