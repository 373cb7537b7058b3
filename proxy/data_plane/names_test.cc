// SPDX-License-Identifier: Apache-2.0
#include "proxy/data_plane/names.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace hedgerow {
namespace {

TEST(NamesTest, NamesAreUniqueAndEveryNamedReasonHasAKind) {
  std::set<std::string> seen;
  for (int i = 0; i < HR_COUNTER_COUNT; ++i) {
    const std::string name(CounterName(i));
    if (!name.empty()) {
      EXPECT_TRUE(seen.insert(name).second) << name;
    }
  }
  EXPECT_EQ(seen.size(), HR_EXTRA_SENDS + 1u) << "the last one, and none between them was forgotten";
  seen.clear();
  for (int i = 0; i < HR_REASON_COUNT; ++i) {
    const std::string name(ReasonName(i));
    EXPECT_EQ(name.empty(), ReasonKind(i).empty()) << i;
    if (!name.empty()) {
      EXPECT_TRUE(seen.insert(name).second) << name;
    }
  }
}

TEST(NamesTest, NumbersOutOfRangeHaveNoName) {
  EXPECT_EQ(CounterName(-1), "");
  EXPECT_EQ(CounterName(HR_COUNTER_COUNT), "");
  EXPECT_EQ(ReasonName(HR_REASON_COUNT), "");
  EXPECT_EQ(HealthName(9), "unknown");
}

}  // namespace
}  // namespace hedgerow
