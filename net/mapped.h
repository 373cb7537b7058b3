// SPDX-License-Identifier: Apache-2.0
//
// The memory of a mappable BPF array, shared with the kernel programs for as long as the object lives. Plain loads and
// stores of its aligned words are atomic. Used by the proxy, by nodes, by the groups of steer/, and by tests.

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

class MappedArray {
 public:
  static absl::StatusOr<MappedArray> Open(int map_fd, uint32_t value_bytes, uint32_t entries) {
    MappedArray array;
    array.stride_ = (value_bytes + 7) & ~size_t{7};  // the kernel rounds each value up to 8 bytes
    array.entries_ = entries;
    const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    array.bytes_ = (array.stride_ * entries + page_bytes - 1) / page_bytes * page_bytes;
    void* const memory = mmap(nullptr, array.bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, map_fd, 0);
    if (memory == MAP_FAILED) return absl::ErrnoToStatus(errno, "cannot map a BPF array");
    array.memory_ = memory;
    return array;
  }

  MappedArray() = default;
  MappedArray(MappedArray&& other) noexcept { *this = std::move(other); }
  MappedArray& operator=(MappedArray&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    std::swap(stride_, other.stride_);
    std::swap(entries_, other.entries_);
    return *this;
  }
  ~MappedArray() {
    if (memory_ != nullptr) munmap(memory_, bytes_);
  }

  // T must be the map's value type.
  template <typename T>
  volatile T* At(uint32_t index) const {
    return reinterpret_cast<volatile T*>(static_cast<char*>(memory_) + size_t{index} * stride_);
  }
  uint32_t entries() const { return entries_; }

 private:
  void* memory_ = nullptr;
  size_t bytes_ = 0;
  size_t stride_ = 0;
  uint32_t entries_ = 0;
};

template <typename T>
class Mapped {
 public:
  static absl::StatusOr<Mapped> Open(int map_fd, uint32_t entries) {
    absl::StatusOr<MappedArray> array = MappedArray::Open(map_fd, sizeof(T), entries);
    if (!array.ok()) return array.status();
    Mapped mapped;
    mapped.array_ = *std::move(array);
    return mapped;
  }

  volatile T* At(uint32_t index) const { return array_.At<T>(index); }
  volatile T* operator->() const { return At(0); }

 private:
  MappedArray array_;
};

}  // namespace hedgerow::net
