// SPDX-License-Identifier: Apache-2.0
//
// Words of 64 bits in a file that is mapped and shared: what a process that is killed had written stays, and other
// processes see it.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace hedgerow::bench {

struct Unmap {
  size_t bytes = 0;
  void operator()(uint64_t* words) const { munmap(words, bytes); }
};
using MappedWords = std::unique_ptr<uint64_t[], Unmap>;

// The file is made on first use, and keeps what it has. Without a path the words are private to this process.
absl::StatusOr<MappedWords> MapWords(const std::string& path, size_t words);

}  // namespace hedgerow::bench
