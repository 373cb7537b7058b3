// SPDX-License-Identifier: Apache-2.0
//
// Thin, checked access to BPF maps by descriptor: element look-up and update, per-CPU sums, and the memory of a
// mappable array. Used by the parts of KernelDataPlane and by packet tests. Every error names the map and errno.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bpf/abi/stats_abi.h"
#include "net/wait_for_programs.h"
#include "proxy/data_plane/data_plane.h"

struct bpf_map;

namespace hedgerow {

absl::Status UpdateElement(bpf_map* map, const void* key, const void* value);
absl::Status LookUpElement(bpf_map* map, const void* key, void* value);

// The same while programs run. An element that a hash map gives up, by deletion or by an update that puts
// another in its place, is used again by the very next insertion, and a program that has just found it would
// read what stands there by then. So what is unchanged is left alone, and after a change of what was there no
// program that has seen the element before is at work any more. An element of an array is overwritten in place.
absl::Status PutElement(bpf_map* map, const void* key, const void* value);
// False: there was none. The caller calls WaitForPrograms() before anything else is written to this map.
absl::StatusOr<bool> DeleteElement(bpf_map* map, const void* key);
// On every CPU, where it is a map per CPU.
absl::Status ZeroElement(bpf_map* map, uint32_t index);

using net::WaitForPrograms;

// Sums of a per-CPU array's element over all possible CPUs.
absl::StatusOr<hr_stats> SumStats(bpf_map* map, uint32_t index);
absl::StatusOr<hr_backend_stats> SumBackendStats(bpf_map* map, uint32_t index);
absl::StatusOr<Histogram> SumHistogram(bpf_map* map, uint32_t index);

// An element of the leader map, read under its lock.
absl::StatusOr<hr_leader_view> ReadLeader(bpf_map* leaders, uint32_t service_id);

// The memory of a BPF_F_MMAPABLE array, shared with the kernel programs for as long as the object lives.
class MappedArray {
 public:
  MappedArray() = default;
  MappedArray(MappedArray&& other) noexcept { *this = std::move(other); }
  MappedArray& operator=(MappedArray&& other) noexcept;
  MappedArray(const MappedArray&) = delete;
  MappedArray& operator=(const MappedArray&) = delete;
  ~MappedArray();

  static absl::StatusOr<MappedArray> Open(bpf_map* map);
  // Of a map that no object describes.
  static absl::StatusOr<MappedArray> Open(int fd, const std::string& name, uint32_t value_bytes, uint32_t entries);

  // Element `index`; T must be the map's value type. Plain loads and stores of aligned words are atomic.
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

}  // namespace hedgerow
