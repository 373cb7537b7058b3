// SPDX-License-Identifier: Apache-2.0
#include "cluster/memcached/rate.h"

#include <gtest/gtest.h>

namespace hedgerow::memcached {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
using Verdict = Rate::Verdict;

TEST(MemcachedRate, AClientGetsItsRateAndABurst) {
  Rate rate(1000, 10);
  uint64_t taken = 0;
  // Ten times as many as it may send, for five seconds.
  for (uint64_t now_ns = kSecond; now_ns < 6 * kSecond; now_ns += 100'000)
    taken += rate.Take({1, 2, 3}, now_ns) == Verdict::kTaken;
  EXPECT_GE(taken, 5000u);
  EXPECT_LE(taken, 5 * 1000 + 100 + 1u);
}

TEST(MemcachedRate, ARateThatFallsHoldsForKnownClients) {
  Rate rate(1000, 10);
  EXPECT_EQ(rate.Take({1, 2, 3}, kSecond), Verdict::kTaken);
  rate.SetRate(100);
  uint64_t taken = 0;
  for (uint64_t now_ns = kSecond; now_ns < 6 * kSecond; now_ns += 100'000)
    taken += rate.Take({1, 2, 3}, now_ns) == Verdict::kTaken;
  EXPECT_GE(taken, 500u);
  EXPECT_LE(taken, 5 * 100 + 10 + 1u);
}

TEST(MemcachedRate, ClientsDoNotPayForEachOther) {
  Rate rate(10, 10);
  while (rate.Take({1, 2, 3}, kSecond) == Verdict::kTaken) {
  }
  EXPECT_EQ(rate.Take({1, 2, 4}, kSecond), Verdict::kTaken);
  EXPECT_EQ(rate.Take({1, 2, 3}, kSecond), Verdict::kTooFast);
  EXPECT_EQ(rate.Take({1, 2, 3}, 2 * kSecond), Verdict::kTaken);
}

TEST(MemcachedRate, ClientsWithoutDebtAreForgottenAndTheOthersAreBounded) {
  Rate rate(100, 1000);
  uint64_t refused = 0;
  for (uint64_t i = 0; i < 2000; ++i) refused += rate.Take({i, 0, 0}, kSecond) == Verdict::kTooManyClients;
  EXPECT_EQ(refused, 1000u);
  EXPECT_EQ(rate.clients(), 1000u);
  for (uint64_t i = 0; i < 600; ++i) EXPECT_EQ(rate.Take({5000 + i, 0, 0}, 2 * kSecond), Verdict::kTaken);
  EXPECT_LE(rate.clients(), 600u);
}

}  // namespace
}  // namespace hedgerow::memcached
