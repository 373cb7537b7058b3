// SPDX-License-Identifier: Apache-2.0
//
// Reads a BPF ring buffer by its mapped memory, and unlike libbpf's consumer it separates reading from
// releasing: a record is given back to the kernel only after its entry is in the log (rule R2). After a
// restart, what was not released is read again. One reader for a ring; used by BpfKernel.

#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/offload/kernel.h"

namespace hedgerow::offload {

class RingReader {
 public:
  // Reading begins at the ring's consumer position: 0 of a new ring, of an adopted one the first record not
  // released.
  static absl::StatusOr<RingReader> Open(int map_fd, size_t ring_bytes);

  RingReader() = default;
  RingReader(RingReader&& other) noexcept { *this = std::move(other); }
  RingReader& operator=(RingReader&& other) noexcept;
  RingReader(const RingReader&) = delete;
  RingReader& operator=(const RingReader&) = delete;
  ~RingReader();

  uint64_t ProducerPosition() const;
  uint64_t taken() const { return taken_; }
  uint64_t released() const;

  // As Kernel::Take and Kernel::Release.
  uint64_t Take(uint64_t until, bool wait, std::vector<RingRecord>& records);
  void Release(uint64_t position);

 private:
  uint32_t HeadAt(uint64_t position, bool wait) const;
  RingRecord RecordAt(uint64_t position, uint32_t record_bytes) const;

  char* consumer_ = nullptr;        // its page: the position
  const char* producer_ = nullptr;  // its page, and behind it the ring, twice in a row
  const char* data_ = nullptr;
  size_t ring_bytes_ = 0;
  size_t page_bytes_ = 0;
  uint64_t taken_ = 0;
};

}  // namespace hedgerow::offload
