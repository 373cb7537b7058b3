// SPDX-License-Identifier: Apache-2.0
#include "chaos/load/operation_mix.h"

#include <map>
#include <set>

#include <gtest/gtest.h>

namespace hedgerow::chaos {
namespace {

TEST(OperationMix, NearlyAThirdIncrementsAndTheRestPutsAndGets) {
  OperationMix mix({}, 0);
  std::map<Kind, int> kinds;
  for (int i = 0; i < 10'000; ++i) ++kinds[mix.Next().kind];
  EXPECT_NEAR(kinds[Kind::kIncrement], 3000, 200);
  EXPECT_NEAR(kinds[Kind::kPut], 3500, 200);
  EXPECT_NEAR(kinds[Kind::kGet], 3500, 200);
}

TEST(OperationMix, NoTwoPutsWriteTheSame) {
  std::set<uint64_t> values;
  size_t puts = 0;
  for (uint32_t client = 0; client < 3; ++client) {
    OperationMix mix({}, client);
    for (int i = 0; i < 1000; ++i) {
      const Record record = mix.Next();
      EXPECT_EQ(record.client, client);
      if (record.kind != Kind::kPut) continue;
      ++puts;
      EXPECT_NE(record.value, 0u);
      values.insert(record.value);
    }
  }
  EXPECT_EQ(values.size(), puts);
}

TEST(OperationMix, TheSameSeedAsksForTheSame) {
  OperationMix a({.seed = 5}, 1), b({.seed = 5}, 1), other({.seed = 6}, 1);
  bool differs = false;
  for (int i = 0; i < 100; ++i) {
    const Record record = a.Next();
    EXPECT_EQ(record, b.Next());
    differs |= record != other.Next();
  }
  EXPECT_TRUE(differs);
}

}  // namespace
}  // namespace hedgerow::chaos
