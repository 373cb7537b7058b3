// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/command.h"

#include <random>

#include <gtest/gtest.h>

namespace hedgerow::kv {
namespace {

Command Sample() {
  return {.key = {.kind = CommandKind::kWrite, .a = 7, .b = 8, .c = 9, .d = 10},
          .lowest_unanswered = 6,
          .elapsed_ns = 12345,
          .operations = {{.kind = OperationKind::kPut, .key = "k", .value = "v", .expected = {}, .delta = 0},
                         {.kind = OperationKind::kCompareAndSet, .key = "c", .value = "n", .expected = "o", .delta = 0},
                         {.kind = OperationKind::kIncrement, .key = "i", .value = {}, .expected = {}, .delta = -3}}};
}

Command Memcached() {
  return {.key = {.kind = CommandKind::kMemcached, .a = 1, .b = 2, .c = 3, .d = 4},
          .elapsed_ns = 5,
          .item = {.verb = ItemVerb::kCas,
                   .key = "k",
                   .value = "v",
                   .flags = 0xffffffff,
                   .life_s = -1,
                   .unique = UINT64_MAX,
                   .delta = 9}};
}

// As a leader stamps it.
Command Aged() {
  Command command = Memcached();
  command.age_ns = 6;
  return command;
}

Command ChangeOfSettings() {
  return {.key = {.kind = CommandKind::kSettings, .a = kSeed},
          .elapsed_ns = 3,
          .settings = {{Setting::kSessionsMax, 5}, {Setting::kMemcachedMemory, UINT64_MAX}}};
}

Command Open() {
  return {.key = {.kind = CommandKind::kOpen, .a = 77}, .session = {.id = 0x0102030405060708, .token = UINT64_MAX}};
}

Command Check() { return {.key = {.kind = CommandKind::kCheck, .a = 16'384, .b = UINT64_MAX}, .elapsed_ns = 2}; }

Command Tick() { return {.key = {.kind = CommandKind::kTick}, .elapsed_ns = 1}; }

TEST(Command, SurvivesTheJourney) {
  for (const Command& command : {Sample(), Open(), Memcached(), Aged(), Tick(), ChangeOfSettings(), Check()}) {
    const auto decoded = Decode(Encode(command));
    ASSERT_TRUE(decoded.has_value());
    EXPECT_EQ(*decoded, command);
  }
}

TEST(Command, EveryShorteningIsRefused) {
  for (const Command& command : {Sample(), Open(), Memcached(), Aged(), Tick(), ChangeOfSettings(), Check()}) {
    const std::string bytes = Encode(command);
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(Decode(std::string_view(bytes).substr(0, size)).has_value()) << size;
    }
    EXPECT_FALSE(Decode(bytes + "x").has_value());
  }
}

TEST(Command, OfAnotherVersionIsRefused) {
  for (const char version : {0, 1, 2, 4}) {
    std::string bytes = Encode(Sample());
    bytes[0] = version;
    EXPECT_FALSE(Decode(bytes).has_value());
    EXPECT_FALSE(KeyUsedOnceIn(bytes).has_value());
  }
}

TEST(Command, TheKeyIsReadAlone) {
  EXPECT_EQ(KeyUsedOnceIn(Encode(Sample())), Sample().key);
  EXPECT_EQ(KeyUsedOnceIn(Encode(Open())), Open().key);
  EXPECT_FALSE(KeyUsedOnceIn(Encode(Memcached())).has_value());
}

TEST(Command, ASettingThatThisProgramDoesNotKnowIsRefused) {
  Command command = ChangeOfSettings();
  command.settings[0].setting = static_cast<Setting>(0);
  EXPECT_FALSE(Decode(Encode(command)).has_value());
  command.settings[0].setting = static_cast<Setting>(AllSettings().size() + 1);
  EXPECT_FALSE(Decode(Encode(command)).has_value());
}

TEST(Command, AnItemMayBeAsLargeAsItMayBeAndNoLarger) {
  Command command = Memcached();
  command.item.value.assign(kItemMax_bytes, 'x');
  EXPECT_EQ(Decode(Encode(command)), command);
  command.item.value += 'x';
  EXPECT_FALSE(Decode(Encode(command)).has_value());
}

TEST(Command, DamagedBytesNeverCrash) {
  std::mt19937_64 random(1);
  for (const Command& command : {Sample(), Open(), Memcached(), Aged(), Tick(), ChangeOfSettings(), Check()}) {
    const std::string bytes = Encode(command);
    for (int i = 0; i < 50'000; ++i) {
      std::string damaged = bytes;
      for (int j = 0; j < 3; ++j) damaged[random() % damaged.size()] = static_cast<char>(random());
      if (const auto decoded = Decode(damaged)) {
        EXPECT_EQ(Encode(*decoded), damaged);
      }
    }
  }
}

// What an earlier command has left in it is gone.
TEST(Command, IsReadIntoOneThatWasUsedBefore) {
  Command first{.key = {.kind = CommandKind::kMemcached, .a = 1, .b = 2, .c = 3, .d = 4}};
  first.item = {.verb = ItemVerb::kSet, .key = "item", .value = std::string(100, 'i'), .flags = 5, .life_s = 6};
  Command aged = first;
  aged.age_ns = 7;
  Command second{.key = {.kind = CommandKind::kWrite, .a = 7, .b = 8}, .lowest_unanswered = 9};
  second.operations = {{.kind = OperationKind::kCompareAndSet, .key = "k", .value = "v", .expected = "e"},
                       {.kind = OperationKind::kIncrement, .key = "n", .delta = -3}};
  Command third{.key = {.kind = CommandKind::kWrite, .a = 7, .b = 9}};
  third.operations = {{.kind = OperationKind::kPut, .key = "key", .value = std::string(64, 'v')}};
  Command used;
  for (const Command& command : {first, aged, Open(), first, second, third, Open(), first, aged, third, second}) {
    ASSERT_TRUE(DecodeInto(Encode(command), used));
    EXPECT_EQ(used, command);
  }
  EXPECT_FALSE(DecodeInto("no command", used));
}

}  // namespace
}  // namespace hedgerow::kv
