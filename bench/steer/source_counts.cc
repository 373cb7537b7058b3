// SPDX-License-Identifier: Apache-2.0
#include "bench/steer/source_counts.h"

#include <utility>

namespace hedgerow::bench {

absl::StatusOr<SourceCounts> SourceCounts::Map(const std::string& path, size_t sources) {
  SourceCounts counts;
  if (path.empty()) return counts;
  absl::StatusOr<MappedWords> words = MapWords(path, 2 * sources);
  if (!words.ok()) return words.status();
  counts.counts_ = *std::move(words);
  counts.sources_ = sources;
  return counts;
}

bool SourceCounts::Count(uint32_t source, bool tcp) {
  if (source >= sources_) return false;
  ++counts_[2 * size_t{source} + (tcp ? 1 : 0)];
  return true;
}

}  // namespace hedgerow::bench
