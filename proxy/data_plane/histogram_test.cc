// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "proxy/data_plane/data_plane.h"

namespace hedgerow {
namespace {

Histogram Of(std::initializer_list<uint64_t> durations_ns) {
  Histogram histogram;
  for (uint64_t duration_ns : durations_ns) {
    histogram.buckets[hr_histogram_bucket(duration_ns)]++;
    histogram.sum_ns += duration_ns;
    histogram.max_ns = std::max(histogram.max_ns, duration_ns);
  }
  return histogram;
}

TEST(HistogramTest, EveryBucketStartsWhereItSays) {
  for (uint32_t bucket = 0; bucket < HR_HISTOGRAM_BUCKETS; ++bucket) {
    EXPECT_EQ(hr_histogram_bucket(hr_histogram_lower_ns(bucket)), bucket);
    if (bucket > 0) {
      EXPECT_EQ(hr_histogram_bucket(hr_histogram_lower_ns(bucket) - 1), bucket - 1);
    }
  }
}

TEST(HistogramTest, ABucketIsAtMostASixteenthWide) {
  for (uint32_t bucket = 16; bucket + 1 < HR_HISTOGRAM_BUCKETS; ++bucket) {
    const uint64_t lower = hr_histogram_lower_ns(bucket);
    EXPECT_LE(hr_histogram_lower_ns(bucket + 1) - lower, lower / 16);
  }
}

TEST(HistogramTest, WhatIsTooLongLandsInTheLastBucket) {
  EXPECT_EQ(hr_histogram_bucket(~0ull), uint32_t{HR_HISTOGRAM_BUCKETS - 1});
}

TEST(HistogramTest, AnEmptyHistogramHasNoQuantile) { EXPECT_EQ(Histogram().QuantileNs(0.99), 0u); }

TEST(HistogramTest, AQuantileIsTheUpperEdgeOfItsBucketButNeverAboveTheMaximum) {
  const Histogram histogram = Of({1'000'000, 1'000'000, 1'000'000, 50'000'000});
  EXPECT_GE(histogram.QuantileNs(0.5), 1'000'000u);
  EXPECT_LE(histogram.QuantileNs(0.5), 1'062'500u + 64);
  EXPECT_EQ(histogram.QuantileNs(1.0), 50'000'000u);
  EXPECT_EQ(Of({777}).QuantileNs(0.01), 777u);
}

TEST(HistogramTest, SinceTakesTheEarlierSnapshotAway) {
  const Histogram before = Of({1'000, 2'000});
  Histogram after = before;
  after.Add(Of({1'000'000}));
  const Histogram difference = after.Since(before);
  EXPECT_EQ(difference.Count(), 1u);
  EXPECT_EQ(difference.sum_ns, 1'000'000u);
}

}  // namespace
}  // namespace hedgerow
