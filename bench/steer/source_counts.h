// SPDX-License-Identifier: Apache-2.0
//
// How many messages of each source a worker has counted, in a mapped file: what a worker that is killed had counted
// stays, and its successor counts on. One process writes a file at a time. bench/steer_rig.py reads it: for each source
// two 64-bit numbers, UDP and TCP.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace hedgerow::bench {

class SourceCounts {
 public:
  // An existing file keeps what it has. An empty path: nothing is counted.
  static absl::StatusOr<SourceCounts> Map(const std::string& path, size_t sources);
  SourceCounts(SourceCounts&& other) noexcept;
  SourceCounts& operator=(SourceCounts&&) = delete;
  ~SourceCounts();

  // A source beyond the file's end is not counted: false.
  bool Count(uint32_t source, bool tcp);

 private:
  SourceCounts(uint64_t* counts, size_t sources) : counts_(counts), sources_(sources) {}
  uint64_t* counts_;
  size_t sources_;
};

}  // namespace hedgerow::bench
