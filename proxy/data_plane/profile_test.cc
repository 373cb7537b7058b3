// SPDX-License-Identifier: Apache-2.0
//
// The parts that profiles are made of, as bytes in memory order. What the built-in profiles mean is tested on
// packets (bpf/tests/profiles_test.cc).
#include "proxy/data_plane/profile.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace hedgerow {
namespace {

template <typename T>
std::string BytesOf(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

TEST(ProfileTest, AMatchComparesBytesInTheOrderOfThePayload) {
  const hr_match match = MakeMatch(9, "abc");
  EXPECT_EQ(match.offset, 9);
  EXPECT_EQ(match.bytes, 3);
  EXPECT_EQ(BytesOf(match.value), std::string("abc\0\0\0\0\0", 8));
  EXPECT_EQ(BytesOf(match.mask), std::string("\xff\xff\xff\0\0\0\0\0", 8));
  EXPECT_EQ(match.flags, 0);
}

TEST(ProfileTest, WhatTheMaskLeavesOutIsNoPartOfTheValue) {
  const hr_match match = MakeMatch(0, "\xab\xcd", "\xf0\x0f", true);
  EXPECT_EQ(BytesOf(match.value), std::string("\xa0\x0d\0\0\0\0\0\0", 8)) << "it could never be equal";
  EXPECT_EQ(match.flags, HR_MATCH_NOT);
}

TEST(ProfileTest, AFieldsMaskEndsWithTheField) {
  EXPECT_EQ(BytesOf(MakeField(0, 10).mask), std::string(10, '\xff') + std::string(6, '\0'));
  EXPECT_EQ(BytesOf(MakeField(0, 3, "\x0f\xff\xf0").mask), "\x0f\xff\xf0" + std::string(13, '\0'));
}

TEST(ProfileTest, MatchesOfOneAlternativeAreTiedTogether) {
  hr_profile profile{};
  AddOperation(profile, {MakeMatch(0, "a"), MakeMatch(1, "b")}, HR_SHAPE_LINE);
  AddOperation(profile, {MakeMatch(0, "c")});
  ASSERT_EQ(profile.operation_match_count, 3);
  EXPECT_EQ(profile.operation_matches[0].flags, HR_MATCH_AND_NEXT);
  EXPECT_EQ(profile.operation_matches[1].flags, 0);
  EXPECT_EQ(profile.operation_matches[1].shape, HR_SHAPE_LINE);
  EXPECT_EQ(profile.operation_matches[2].flags, 0);
  EXPECT_EQ(profile.operation_matches[2].shape, HR_SHAPE_ANY);
}

TEST(ProfileTest, AOneWayWordStandsAtTheEndOfEightBytes) {
  hr_profile profile{};
  SetOneWay(profile, " quiet");
  EXPECT_EQ(BytesOf(profile.one_way_value), std::string("\0\0 quiet", 8));
  EXPECT_EQ(BytesOf(profile.one_way_mask), std::string("\0\0\xff\xff\xff\xff\xff\xff", 8));
}

TEST(ProfileTest, TheLongestListOfCommandsHasRoom) {
  const hr_profile profile = MemcachedProfile(
      {MemcachedCommand::kSet, MemcachedCommand::kAdd, MemcachedCommand::kReplace, MemcachedCommand::kCas,
       MemcachedCommand::kDelete, MemcachedCommand::kTouch, MemcachedCommand::kGat});
  EXPECT_EQ(profile.operation_match_count, 10);
}

TEST(ProfileDeathTest, AListThatOverflowsEndsTheProcess) {
  hr_profile profile{};
  for (int i = 0; i < HR_NACK_MATCHES; ++i) AddNack(profile, {MakeMatch(0, "a")});
  EXPECT_DEATH(AddNack(profile, {MakeMatch(0, "a")}), "broken invariant");
}

}  // namespace
}  // namespace hedgerow
