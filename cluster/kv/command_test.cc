// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/command.h"

#include <random>

#include <gtest/gtest.h>

namespace hedgerow::kv {
namespace {

Command Sample() {
  return {.key = {.kind = CommandKind::kWrite, .a = 7, .b = 8, .c = 0},
          .lowest_unanswered = 6,
          .elapsed_ns = 12345,
          .operations = {
              {.kind = OperationKind::kPut, .key = "k", .value = "v", .expected = {}, .delta = 0},
              {.kind = OperationKind::kCompareAndSet, .key = "c", .value = "n", .expected = "o", .delta = 0},
              {.kind = OperationKind::kIncrement, .key = "i", .value = {}, .expected = {}, .delta = -3}}};
}

TEST(Command, SurvivesTheJourney) {
  const auto decoded = Decode(Encode(Sample()));
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(*decoded, Sample());
}

TEST(Command, EveryShorteningIsRefused) {
  const std::string bytes = Encode(Sample());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(Decode(std::string_view(bytes).substr(0, size)).has_value()) << size;
  }
  EXPECT_FALSE(Decode(bytes + "x").has_value());
}

TEST(Command, DamagedBytesNeverCrash) {
  std::mt19937_64 random(1);
  const std::string bytes = Encode(Sample());
  for (int i = 0; i < 50'000; ++i) {
    std::string damaged = bytes;
    for (int j = 0; j < 3; ++j) damaged[random() % damaged.size()] = static_cast<char>(random());
    if (const auto decoded = Decode(damaged)) {
      EXPECT_EQ(Encode(*decoded), damaged);
    }
  }
}

}  // namespace
}  // namespace hedgerow::kv
