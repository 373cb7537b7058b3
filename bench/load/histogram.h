// SPDX-License-Identifier: Apache-2.0
//
// A log-linear histogram of non-negative 64-bit values (nanoseconds in practice). Every power of two is cut
// into 128 equal buckets, so a value read back is wrong by at most 1/256 of itself (0.4 %), whatever its size,
// at a fixed memory cost. Written raw, because merging runs needs the buckets and not their percentiles. Used
// by the load engine for latencies and timer errors; bench/histogram.py reads what ToJson() writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hedgerow::bench {

class Histogram {
 public:
  // 2^7 buckets for each power of two: the widest bucket is 1/128 of its lower bound.
  static constexpr int kSubBucketBits = 7;

  Histogram();

  void Record(uint64_t value);

  uint64_t count() const { return count_; }
  uint64_t min() const { return count_ == 0 ? 0 : min_; }
  uint64_t max() const { return max_; }
  double mean() const;

  // The value below or at which a fraction `q` (0 to 1) of the recorded values lie: the middle of the bucket of
  // rank ceil(q * count), held inside [min, max]. 0 when nothing was recorded.
  uint64_t Quantile(double q) const;

  // {"unit":"ns","sub_bucket_bits":7,"count":..,"min":..,"max":..,"sum":..,"buckets":[[index,count],..]}: only
  // buckets that hold something, in ascending order.
  std::string ToJson() const;

  // The bucket a value falls into, and the smallest value of a bucket and of the one after it. Public for the
  // tests and because the Python reader repeats this arithmetic.
  static size_t BucketIndex(uint64_t value);
  static uint64_t BucketLow(size_t index);
  static uint64_t BucketWidth(size_t index);

 private:
  std::vector<uint64_t> buckets_;
  uint64_t count_ = 0;
  uint64_t min_ = UINT64_MAX;
  uint64_t max_ = 0;
  double sum_ = 0;
};

}  // namespace hedgerow::bench
