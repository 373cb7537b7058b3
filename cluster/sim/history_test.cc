// SPDX-License-Identifier: Apache-2.0
//
// The checker must refuse what no single store could have shown, and nothing else.
#include "cluster/sim/history.h"

#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/sim/random.h"

namespace hedgerow::sim {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

CounterOperation Add(uint64_t from, uint64_t to, int64_t observed) {
  return {.span = {from, to}, .increment = true, .observed = observed};
}
CounterOperation Look(uint64_t from, uint64_t to, int64_t observed) {
  return {.span = {from, to}, .increment = false, .observed = observed};
}
CounterOperation Open(uint64_t from) { return {.span = {from, UINT64_MAX}, .increment = true, .observed = {}}; }
RegisterOperation Put(uint64_t from, uint64_t to, uint64_t value) {
  return {.span = {from, to}, .write = true, .value = value};
}
RegisterOperation Get(uint64_t from, uint64_t to, uint64_t value) {
  return {.span = {from, to}, .write = false, .value = value};
}

TEST(CheckCounter, AcceptsWhatCouldHaveHappened) {
  EXPECT_THAT(CheckCounter({Add(1, 5, 2), Add(2, 4, 1), Look(3, 9, 1), Open(5)}, 2), IsEmpty());
  EXPECT_THAT(CheckCounter({Add(1, 5, 2), Open(1)}, 2), IsEmpty()) << "the open one took effect";
}

TEST(CheckCounter, SeesLossDoubleApplicationAndStaleReads) {
  EXPECT_THAT(CheckCounter({Add(1, 2, 1), Add(3, 4, 2)}, 1), HasSubstr("lost"));
  EXPECT_THAT(CheckCounter({Add(1, 2, 1), Open(3)}, 3), HasSubstr("twice"));
  EXPECT_THAT(CheckCounter({Add(1, 2, 1), Add(3, 4, 1)}, 2), HasSubstr("both answered"));
  EXPECT_THAT(CheckCounter({Add(1, 2, 1), Look(3, 4, 0)}, 1), HasSubstr("stale"));
}

TEST(CheckRegister, AcceptsWhatCouldHaveHappened) {
  EXPECT_THAT(CheckRegister({Get(1, 2, 0), Put(1, 5, 7), Get(3, 4, 7), Get(3, 4, 0)}), IsEmpty());
  EXPECT_THAT(CheckRegister({Put(1, UINT64_MAX, 7), Put(2, 3, 8), Get(4, 5, 8), Get(6, 7, 7)}), IsEmpty());
}

TEST(CheckRegister, SeesStaleReads) {
  EXPECT_THAT(CheckRegister({Put(1, 2, 7), Get(3, 4, 0)}), Not(IsEmpty()));
  EXPECT_THAT(CheckRegister({Put(1, 2, 7), Put(3, 4, 8), Get(5, 6, 7)}), Not(IsEmpty()));
  EXPECT_THAT(CheckRegister({Put(1, 9, 7), Put(1, 9, 8), Get(1, 2, 7), Get(3, 4, 8), Get(5, 6, 7)}),
              Not(IsEmpty()));
  EXPECT_THAT(CheckRegister({Get(1, 2, 9)}), HasSubstr("nobody wrote"));
  EXPECT_THAT(CheckRegister({Get(1, 2, 9), Put(3, 4, 9)}), HasSubstr("before"));
}

// All orders of a few operations, tried one by one: what linearizability means.
bool ByTrying(const std::vector<RegisterOperation>& operations) {
  std::vector<size_t> order(operations.size());
  std::iota(order.begin(), order.end(), 0);
  do {
    uint64_t value = 0;
    bool fits = true;
    for (size_t i = 0; i < order.size() && fits; ++i) {
      const RegisterOperation& operation = operations[order[i]];
      for (size_t j = i + 1; j < order.size(); ++j) {
        if (operations[order[j]].span.answered_ns < operation.span.invoked_ns) fits = false;
      }
      if (operation.write) {
        value = operation.value;
      } else if (operation.value != value) {
        fits = false;
      }
    }
    if (fits) return true;
  } while (std::next_permutation(order.begin(), order.end()));
  return false;
}

TEST(CheckRegister, AgreesWithTryingEveryOrder) {
  Random random(1);
  int linearizable = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<RegisterOperation> operations;
    std::vector<uint64_t> times(12);
    std::iota(times.begin(), times.end(), 1);
    for (size_t i = times.size() - 1; i > 0; --i) std::swap(times[i], times[random.Below(i + 1)]);
    for (uint64_t i = 0; i < 6; ++i) {
      const uint64_t from = std::min(times[2 * i], times[2 * i + 1]);
      const uint64_t to = std::max(times[2 * i], times[2 * i + 1]);
      operations.push_back(i < 2 ? Put(from, to, i + 1) : Get(from, to, random.Below(3)));
    }
    const bool expected = ByTrying(operations);
    linearizable += expected;
    ASSERT_EQ(CheckRegister(operations).empty(), expected) << "round " << round;
  }
  EXPECT_GT(linearizable, 30);
}

}  // namespace
}  // namespace hedgerow::sim
