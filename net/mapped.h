// SPDX-License-Identifier: Apache-2.0
//
// The memory of a mappable BPF array, shared with the kernel programs for as long as the object lives. Plain loads and
// stores of its aligned words are atomic. Used by nodes, by the groups of steer/, and by tests.

#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hedgerow::net {

// T is the map's value type; the kernel rounds each value up to 8 bytes.
template <typename T>
class Mapped {
 public:
  static absl::StatusOr<Mapped> Open(int map_fd, uint32_t entries) {
    static_assert(sizeof(T) % 8 == 0);
    const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = (sizeof(T) * entries + page_bytes - 1) / page_bytes * page_bytes;
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, map_fd, 0);
    if (memory == MAP_FAILED) return absl::ErrnoToStatus(errno, "cannot map a BPF array");
    return Mapped(memory, bytes);
  }

  Mapped() = default;
  Mapped(Mapped&& other) noexcept { *this = std::move(other); }
  Mapped& operator=(Mapped&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapped() {
    if (memory_ != nullptr) munmap(memory_, bytes_);
  }

  volatile T* At(uint32_t index) const { return static_cast<volatile T*>(memory_) + index; }
  volatile T* operator->() const { return At(0); }

 private:
  Mapped(void* memory, size_t bytes) : memory_(memory), bytes_(bytes) {}

  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace hedgerow::net
