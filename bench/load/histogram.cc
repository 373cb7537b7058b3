// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of the log-linear histogram: which bucket a value falls into and how a percentile is read
// back.
#include "bench/load/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace hedgerow::bench {
namespace {

constexpr uint64_t kSubBuckets = uint64_t{1} << Histogram::kSubBucketBits;

// Values below 128 have a bucket each (one block); each of the 57 powers of two from 2^7 to 2^63 has a block of
// 128.
constexpr size_t kBuckets = (64 - Histogram::kSubBucketBits + 1) * kSubBuckets;

}  // namespace

Histogram::Histogram() : buckets_(kBuckets, 0) {}

size_t Histogram::BucketIndex(uint64_t value) {
  if (value < kSubBuckets) return value;
  const int shift = std::bit_width(value) - (kSubBucketBits + 1);
  return static_cast<size_t>(shift) * kSubBuckets + (value >> shift);
}

uint64_t Histogram::BucketLow(size_t index) {
  if (index < 2 * kSubBuckets) return index;
  const size_t shift = index / kSubBuckets - 1;
  return (index - shift * kSubBuckets) << shift;
}

uint64_t Histogram::BucketWidth(size_t index) {
  if (index < 2 * kSubBuckets) return 1;
  return uint64_t{1} << (index / kSubBuckets - 1);
}

void Histogram::Record(uint64_t value) {
  ++buckets_[BucketIndex(value)];
  ++count_;
  min_ = std::min(min_, value);
  max_ = std::max(max_, value);
  sum_ += static_cast<double>(value);
}

double Histogram::mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }

uint64_t Histogram::Quantile(double q) const {
  if (count_ == 0) return 0;
  const double wanted = std::ceil(std::clamp(q, 0.0, 1.0) * static_cast<double>(count_));
  const uint64_t rank = std::max<uint64_t>(1, static_cast<uint64_t>(wanted));
  if (rank >= count_) return max_;
  uint64_t seen = 0;
  for (size_t i = 0; i < kBuckets; ++i) {
    seen += buckets_[i];
    if (seen >= rank) return std::clamp(BucketLow(i) + BucketWidth(i) / 2, min_, max_);
  }
  return max_;
}

std::string Histogram::ToJson() const {
  std::string out =
      absl::StrFormat(R"({"unit":"ns","sub_bucket_bits":%d,"count":%d,"min":%d,"max":%d,"sum":%.0f,"buckets":[)",
                      kSubBucketBits, count_, min(), max_, sum_);
  const char* separator = "";
  for (size_t i = 0; i < kBuckets; ++i) {
    if (buckets_[i] == 0) continue;
    absl::StrAppend(&out, separator, "[", i, ",", buckets_[i], "]");
    separator = ",";
  }
  out += "]}";
  return out;
}

}  // namespace hedgerow::bench
