// SPDX-License-Identifier: Apache-2.0
#include "chaos/load/key_rooms.h"

#include <map>

#include <gtest/gtest.h>

namespace hedgerow::chaos {
namespace {

constexpr MixOptions kMix{.counters = 2, .registers = 3};

Record Ended(Kind kind, uint32_t key, Ending ending) { return {.kind = kind, .key = key, .ending = ending}; }

TEST(KeyRooms, AKeyIsUsedUntilItIsFullAndThenTheNextOfItsRow) {
  KeyRooms rooms(kMix);
  std::map<uint32_t, int> used;
  for (int i = 0; i < 17; ++i) ++used[rooms.Take(Kind::kPut, 1)];
  EXPECT_EQ(used, (std::map<uint32_t, int>{{1, 7}, {4, 7}, {7, 3}}));
  EXPECT_EQ(rooms.Take(Kind::kPut, 2), 2u) << "another row";
  EXPECT_EQ(rooms.Take(Kind::kIncrement, 1), 1u) << "counters are no registers";
}

TEST(KeyRooms, ReadsAndWritesOfAKeyShareItsRoom) {
  KeyRooms rooms(kMix);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(rooms.Take(Kind::kPut, 0), 0u);
    EXPECT_EQ(rooms.Take(Kind::kGet, 0), 0u);
  }
  EXPECT_EQ(rooms.Take(Kind::kPut, 0), 0u);
  EXPECT_EQ(rooms.Take(Kind::kGet, 0), 3u);
}

TEST(KeyRooms, WhatHasEndedMakesRoomAgain) {
  KeyRooms rooms(kMix);
  for (int i = 0; i < 10; ++i) rooms.Take(Kind::kIncrement, 1);
  EXPECT_EQ(rooms.Take(Kind::kIncrement, 1), 3u);
  rooms.Ended(Ended(Kind::kIncrement, 1, Ending::kOk));
  EXPECT_EQ(rooms.Take(Kind::kIncrement, 1), 1u);
  EXPECT_EQ(rooms.Take(Kind::kIncrement, 1), 3u);
}

TEST(KeyRooms, AWriteWithoutAnAnswerKeepsItsPlaceForEver) {
  KeyRooms rooms(kMix);
  for (const Ending ending : {Ending::kTimedOut, Ending::kError}) {
    for (int i = 0; i < 4; ++i) {
      rooms.Take(Kind::kPut, 0);
      rooms.Ended(Ended(Kind::kPut, 0, ending));
    }
  }
  EXPECT_EQ(rooms.Take(Kind::kGet, 0), 3u);
}

TEST(KeyRooms, AReadWithoutAnAnswerDoesNot) {
  KeyRooms rooms(kMix);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(rooms.Take(Kind::kGet, 0), 0u);
    rooms.Ended(Ended(Kind::kGet, 0, i % 2 == 0 ? Ending::kTimedOut : Ending::kError));
  }
}

}  // namespace
}  // namespace hedgerow::chaos
