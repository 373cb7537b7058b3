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
#include "bench/load/mapped_words.h"

namespace hedgerow::bench {

class SourceCounts {
 public:
  // An existing file keeps what it has. An empty path: nothing is counted.
  static absl::StatusOr<SourceCounts> Map(const std::string& path, size_t sources);

  // A source beyond the file's end is not counted: false.
  bool Count(uint32_t source, bool tcp);

 private:
  MappedWords counts_{};
  size_t sources_ = 0;
};

}  // namespace hedgerow::bench
