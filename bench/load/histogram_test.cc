// SPDX-License-Identifier: Apache-2.0
//
// What the histogram promises: an error of at most 1 %, exact counts and extremes, merging that loses nothing.
#include "bench/load/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace hedgerow::bench {
namespace {

TEST(Histogram, EveryValueLiesInsideItsBucket) {
  std::mt19937_64 random(1);
  for (int bits = 0; bits < 64; ++bits) {
    for (int i = 0; i < 200; ++i) {
      const uint64_t value = (uint64_t{1} << bits) | (random() & ((uint64_t{1} << bits) - 1));
      const size_t index = Histogram::BucketIndex(value);
      EXPECT_GE(value, Histogram::BucketLow(index));
      EXPECT_LT(value - Histogram::BucketLow(index), Histogram::BucketWidth(index));
    }
  }
}

TEST(Histogram, BucketsFollowEachOtherWithoutGapOrOverlap) {
  for (size_t i = 0; i + 1 < Histogram::BucketIndex(UINT64_MAX); ++i) {
    ASSERT_EQ(Histogram::BucketLow(i) + Histogram::BucketWidth(i), Histogram::BucketLow(i + 1)) << i;
  }
}

TEST(Histogram, LargestValueFits) {
  Histogram histogram;
  histogram.Record(UINT64_MAX);
  EXPECT_EQ(histogram.Quantile(0.5), UINT64_MAX);
  EXPECT_EQ(histogram.max(), UINT64_MAX);
}

TEST(Histogram, QuantilesAreWithinOnePercentOfTheSortedValues) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> latency_ns(15, 2);
  Histogram histogram;
  std::vector<uint64_t> values;
  for (int i = 0; i < 50'000; ++i) {
    values.push_back(static_cast<uint64_t>(latency_ns(random)));
    histogram.Record(values.back());
  }
  std::sort(values.begin(), values.end());
  for (double q : {0.001, 0.01, 0.25, 0.5, 0.9, 0.95, 0.99, 0.999, 0.9999}) {
    const auto rank = static_cast<size_t>(std::ceil(q * static_cast<double>(values.size())));
    const auto exact = static_cast<double>(values[rank - 1]);
    EXPECT_NEAR(static_cast<double>(histogram.Quantile(q)), exact, exact * 0.01) << q;
  }
}

TEST(Histogram, ExtremesAreExact) {
  Histogram histogram;
  for (uint64_t value : {123'456'789ull, 5ull, 987'654'321ull}) histogram.Record(value);
  EXPECT_EQ(histogram.min(), 5u);
  EXPECT_EQ(histogram.max(), 987'654'321u);
  EXPECT_EQ(histogram.Quantile(1.0), 987'654'321u);
  EXPECT_EQ(histogram.Quantile(0.0), 5u);
}

TEST(Histogram, EmptyReadsAsZero) {
  Histogram histogram;
  EXPECT_EQ(histogram.Quantile(0.99), 0u);
  EXPECT_EQ(histogram.min(), 0u);
  EXPECT_EQ(histogram.mean(), 0);
}

TEST(Histogram, JsonHoldsOnlyFilledBuckets) {
  Histogram histogram;
  histogram.Record(3);
  histogram.Record(3);
  histogram.Record(300);
  EXPECT_EQ(histogram.ToJson(),
            R"({"unit":"ns","sub_bucket_bits":7,"count":3,"min":3,"max":300,"sum":306,"buckets":[[3,2],[278,1]]})");
}

}  // namespace
}  // namespace hedgerow::bench
