// SPDX-License-Identifier: Apache-2.0
//
// An incremental snapshot is the state at its beginning, whatever is done meanwhile; and what was written by an earlier
// format can be read.
#include "cluster/kv/incremental_snapshot.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "build_paths.h"
#include "cluster/kv/features.h"
#include "cluster/kv/state_loader.h"
#include "cluster/kv/state_machine.h"

namespace hedgerow::kv {
namespace {

using testing::HasSubstr;

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kMemory_bytes = 200'000;

using Chunks = std::vector<std::string>;

// Commands as clients would send them: sessions that open, write, repeat themselves, run ahead and expire;
// windowed ones; values that come, change and go; and settings that change now and then.
class Story {
 public:
  explicit Story(uint64_t seed) : random_(seed) {}

  void Tell(StateMachine& state) {
    ++index_;
    const uint64_t kind = index_ == 1 || Below(100) == 0 ? kSettingsChange : Below(14);
    Command command;
    command.elapsed_ns = Below(kSecond / 2);
    if (kind == 0) {
      command.key = {.kind = CommandKind::kOpen, .a = Below(1'000'000)};
      command.session = {.id = index_, .token = index_ * 7};
      opened_.push_back(index_);
    } else if (kind < 7 && !opened_.empty()) {
      const uint64_t id = opened_[Below(opened_.size())];
      command.key = {
          .kind = CommandKind::kWrite, .a = id, .b = 1 + Below(40), .c = Below(3), .d = id * 7 + Below(20) / 19};
      command.lowest_unanswered = Below(10);
    } else if (kind < 10) {
      command.key = {.kind = CommandKind::kWindowed, .a = 1, .b = Below(200), .c = 2};
    } else if (kind == 10) {
      command.key = {.kind = CommandKind::kTick};
    } else if (kind == kSettingsChange) {
      command.key = {.kind = CommandKind::kSettings};
      command.settings = {{Setting::kSessionTimeout, (20 + Below(60)) * kSecond},
                          {Setting::kSessionsMax, 5 + Below(40)},
                          {Setting::kWindow, (5 + Below(20)) * kSecond},
                          {Setting::kMemcachedWindow, (3 + Below(9)) * kSecond},
                          {Setting::kMemcachedMemory, kMemory_bytes}};
    } else {
      command.key = {.kind = CommandKind::kMemcached, .a = 1, .b = 2, .c = Below(3), .d = Below(100)};
      command.item = ChangeItem();
      if (Below(8) != 0) command.age_ns = Below(3) * kSecond;
    }
    if (kind != 0 && kind < 10 && command.key.c != kCancels) command.operations.push_back(Operate());
    state.Apply(index_, command);
  }

 private:
  static constexpr uint64_t kSettingsChange = 100;

  uint64_t Below(uint64_t bound) { return random_() % bound; }
  Operation Operate() {
    Operation operation;
    operation.key = "key" + std::to_string(Below(500));
    operation.kind = static_cast<OperationKind>(1 + Below(4));
    if (operation.kind == OperationKind::kIncrement) operation.key += "n";
    operation.value = std::string(Below(300), 'v');
    operation.delta = static_cast<int64_t>(Below(100));
    return operation;
  }

  ItemOperation ChangeItem() {
    ItemOperation item;
    item.verb = static_cast<ItemVerb>(1 + Below(10));
    item.key = "item" + std::to_string(Below(300));
    item.value = Below(2) == 0 ? std::to_string(Below(1000)) : std::string(Below(1500), 'w');
    item.flags = static_cast<uint32_t>(Below(3));
    item.life_s = static_cast<int64_t>(Below(60)) - 5;
    item.unique = Below(index_ + 1);
    item.delta = Below(10);
    return item;
  }

  std::mt19937_64 random_;
  uint64_t index_ = 0;
  std::vector<uint64_t> opened_;
};

Chunks SnapshotAtOnce(StateMachine& state, size_t chunk_bytes = kSnapshotChunk_bytes) {
  Chunks chunks;
  state.BeginSnapshot(chunk_bytes);
  while (state.taking_snapshot()) {
    for (std::string& chunk : state.ContinueSnapshot(1'000'000)) chunks.push_back(std::move(chunk));
  }
  return chunks;
}

std::unique_ptr<StateMachine> Load(const Chunks& chunks, std::string* why = nullptr) {
  StateLoader loader;
  for (const std::string& chunk : chunks) {
    if (!loader.Add(chunk)) break;
  }
  std::unique_ptr<StateMachine> state = loader.Finish();
  if (why != nullptr) *why = loader.error();
  return state;
}

// Two states are equal if they answer alike from now on. The fingerprint goes over every byte.
void ExpectTheSame(StateMachine& a, StateMachine& b, Story story) {
  EXPECT_EQ(a.fingerprint(), b.fingerprint());
  EXPECT_EQ(a.committed_time_ns(), b.committed_time_ns());
  EXPECT_EQ(a.settings(), b.settings());
  EXPECT_EQ(a.values(), b.values());
  EXPECT_EQ(a.sessions(), b.sessions());
  EXPECT_EQ(a.memcached().items(), b.memcached().items());
  EXPECT_EQ(a.memcached().item_bytes(), b.memcached().item_bytes());
  EXPECT_EQ(a.memcached().seen(), b.memcached().seen());
  Story same = story;
  for (int i = 0; i < 3000; ++i) {
    story.Tell(a);
    same.Tell(b);
    ASSERT_EQ(a.fingerprint(), b.fingerprint()) << "after " << i << " more commands";
    ASSERT_EQ(a.sessions(), b.sessions());
  }
}

// Which windows hold belongs to the state. What a snapshot in progress keeps of replaced requests does not: replicas
// take their snapshots apart.
TEST(IncrementalSnapshot, WhatItKeepsOfReplacedRequestsRaisesNoWindowLater) {
  constexpr uint64_t kWindow_ns = 10 * DedupeWindow::kRaiseDelay_ns;
  constexpr RequestKey kKey = {.kind = CommandKind::kMemcached, .a = 1, .b = 2};
  DedupeWindow alone({.window_ns = kWindow_ns, .requests_max = 10});
  DedupeWindow with_snapshot({.window_ns = kWindow_ns, .requests_max = 10});
  SnapshotWriter writer({}, kSnapshotChunk_bytes);
  for (DedupeWindow* window : {&alone, &with_snapshot}) {
    window->Record(kKey, {}, 1, 1);
    window->SetLimits({.window_ns = 2 * kWindow_ns, .requests_max = 10}, 2);
    if (window == &with_snapshot) window->BeginSnapshot(&writer);
    window->Record(kKey, {}, DedupeWindow::kRaiseDelay_ns + 3, DedupeWindow::kRaiseDelay_ns + 3);
    window->Expire(DedupeWindow::kRaiseDelay_ns + 3);
    EXPECT_EQ(window->steps().size(), 1u) << "no request is of the former window";
  }
  EXPECT_EQ(alone.content(), with_snapshot.content());
}

TEST(IncrementalSnapshot, WhatIsLoadedGoesOnLikeTheOriginal) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    StateMachine state;
    Story story(seed);
    for (int i = 0; i < 2000; ++i) story.Tell(state);
    const std::unique_ptr<StateMachine> loaded = Load(SnapshotAtOnce(state));
    ASSERT_NE(loaded, nullptr);
    ExpectTheSame(state, *loaded, story);
  }
}

TEST(IncrementalSnapshot, WhatHappensMeanwhileIsNotInIt) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    StateMachine state;
    Story story(seed);
    for (int i = 0; i < 2000; ++i) story.Tell(state);
    const Chunks expected = SnapshotAtOnce(state);
    const Story then = story;

    state.BeginSnapshot();
    Chunks chunks;
    int commands = 0;
    while (state.taking_snapshot()) {
      for (std::string& chunk : state.ContinueSnapshot(100 + 100 * seed)) chunks.push_back(std::move(chunk));
      for (uint64_t i = 0; i < seed; ++i, ++commands) story.Tell(state);
    }
    ASSERT_GT(commands, 50);
    const std::unique_ptr<StateMachine> loaded = Load(chunks);
    const std::unique_ptr<StateMachine> wanted = Load(expected);
    ASSERT_NE(loaded, nullptr);
    ExpectTheSame(*wanted, *loaded, then);
  }
}

TEST(IncrementalSnapshot, AGrowingStoreIsInItWhole) {
  StateMachine state;
  const auto put = [&state](uint64_t i) {
    Operation operation{.kind = OperationKind::kPut, .key = "k" + std::to_string(i), .value = "v"};
    state.Apply(i, {.key = {.kind = CommandKind::kWindowed, .a = i}, .elapsed_ns = kSecond, .operations = {operation}});
  };
  for (uint64_t i = 1; i <= 20'000; ++i) put(i);
  state.BeginSnapshot();
  Chunks chunks;
  for (uint64_t i = 20'001; state.taking_snapshot(); i += 30) {
    for (std::string& chunk : state.ContinueSnapshot(3000)) chunks.push_back(std::move(chunk));
    for (uint64_t j = i; j < i + 30; ++j) put(j);
  }
  ASSERT_GT(state.values(), 30'000u) << "its maps have grown meanwhile";
  const std::unique_ptr<StateMachine> loaded = Load(chunks);
  ASSERT_NE(loaded, nullptr);
  EXPECT_EQ(loaded->values(), 20'000u);
}

// A client that uses one id for everything puts its requests in each other's place all the time.
TEST(IncrementalSnapshot, WhatIsDoneAnewMeanwhileIsInItAsItWas) {
  StateMachine state;
  uint64_t index = 0;
  const auto set = [&](StateMachine& on, uint64_t id, uint64_t value, uint64_t elapsed_ns = 0) {
    return on.Apply(++index, {.key = {.kind = CommandKind::kMemcached, .a = 1, .c = value, .d = id},
                              .elapsed_ns = elapsed_ns,
                              .item = {.verb = ItemVerb::kSet, .key = "k", .value = std::to_string(value)},
                              .age_ns = 0});
  };
  for (uint64_t id = 1; id <= 100; ++id) {
    set(state, id, 1, 1);
    set(state, id, 2, 1);
  }
  const Chunks expected = SnapshotAtOnce(state);
  for (const bool abandoned : {true, false}) {
    state.BeginSnapshot(100);
    Chunks chunks;
    for (uint64_t id = 1; state.taking_snapshot(); id = id % 100 + 1) {
      for (std::string& chunk : state.ContinueSnapshot(50)) chunks.push_back(std::move(chunk));
      set(state, id, 1, 1);
      set(state, id, 2, 1);
      if (abandoned && id == 40) state.AbandonSnapshot();
    }
    if (abandoned) continue;
    const std::unique_ptr<StateMachine> loaded = Load(chunks);
    ASSERT_NE(loaded, nullptr);
    EXPECT_EQ(loaded->memcached().seen(), 200u);
  }
  const uint64_t fingerprint = state.fingerprint();
  const std::unique_ptr<StateMachine> then = Load(expected);
  const std::unique_ptr<StateMachine> now = Load(SnapshotAtOnce(state));
  ASSERT_NE(then, nullptr);
  ASSERT_NE(now, nullptr);
  EXPECT_EQ(now->fingerprint(), fingerprint);
  set(*now, 1, 2);
  EXPECT_EQ(now->FindItem("k")->value, state.FindItem("k")->value) << "a duplicate of the newest";
  set(*now, 1, 1);
  EXPECT_EQ(now->FindItem("k")->value, "1") << "another was done since";
}

TEST(IncrementalSnapshot, OneThatWasAbandonedLeavesNothingBehind) {
  StateMachine state;
  Story story(9);
  for (int i = 0; i < 2000; ++i) story.Tell(state);
  state.BeginSnapshot();
  (void)state.ContinueSnapshot(500);
  state.AbandonSnapshot();
  EXPECT_FALSE(state.taking_snapshot());
  for (int i = 0; i < 500; ++i) story.Tell(state);
  const std::unique_ptr<StateMachine> loaded = Load(SnapshotAtOnce(state));
  ASSERT_NE(loaded, nullptr);
  ExpectTheSame(state, *loaded, story);
}

TEST(IncrementalSnapshot, OneThatIsNotWholeIsRefused) {
  StateMachine state;
  Story story(3);
  for (int i = 0; i < 3000; ++i) story.Tell(state);
  const Chunks whole = SnapshotAtOnce(state, 5000);
  ASSERT_GE(whole.size(), 5u);
  std::string why;
  EXPECT_EQ(Load({whole.begin(), whole.end() - 1}, &why), nullptr);
  EXPECT_THAT(why, HasSubstr("its end is missing"));
  Chunks gap = whole;
  gap.erase(gap.begin() + 1);
  EXPECT_EQ(Load(gap, &why), nullptr);
  EXPECT_THAT(why, HasSubstr("not hold as many records as it says"));
  Chunks twice = whole;
  twice.insert(twice.begin() + 2, twice[1]);
  EXPECT_EQ(Load(twice, &why), nullptr);
  EXPECT_THAT(why, HasSubstr("twice"));
  Chunks swapped = whole;
  std::swap(swapped[0], swapped[1]);
  EXPECT_EQ(Load(swapped, &why), nullptr);
  EXPECT_THAT(why, HasSubstr("out of order"));
  for (size_t bytes = 0; bytes < whole[0].size(); ++bytes) {
    EXPECT_EQ(Load({whole[0].substr(0, bytes)}), nullptr);
  }
}

TEST(IncrementalSnapshot, AFormatOfTheFutureIsNamed) {
  ByteWriter writer(16);
  writer.Put(static_cast<uint8_t>(SnapshotRecord::kState));
  writer.Put(kSnapshotVersion + 1);
  std::string why;
  EXPECT_EQ(Load({writer.Take()}, &why), nullptr);
  EXPECT_THAT(why, HasSubstr("start the version of the program that wrote it"));
}

// testdata/snapshot-N is what version N of the format made of `Small`, its chunks behind their lengths; version 1
// had no items, version 2 no settings, version 5 no features. Sessions from before version 5 had no tokens, and are
// passed over.
void Small(StateMachine& state) {
  const auto apply = [&state](uint64_t index, Command command) { state.Apply(index, command); };
  apply(1, {.key = {.kind = CommandKind::kOpen, .a = 77}, .session = {.id = 1, .token = 11}, .elapsed_ns = kSecond});
  apply(2, {.key = {.kind = CommandKind::kOpen, .a = 78}, .session = {.id = 2, .token = 12}, .elapsed_ns = kSecond});
  apply(3, {.key = {.kind = CommandKind::kWrite, .a = 1, .b = 5, .c = 9, .d = 11},
            .lowest_unanswered = 4,
            .elapsed_ns = kSecond,
            .operations = {{.kind = OperationKind::kPut, .key = "colour", .value = "green"},
                           {.kind = OperationKind::kIncrement, .key = "count", .delta = 41}}});
  apply(4, {.key = {.kind = CommandKind::kWindowed, .a = 1, .b = 2, .c = 3},
            .came_ns = 3 * kSecond,
            .elapsed_ns = kSecond,
            .operations = {{.kind = OperationKind::kIncrement, .key = "count", .delta = 1}}});
  apply(5, {.key = {.kind = CommandKind::kMemcached, .a = 1, .b = 2, .c = 3, .d = 4},
            .item = {.verb = ItemVerb::kSet, .key = "leaf", .value = "brown", .flags = 9, .life_s = 60}});
  apply(6, {.key = {.kind = CommandKind::kMemcached, .a = 1, .b = 2, .c = 3, .d = 5},
            .item = {.verb = ItemVerb::kAdd, .key = "leaf", .value = "red"}});
  apply(7, {.key = {.kind = CommandKind::kSettings, .a = kSeed, .b = 99},
            .settings = {{Setting::kSessionsMax, 3}, {Setting::kMemcachedWindow, 6 * kSecond}}});
}

TEST(IncrementalSnapshot, EveryFormatThereWasIsRead) {
  const std::string path = HEDGEROW_SOURCE_DIR "/cluster/kv/testdata/snapshot-" + std::to_string(kSnapshotVersion);
  if (getenv("HEDGEROW_REWRITE") != nullptr) {
    StateMachine state;
    Small(state);
    std::ofstream file(path, std::ios::binary);
    for (const std::string& chunk : SnapshotAtOnce(state)) {
      ByteWriter writer(chunk.size() + 4);
      writer.PutText<uint32_t>(chunk);
      file << writer.Take();
    }
  }
  for (uint32_t version = 1; version <= kSnapshotVersion; ++version) {
    std::ifstream file(HEDGEROW_SOURCE_DIR "/cluster/kv/testdata/snapshot-" + std::to_string(version),
                       std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    ByteReader reader(bytes);
    Chunks chunks;
    while (reader.ok() && reader.left_bytes() > 0) chunks.emplace_back(reader.GetText<uint32_t>(bytes.size()));
    std::string why;
    const std::unique_ptr<StateMachine> state = Load(chunks, &why);
    ASSERT_NE(state, nullptr) << "version " << version << ": " << why;
    EXPECT_EQ(state->Get("colour"), "green");
    EXPECT_EQ(state->Get("count"), "42");
    EXPECT_EQ(state->committed_time_ns(), 4 * kSecond);
    EXPECT_EQ(state->features(), version >= 6 ? kCameFeature : 0);
    EXPECT_EQ(state->Known({.kind = CommandKind::kWindowed, .a = 1, .b = 2, .c = 3})->values[0], "42");
    const Command old{.key = {.kind = CommandKind::kWrite, .a = 1, .b = 3, .c = 9, .d = 11}, .operations = {}};
    if (version >= 5) {
      EXPECT_EQ(state->sessions(), 2u);
      EXPECT_EQ(state->Known({.kind = CommandKind::kOpen, .a = 78})->session, 2u);
      EXPECT_EQ(state->Known({.kind = CommandKind::kOpen, .a = 78})->token, 12u);
      EXPECT_EQ(state->Known({.kind = CommandKind::kWrite, .a = 1, .b = 5, .c = 9, .d = 11})->values[1], "41");
      EXPECT_EQ(state->Known({.kind = CommandKind::kWrite, .a = 1, .b = 5, .c = 8, .d = 11})->code,
                ResultCode::kMismatch);
      EXPECT_FALSE(state->Known({.kind = CommandKind::kWrite, .a = 1, .b = 5, .c = 9, .d = 12}).has_value());
      EXPECT_EQ(state->Apply(8, old).code, ResultCode::kBelowLowest);
    } else {
      EXPECT_EQ(state->sessions(), 0u);
      EXPECT_EQ(state->Apply(8, old).code, ResultCode::kUnknownSession);
    }
    Settings settings;
    if (version >= 3) {
      settings.version = 1;
      settings.sessions.sessions_max = 3;
      if (version == 3) settings.window = {.window_ns = 10 * kSecond, .requests_max = 1'000'000};
      settings.memcached.window.window_ns = 6 * kSecond;
      if (version < 5) settings.memcached.memory_bytes = uint64_t{1} << 30;
    }
    EXPECT_EQ(state->settings(), settings);
    EXPECT_EQ(state->log_uuid(), version >= 4 ? 99u : 0u);
    if (version == 1) continue;
    ASSERT_NE(state->FindItem("leaf"), nullptr);
    EXPECT_EQ(*state->FindItem("leaf"), (Item{.value = "brown", .flags = 9, .unique = 5, .end_ns = 64 * kSecond}));
    Command seen{.key = {.kind = CommandKind::kMemcached, .a = 1, .b = 2, .c = 3, .d = 5},
                 .item = {.verb = ItemVerb::kSet, .key = "leaf", .value = "black"},
                 .age_ns = 0};
    EXPECT_EQ(state->Apply(8, seen).code, ResultCode::kNotStored);
    seen.elapsed_ns = 7 * kSecond;
    EXPECT_EQ(state->Apply(9, seen).code, ResultCode::kOk) << "its window has ended";
  }
}

}  // namespace
}  // namespace hedgerow::kv
