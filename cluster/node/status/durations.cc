// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/status/durations.h"

#include <bit>
#include <utility>

namespace hedgerow::node {

void Durations::Record(uint64_t duration_ns) {
  sum_ns_ += duration_ns;
  const int octave = std::bit_width(duration_ns) - 1;
  if (octave < kFirstOctave) {
    ++counts_[0];
  } else if (octave >= kEndOctave) {
    ++above_;
  } else {
    const auto within = static_cast<size_t>((duration_ns >> (octave - kSubBits)) & ((1u << kSubBits) - 1));
    ++counts_[1 + (static_cast<size_t>(octave - kFirstOctave) << kSubBits) + within];
  }
}

NodeHistogram Durations::As(std::string name) const {
  NodeHistogram out;
  out.name = std::move(name);
  out.above = above_;
  out.sum_ns = sum_ns_;
  out.metrics_every = 1 << (kSubBits - 1);
  out.buckets.reserve(kBuckets);
  out.buckets.push_back({.upper_ns = (1u << kFirstOctave) - 1, .count = counts_[0]});
  for (size_t i = 1; i < kBuckets; ++i) {
    const int octave = kFirstOctave + static_cast<int>((i - 1) >> kSubBits);
    const uint64_t next = (1u << kSubBits) + ((i - 1) & ((1u << kSubBits) - 1)) + 1;
    out.buckets.push_back({.upper_ns = (next << (octave - kSubBits)) - 1, .count = counts_[i]});
  }
  return out;
}

}  // namespace hedgerow::node
