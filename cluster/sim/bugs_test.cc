// SPDX-License-Identifier: Apache-2.0
//
// A simulator that finds nothing proves nothing: every planted mistake must be found.

#include <cstdio>
#include <ostream>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "cluster/sim/bugs/planted.h"
#include "cluster/sim/seeds.h"

namespace hedgerow::sim {

// Part of the test's name in ctest: its bytes would differ from run to run.
void PrintTo(const PlantedBug& bug, std::ostream* out) { *out << bug.name; }

namespace {

class EveryBug : public testing::TestWithParam<PlantedBug> {};
INSTANTIATE_TEST_SUITE_P(Bugs, EveryBug, testing::ValuesIn(PlantedBugs().begin(), PlantedBugs().end()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(EveryBug, IsFound) {
  const SeedTotals totals = RunSeeds(
      {.first = 1,
       .count = 3000,  // the rarest is found once in some 1,000, and which seed finds it changes with the plans
       .seconds = 30,
       .threads = std::max(1u, std::thread::hardware_concurrency()),
       .stop_at_violation = true,
       .planted_bug = FindPlantedBug(GetParam().name)},
      [](const Report& report) {
        if (report.violation.empty()) return;
        printf("seed %llu after %.3f s: %s\n", static_cast<unsigned long long>(report.seed), report.seconds,
               report.violation.c_str());
      });
  EXPECT_GT(totals.violations, 0u) << GetParam().name << " was not found by " << totals.runs << " seeds";
}

}  // namespace
}  // namespace hedgerow::sim
