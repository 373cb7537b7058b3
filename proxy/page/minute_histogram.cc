// SPDX-License-Identifier: Apache-2.0
#include "proxy/page/minute_histogram.h"

#include <algorithm>

namespace hedgerow {
namespace {

bool Shrank(const Histogram& earlier, const Histogram& later) {
  for (size_t i = 0; i < earlier.buckets.size(); ++i) {
    if (later.buckets[i] < earlier.buckets[i]) return true;
  }
  return false;
}

}  // namespace

Histogram MinuteHistogram::Add(uint64_t now_ns, const Histogram& total) {
  Histogram added;
  if (begun_) added = Shrank(last_, total) ? total : total.Since(last_);
  begun_ = true;
  last_ = total;
  Part part{.at_ns = now_ns, .buckets = {}};
  for (uint32_t i = 0; i < added.buckets.size(); ++i) {
    if (added.buckets[i] == 0) continue;
    const auto count = static_cast<uint32_t>(std::min<uint64_t>(added.buckets[i], UINT32_MAX));
    part.buckets.push_back({i, count});
    recent_.buckets[i] += count;
  }
  parts_.push_back(std::move(part));
  for (; parts_.front().at_ns + kMinuteNs <= now_ns; parts_.pop_front()) {
    for (const Bucket& bucket : parts_.front().buckets) recent_.buckets[bucket.index] -= bucket.count;
  }
  recent_.max_ns = total.max_ns;  // what quantiles are capped at; there is no maximum of a minute
  return added;
}

}  // namespace hedgerow
