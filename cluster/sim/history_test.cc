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
  EXPECT_THAT(CheckCounter({Open(1), Open(1), Look(3, 4, 2)}, 1), HasSubstr("read as 2"));
}

// All orders of a few operations, tried one by one: what linearizability means. An open increment may also be
// left out.
bool ByTrying(const std::vector<CounterOperation>& operations, int64_t final_value) {
  const auto open = [&](size_t i) { return !operations[i].observed.has_value(); };
  for (uint32_t left_out = 0; left_out < 1u << operations.size(); ++left_out) {
    std::vector<size_t> order;
    bool possible = true;
    for (size_t i = 0; i < operations.size(); ++i) {
      if ((left_out >> i & 1) == 0) {
        order.push_back(i);
      } else if (!open(i)) {
        possible = false;
      }
    }
    if (!possible) continue;
    do {
      int64_t value = 0;
      bool fits = true;
      for (size_t i = 0; i < order.size() && fits; ++i) {
        const CounterOperation& operation = operations[order[i]];
        for (size_t j = i + 1; j < order.size(); ++j) {
          if (operations[order[j]].span.answered_ns < operation.span.invoked_ns) fits = false;
        }
        if (operation.increment) ++value;
        if (operation.observed.has_value() && *operation.observed != value) fits = false;
      }
      if (fits && value == final_value) return true;
    } while (std::next_permutation(order.begin(), order.end()));
  }
  return false;
}

TEST(CheckCounter, AnIncrementThatBeginsLaterDoesNotExplainWhatWasSeen) {
  EXPECT_THAT(CheckCounter({Add(1, 2, 2), Open(5)}, 2), HasSubstr("twice"));
  EXPECT_THAT(CheckCounter({Look(1, 2, 1), Open(5)}, 1), HasSubstr("twice"));
  EXPECT_THAT(CheckCounter({Add(1, 6, 2), Open(5)}, 2), IsEmpty());
  EXPECT_THAT(CheckCounter({Open(1), Open(9), Add(2, 3, 2), Look(10, 11, 3)}, 3), IsEmpty());
  EXPECT_THAT(CheckCounter({Open(1), Open(9), Add(2, 3, 3)}, 3), HasSubstr("twice"));
}

TEST(CountFaults, CountsEachOnce) {
  const auto faults = [](const std::vector<CounterOperation>& operations, int64_t final_value) {
    const CounterFaults found = CountFaults(operations, final_value);
    return std::pair(found.lost, found.doubled);
  };
  EXPECT_EQ(faults({Add(1, 2, 1), Add(3, 4, 2), Open(5)}, 3), std::pair(0ul, 0ul));
  EXPECT_EQ(faults({Add(1, 2, 1), Add(3, 4, 1), Add(5, 6, 2)}, 2), std::pair(1ul, 0ul));
  EXPECT_EQ(faults({Add(1, 2, 1), Add(3, 4, 2), Add(5, 6, 3)}, 1), std::pair(2ul, 0ul));
  EXPECT_EQ(faults({Add(1, 2, 1), Open(3)}, 4), std::pair(0ul, 2ul));
  EXPECT_EQ(faults({Add(1, 2, 2), Open(3)}, 2), std::pair(0ul, 1ul)) << "what is open began too late";
}

TEST(CheckCounter, AgreesWithTryingEveryOrder) {
  Random random(2);
  int linearizable = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<CounterOperation> operations;
    std::vector<uint64_t> times(10);
    std::iota(times.begin(), times.end(), 1);
    for (size_t i = times.size() - 1; i > 0; --i) std::swap(times[i], times[random.Below(i + 1)]);
    for (uint64_t i = 0; i < 5; ++i) {
      const uint64_t from = std::min(times[2 * i], times[2 * i + 1]);
      const uint64_t to = std::max(times[2 * i], times[2 * i + 1]);
      if (i < 2) {
        operations.push_back(Open(from));
      } else {
        const auto observed = static_cast<int64_t>(random.Below(4));
        operations.push_back(i < 4 ? Add(from, to, observed) : Look(from, to, observed));
      }
    }
    const auto final_value = static_cast<int64_t>(random.Below(5));
    const bool expected = ByTrying(operations, final_value);
    linearizable += expected;
    ASSERT_EQ(CheckCounter(operations, final_value).empty(), expected) << "round " << round;
  }
  EXPECT_GT(linearizable, 30);
}

TEST(CheckRegister, AcceptsWhatCouldHaveHappened) {
  EXPECT_THAT(CheckRegister({Get(1, 2, 0), Put(1, 5, 7), Get(3, 4, 7), Get(3, 4, 0)}), IsEmpty());
  EXPECT_THAT(CheckRegister({Put(1, UINT64_MAX, 7), Put(2, 3, 8), Get(4, 5, 8), Get(6, 7, 7)}), IsEmpty());
}

TEST(CheckRegister, SeesStaleReads) {
  EXPECT_THAT(CheckRegister({Put(1, 2, 7), Get(3, 4, 0)}), Not(IsEmpty()));
  EXPECT_THAT(CheckRegister({Put(1, 2, 7), Put(3, 4, 8), Get(5, 6, 7)}), Not(IsEmpty()));
  EXPECT_THAT(CheckRegister({Put(1, 9, 7), Put(1, 9, 8), Get(1, 2, 7), Get(3, 4, 8), Get(5, 6, 7)}), Not(IsEmpty()));
  EXPECT_THAT(CheckRegister({Get(1, 2, 9)}), HasSubstr("was never written"));
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
