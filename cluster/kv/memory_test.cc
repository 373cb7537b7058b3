// SPDX-License-Identifier: Apache-2.0
//
// What the state is charged is what it takes, and is the same on every replica; a full store refuses what would grow,
// and nothing else.
#include "cluster/kv/memory.h"

#include <malloc.h>

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/kv/keyed_hash.h"
#include "cluster/kv/state_loader.h"
#include "cluster/kv/state_machine.h"

namespace hedgerow::kv {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kLimit = 1'000'000;

Operation Put(std::string key, std::string value) {
  return {.kind = OperationKind::kPut, .key = std::move(key), .value = std::move(value)};
}
Operation Delete(std::string key) { return {.kind = OperationKind::kDelete, .key = std::move(key)}; }

// The session that is opened under this nonce.
SessionName NameOf(uint64_t nonce) { return {.id = nonce, .token = ~nonce}; }

class FullStoreTest : public testing::Test {
 protected:
  FullStoreTest() { SetLimit(kLimit); }
  Result Apply(Command command) { return state_.Apply(++index_, command); }
  void SetLimit(uint64_t bytes) {
    Apply({.key = {.kind = CommandKind::kSettings}, .settings = {{Setting::kMemory, bytes}}});
  }
  uint64_t Open(uint64_t nonce) {
    return Apply({.key = {.kind = CommandKind::kOpen, .a = nonce}, .session = NameOf(nonce)}).session;
  }
  ResultCode Write(uint64_t session, uint64_t seq, std::vector<Operation> operations, uint64_t lowest = 1) {
    return Apply({.key = WriteKey(NameOf(session), seq, operations),
                  .lowest_unanswered = lowest,
                  .operations = std::move(operations)})
        .code;
  }
  ResultCode Item(ItemVerb verb, std::string key, std::string value = "") {
    return Apply({.key = {.kind = CommandKind::kMemcached, .a = 1, .d = ++frame_},
                  .item = {.verb = verb, .key = std::move(key), .value = std::move(value)},
                  .age_ns = 0})
        .code;
  }
  void Wait(uint64_t ns) { Apply({.key = {.kind = CommandKind::kTick}, .elapsed_ns = ns}); }
  uint64_t used() const { return state_.memory().total(); }
  // With one session's writes, each of which knows of the answers to all before.
  uint64_t Fill(uint64_t session) {
    uint64_t seq = 1;
    while (Write(session, seq, {Put("fill" + std::to_string(seq), std::string(1000, 'v'))}, seq) == ResultCode::kOk)
      ++seq;
    return seq;
  }

  StateMachine state_;
  uint64_t index_ = 0;
  uint64_t frame_ = 0;
};

TEST_F(FullStoreTest, RefusesWhatWouldGrowAndTakesWhatDoesNot) {
  const uint64_t session = Open(1);
  uint64_t seq = Fill(session);
  EXPECT_LE(used(), kLimit);
  EXPECT_GT(used(), kLimit - 2000);
  EXPECT_EQ(state_.Get("fill" + std::to_string(seq)), std::nullopt);
  ++seq;
  EXPECT_EQ(Write(session, seq, {Put("fill2", std::string(1000, 'w'))}, seq), ResultCode::kOk) << "as long as before";
  ++seq;
  EXPECT_EQ(Write(session, seq, {Delete("none"), Put("other", std::string(1000, 'w'))}, seq), ResultCode::kNoRoom);
  ++seq;
  EXPECT_EQ(Write(session, seq, {Delete("fill3"), Put("fill0", std::string(1000, 'w'))}, seq), ResultCode::kOk);
  ++seq;
  EXPECT_EQ(Write(session, seq, {Delete("fill4")}, seq), ResultCode::kOk);
  ++seq;
  EXPECT_EQ(Write(session, seq, {Put("other", std::string(900, 'w'))}, seq), ResultCode::kOk) << "there is room again";
}

// A client is told that its write was not done. Another copy of it comes once there is room.
TEST_F(FullStoreTest, ARefusalIsFinal) {
  const uint64_t session = Open(1);
  const uint64_t refused = Fill(session);
  const std::vector<Operation> same = {Put("fill" + std::to_string(refused), std::string(1000, 'v'))};
  SetLimit(2 * kLimit);
  EXPECT_EQ(Write(session, refused, same, 1), ResultCode::kNoRoom);
  EXPECT_EQ(Write(session, refused + 1, same, 1), ResultCode::kOk);
}

TEST_F(FullStoreTest, ANewClientCanOpenASessionAndDelete) {
  const uint64_t writer = Open(1);
  Fill(writer);
  const uint64_t session = Open(2);
  ASSERT_NE(session, 0u);
  for (uint64_t seq = 1; seq <= 100; ++seq)
    EXPECT_EQ(Write(session, seq, {Delete("fill" + std::to_string(seq))}), ResultCode::kOk) << seq;
  EXPECT_EQ(Apply({.key = OnceKey(5, {Delete("fill101")}), .operations = {Delete("fill101")}}).code, ResultCode::kOk);
  EXPECT_EQ(Write(writer, 100'000, {Put("new", "value")}), ResultCode::kOk) << "there is room again";
}

// Answers that clients do not take, sessions, requests of windows: whatever commands come, the charge has a bound.
TEST_F(FullStoreTest, NothingGrowsBeyondTheReserve) {
  const uint64_t session = Open(1);
  Fill(session);
  uint64_t refused = 0;
  for (uint64_t i = 1; i <= 5'000; ++i) {
    refused += Write(session, 1'000'000 + i, {Delete("none")}) == ResultCode::kOverloaded;
    refused += Open(1'000 + i) == 0;
    refused +=
        Apply({.key = OnceKey(i, {Delete("none")}), .operations = {Delete("none")}}).code == ResultCode::kOverloaded;
    ASSERT_LE(used(), WithHalfReserve(kLimit)) << i;
  }
  EXPECT_GT(refused, 1000u);
  EXPECT_EQ(Item(ItemVerb::kDelete, "none"), ResultCode::kNotFound) << "the other half is memcached's";
  for (uint64_t i = 1; i <= 5'000; ++i) {
    refused += Item(ItemVerb::kDelete, "none") == ResultCode::kOverloaded;
    ASSERT_LE(used(), WithReserve(kLimit)) << i;
  }
  Wait(5 * kSecond);
  EXPECT_EQ(Item(ItemVerb::kDelete, "none"), ResultCode::kNotFound) << "time has made room";
  EXPECT_EQ(Write(session, 2'000'000, {Delete("fill5")}, 2'000'000), ResultCode::kOk);
}

TEST_F(FullStoreTest, ItemsAndKeysShareOneLimitAndAFlushEndsIt) {
  const uint64_t session = Open(1);
  int items = 0;
  while (Item(ItemVerb::kSet, "k" + std::to_string(items), std::string(10'000, 'v')) == ResultCode::kOk) ++items;
  EXPECT_GT(items, 90);
  EXPECT_EQ(Write(session, 1, {Put("key", std::string(20'000, 'v'))}), ResultCode::kNoRoom);
  EXPECT_EQ(Item(ItemVerb::kSet, "k1", std::string(9'000, 'v')), ResultCode::kOk) << "smaller";
  EXPECT_EQ(Item(ItemVerb::kFlush, ""), ResultCode::kOk);
  EXPECT_EQ(Write(session, 2, {Put("key", std::string(20'000, 'v'))}), ResultCode::kOk);
  EXPECT_EQ(Item(ItemVerb::kSet, "honest", std::string(10'000, 'v')), ResultCode::kOk);
  EXPECT_LE(used(), kLimit);
}

TEST_F(FullStoreTest, APurgeDeletesTheKeysThatItNames) {
  Fill(Open(1));
  std::vector<Operation> some;
  for (int i = 1; i <= 64; ++i) some.push_back(Delete("fill" + std::to_string(i)));
  const uint64_t values = state_.values();
  EXPECT_EQ(Apply({.key = {.kind = CommandKind::kPurge}, .operations = some}).code, ResultCode::kOk);
  EXPECT_EQ(state_.values(), values - 64);
  EXPECT_LT(used(), kLimit - 64'000);
}

TEST_F(FullStoreTest, ALowerLimitEvictsNothingAndIsReachedByDeletes) {
  const uint64_t session = Open(1);
  uint64_t seq = Fill(session);
  const uint64_t values = state_.values();
  SetLimit(kLimit / 2);
  EXPECT_EQ(state_.values(), values);
  ++seq;
  EXPECT_EQ(Write(session, seq, {Put("fill2", std::string(1000, 'w'))}, seq), ResultCode::kOk) << "as long as before";
  for (int i = 1; used() > kLimit / 2 - 2000; ++i) {
    ++seq;
    ASSERT_EQ(Write(session, seq, {Delete("fill" + std::to_string(i))}, seq), ResultCode::kOk);
  }
  ++seq;
  EXPECT_EQ(Write(session, seq, {Put("other", std::string(1000, 'w'))}, seq), ResultCode::kOk);
}

// -- replicas ----------------------------------------------------------------------------------------------

class Commands {
 public:
  explicit Commands(uint64_t seed) : random_(seed) {}

  Command Next() {
    Command command{.elapsed_ns = random_() % (kSecond / 50)};
    const uint64_t kind = random_() % 12;
    const std::string key = "key" + std::to_string(random_() % 200);
    const std::string value(random_() % 3000, 'v');
    if (kind == 0) {
      const uint64_t nonce = 1 + random_() % 30;
      command.key = {.kind = CommandKind::kOpen, .a = nonce};
      command.session = NameOf(nonce);
    } else if (kind < 6) {
      const uint64_t session = 1 + random_() % 30;
      command.lowest_unanswered = random_() % 3 == 0 ? seq_ - std::min<uint64_t>(seq_, 20) : 0;
      for (uint64_t i = 0; i < 1 + random_() % 3; ++i) {
        const auto operation = static_cast<OperationKind>(1 + random_() % 3);
        command.operations.push_back({.kind = operation, .key = key + std::to_string(i), .value = value});
      }
      command.key = WriteKey(NameOf(session), ++seq_, command.operations);
    } else if (kind < 7) {
      command.key = {.kind = CommandKind::kWindowed, .a = random_() % 1000};
      command.operations.push_back({.kind = OperationKind::kIncrement, .key = "n" + key, .delta = 1'000'000});
    } else if (kind < 8) {
      command.key = {.kind = CommandKind::kTick};
    } else {
      command.key = {.kind = CommandKind::kMemcached, .a = 1, .c = random_() % 3, .d = random_() % 2000};
      command.age_ns = 0;
      const uint64_t verb = random_() % 200;
      const ItemVerb other = verb == 0 ? ItemVerb::kFlush : static_cast<ItemVerb>(1 + verb % 11);
      command.item = {.verb = random_() % 2 == 0 ? ItemVerb::kSet : other,
                      .key = key + std::to_string(random_() % 5),
                      .value = value.substr(0, random_() % 100),
                      .life_s = random_() % 4 == 0 ? static_cast<int64_t>(random_() % 4) - 1 : 0};
    }
    return command;
  }

 private:
  std::mt19937_64 random_;
  uint64_t seq_ = 0;
};

std::unique_ptr<StateMachine> Copied(StateMachine& state) {
  StateLoader loader;
  state.BeginSnapshot(4096);
  while (state.taking_snapshot()) {
    for (const std::string& chunk : state.ContinueSnapshot(1 << 20)) EXPECT_TRUE(loader.Add(chunk)) << loader.error();
  }
  return loader.Finish();
}

// What a walk over a map meets first decides nothing: not what is freed, refused or counted.
TEST(Replicas, WithOtherHashSecretsAndFromSnapshotsAreChargedAlike) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::unique_ptr<StateMachine> one;
    std::unique_ptr<StateMachine> other;
    {
      const ScopedHashSecret secret({seed, 1});
      one = std::make_unique<StateMachine>();
    }
    {
      const ScopedHashSecret secret({seed, 2});
      other = std::make_unique<StateMachine>();
    }
    Commands commands(seed);
    const Command settings{.key = {.kind = CommandKind::kSettings},
                           .settings = {{Setting::kMemory, 200'000}, {Setting::kMemcachedMemory, 90'000}}};
    uint64_t index = 1;
    one->Apply(index, settings);
    other->Apply(index, settings);
    uint64_t no_room = 0;
    while (++index < 4000) {
      const Command command = commands.Next();
      const Result result = one->Apply(index, command);
      ASSERT_EQ(other->Apply(index, command), result) << seed << " " << index;
      ASSERT_EQ(one->memory(), other->memory()) << seed << " " << index;
      ASSERT_EQ(one->fingerprint(), other->fingerprint()) << seed << " " << index;
      no_room += result.code == ResultCode::kNoRoom;
      if (index % 1000 != 0) continue;
      // The next entries free what is flushed here, a part of it each, from a state that is restored.
      const Command flush{.key = {.kind = CommandKind::kMemcached, .a = 2, .d = index},
                          .item = {.verb = ItemVerb::kFlush},
                          .age_ns = 0};
      ++index;
      ASSERT_EQ(one->Apply(index, flush), other->Apply(index, flush));
      const ScopedHashSecret secret({seed, index});
      other = Copied(*one);
      ASSERT_NE(other, nullptr);
      ASSERT_EQ(one->memory(), other->memory()) << seed << " " << index;
    }
    EXPECT_GT(no_room, 50u) << seed;
  }
}

// -- against malloc ----------------------------------------------------------------------------------------

#if defined(__GLIBC__) && !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)

uint64_t Allocated() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

struct Load {
  const char* name;
  Command (*command)(uint64_t i);
};

const Load kLoads[] = {
    {"short keys, no value, one session",
     [](uint64_t i) {
       if (i == 0) return Command{.key = {.kind = CommandKind::kOpen, .a = 1}, .session = NameOf(1)};
       const std::vector<Operation> put = {Put(std::to_string(i), "")};
       return Command{.key = WriteKey(NameOf(1), i, put), .lowest_unanswered = i, .operations = put};
     }},
    {"sessions",
     [](uint64_t i) { return Command{.key = {.kind = CommandKind::kOpen, .a = i + 1}, .session = NameOf(i + 1)}; }},
    {"writes without a session",
     [](uint64_t i) {
       return Command{.key = {.kind = CommandKind::kWindowed, .a = i},
                      .operations = {Put(std::to_string(i), std::string(30, 'v'))}};
     }},
    {"increments",
     [](uint64_t i) {
       return Command{.key = {.kind = CommandKind::kWindowed, .a = i},
                      .operations = {{.kind = OperationKind::kIncrement,
                                      .key = std::string(240, 'k') + std::to_string(i),
                                      .delta = INT64_MAX}}};
     }},
    {"answers of one session",
     [](uint64_t i) {
       if (i == 0) return Command{.key = {.kind = CommandKind::kOpen, .a = 1}, .session = NameOf(1)};
       const std::vector<Operation> nothing = {Delete("none")};
       return Command{.key = WriteKey(NameOf(1), i, nothing), .operations = nothing};
     }},
    {"items that end",
     [](uint64_t i) {
       return Command{.key = {.kind = CommandKind::kMemcached, .a = 1, .d = i},
                      .item = {.verb = ItemVerb::kSet,
                               .key = std::string(240, 'k') + std::to_string(i),
                               .value = "v",
                               .life_s = 900},
                      .age_ns = 0};
     }},
    {"requests of one memcached name",
     [](uint64_t i) {
       return Command{.key = {.kind = CommandKind::kMemcached, .a = 1, .c = i, .d = i / 2},
                      .item = {.verb = ItemVerb::kDelete, .key = "none"},
                      .age_ns = 0};
     }},
    {"large values over small ones",
     [](uint64_t i) {
       return Command{
           .key = {.kind = CommandKind::kWindowed, .a = i},
           .operations = {Put(std::to_string(i % 1000), std::string(i < 10'000 ? 100 + i % 7 * 100 : 777, 'v'))}};
     }},
};

TEST(Memory, TheChargeIsAboutWhatTheAllocatorGives) {
  for (const Load& load : kLoads) {
    StateMachine state;
    state.Apply(1, {.key = {.kind = CommandKind::kSettings}, .settings = {{Setting::kSessionAnswersMax, 65'536}}});
    const uint64_t before = Allocated();
    for (uint64_t i = 0; i < 40'000; ++i) state.Apply(i + 1, load.command(i));
    const double taken = static_cast<double>(Allocated() - before);
    const double charged = static_cast<double>(state.memory().total());
    EXPECT_LE(taken, 1.2 * charged) << load.name;
    EXPECT_GE(taken, 0.45 * charged) << load.name << ": the charge is far too high";
    printf("%-32s taken / charged %.2f\n", load.name, taken / charged);
  }
}

#endif

}  // namespace
}  // namespace hedgerow::kv
