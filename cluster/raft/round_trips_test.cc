// SPDX-License-Identifier: Apache-2.0
#include "cluster/raft/round_trips.h"

#include <gtest/gtest.h>

namespace hedgerow::raft {
namespace {

constexpr uint64_t kMillisecond = 1'000'000;

void AddMany(RoundTrips& round_trips, size_t member, uint64_t duration_ns) {
  for (int i = 0; i < 100; ++i) round_trips.Add(member, duration_ns);
}

TEST(RoundTrips, StaysWithinFloorAndCap) {
  const Options options;
  RoundTrips round_trips;
  EXPECT_EQ(round_trips.ElectionTimeout_ns(options, 0, 0b111, 0), options.election_floor_ns);
  AddMany(round_trips, 1, 1000);
  AddMany(round_trips, 2, 1000);
  EXPECT_EQ(round_trips.ElectionTimeout_ns(options, 0, 0b111, 0), options.election_floor_ns);
  AddMany(round_trips, 1, UINT64_MAX / 16);
  AddMany(round_trips, 2, UINT64_MAX / 16);
  EXPECT_EQ(round_trips.ElectionTimeout_ns(options, 0, 0b111, 0), options.election_cap_ns);
}

TEST(RoundTrips, AFarMinorityDoesNotCount) {
  const Options options;
  RoundTrips round_trips;
  AddMany(round_trips, 1, 2 * kMillisecond);
  AddMany(round_trips, 2, 3 * kMillisecond);
  AddMany(round_trips, 3, 90 * kMillisecond);
  AddMany(round_trips, 4, 90 * kMillisecond);
  const uint64_t timeout_ns = round_trips.ElectionTimeout_ns(options, 0, 0b11111, 0);
  EXPECT_GE(timeout_ns, 60 * kMillisecond);
  EXPECT_LE(timeout_ns, 80 * kMillisecond);
}

// Dissertation section 4.3: it takes a majority of each.
TEST(RoundTrips, OfTwoJointMajoritiesTheSlowerCounts) {
  const Options options;
  RoundTrips round_trips;
  for (const size_t near : {1, 2}) AddMany(round_trips, near, 2 * kMillisecond);
  for (const size_t far : {3, 4}) AddMany(round_trips, far, 10 * kMillisecond);
  EXPECT_LE(round_trips.ElectionTimeout_ns(options, 0, 0b00111, 0), 60 * kMillisecond) << "learners do not count";
  EXPECT_GE(round_trips.ElectionTimeout_ns(options, 0, 0b00111, 0b11001), 200 * kMillisecond);
  EXPECT_GE(round_trips.ElectionTimeout_ns(options, 0, 0b11110, 0), 200 * kMillisecond) << "three others of four";
}

TEST(RoundTrips, HiccupsOfAHostAreAddedAndForgotten) {
  const Options options;
  RoundTrips round_trips;
  AddMany(round_trips, 1, kMillisecond / 10);
  AddMany(round_trips, 2, kMillisecond / 10);
  for (int i = 0; i < 5; ++i) {
    for (const size_t member : {1, 2}) {
      for (int k = 0; k < 3; ++k) round_trips.Add(member, kMillisecond / 10);
      round_trips.Add(member, 40 * kMillisecond);
    }
  }
  EXPECT_GE(round_trips.ElectionTimeout_ns(options, 0, 0b111, 0), 40 * kMillisecond)
      << "one more must not elect anybody";
  EXPECT_LE(round_trips.ElectionTimeout_ns(options, 0, 0b111, 0), 120 * kMillisecond);
  RoundTrips later = round_trips;
  for (int i = 0; i < 20; ++i) {
    later.Add(1, kMillisecond / 10);
    later.Add(2, kMillisecond / 10);
  }
  EXPECT_LE(later.ElectionTimeout_ns(options, 0, 0b111, 0), 30 * kMillisecond);
  round_trips.ForgetDelays();
  EXPECT_LE(round_trips.ElectionTimeout_ns(options, 0, 0b111, 0), 60 * kMillisecond);
}

TEST(RoundTrips, ASlowerNetworkIsNoticed) {
  const Options options;
  RoundTrips round_trips;
  AddMany(round_trips, 1, kMillisecond);
  AddMany(round_trips, 2, kMillisecond);
  for (int i = 0; i < 5; ++i) {
    AddMany(round_trips, 1, 20 * kMillisecond);
    AddMany(round_trips, 2, 20 * kMillisecond);
  }
  EXPECT_GE(round_trips.ElectionTimeout_ns(options, 0, 0b111, 0), 380 * kMillisecond);
}

}  // namespace
}  // namespace hedgerow::raft
