// SPDX-License-Identifier: Apache-2.0
//
// The limits are a part of the replicated state: entries of the log set them, and every command is applied under
// those that its predecessors have set.
#include "cluster/kv/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/kv/state_machine.h"

namespace hedgerow::kv {
namespace {

using testing::ElementsAre;

constexpr uint64_t kSecond = 1'000'000'000;

TEST(Settings, DefaultsAreInTheirRangesAndValuesAreKeptApart) {
  Settings settings;
  uint64_t value = 1'000'000;
  for (const SettingInfo& info : AllSettings()) {
    EXPECT_GE(Get(settings, info.setting), info.min) << info.name;
    EXPECT_LE(Get(settings, info.setting), info.max) << info.name;
    EXPECT_EQ(FindSetting(info.name), &info);
    Set(settings, info.setting, ++value);
  }
  EXPECT_EQ(FindSetting("sessions"), nullptr);
  value = 1'000'000;
  for (const SettingInfo& info : AllSettings()) EXPECT_EQ(Get(settings, info.setting), ++value) << info.name;
}

class SettingsTest : public testing::Test {
 protected:
  Result Change(SettingValues values, uint64_t elapsed_ns = 0, uint64_t seed = 0) {
    return state_.Apply(
        ++index_,
        {.key = {.kind = CommandKind::kSettings, .a = seed}, .elapsed_ns = elapsed_ns, .settings = std::move(values)});
  }
  Result Open(uint64_t nonce, uint64_t elapsed_ns = 0) {
    ++index_;
    return state_.Apply(
        index_, {.key = {.kind = CommandKind::kOpen, .a = nonce}, .session = {.id = index_}, .elapsed_ns = elapsed_ns});
  }
  Result Write(uint64_t session, uint64_t seq, uint64_t lowest = 1, uint64_t elapsed_ns = 0) {
    const std::vector<Operation> operations = {{.kind = OperationKind::kPut, .key = "k", .value = "v"}};
    return state_.Apply(++index_, {.key = WriteKey({.id = session}, seq, operations),
                                   .lowest_unanswered = lowest,
                                   .elapsed_ns = elapsed_ns,
                                   .operations = operations});
  }
  // Of a memcached client; the answer is the value by now.
  Result Count(uint64_t id, uint64_t elapsed_ns = 0) {
    return state_.Apply(++index_, {.key = {.kind = CommandKind::kMemcached, .a = 1, .d = id},
                                   .elapsed_ns = elapsed_ns,
                                   .item = {.verb = ItemVerb::kIncrement, .key = "n", .delta = 1}});
  }
  void SetUp() override {
    state_.Apply(++index_, {.key = {.kind = CommandKind::kMemcached, .a = 9},
                            .item = {.verb = ItemVerb::kSet, .key = "n", .value = "0"}});
  }
  void Tick(uint64_t elapsed_ns) {
    state_.Apply(++index_, {.key = {.kind = CommandKind::kTick}, .elapsed_ns = elapsed_ns});
  }

  StateMachine state_;
  uint64_t index_ = 0;
};

TEST_F(SettingsTest, AChangeLeavesWhatItDoesNotNameAndCountsAsOne) {
  EXPECT_FALSE(state_.settings().set());
  EXPECT_EQ(Change({{Setting::kSessionsMax, 7}, {Setting::kWindowMax, 5000}}).code, ResultCode::kOk);
  EXPECT_EQ(Change({{Setting::kSessionsMax, 8}}).code, ResultCode::kOk);
  Settings expected;
  expected.version = 2;
  expected.sessions.sessions_max = 8;
  expected.window.requests_max = 5000;
  EXPECT_EQ(state_.settings(), expected);
}

TEST_F(SettingsTest, TheFingerprintIsOfTheSettingsToo) {
  StateMachine other;
  other.Apply(1, {.key = {.kind = CommandKind::kMemcached, .a = 9},
                  .item = {.verb = ItemVerb::kSet, .key = "n", .value = "0"}});
  EXPECT_EQ(other.fingerprint(), state_.fingerprint());
  Change({{Setting::kSessionsMax, 7}});
  EXPECT_NE(other.fingerprint(), state_.fingerprint());
  other.Apply(2, {.key = {.kind = CommandKind::kSettings}, .settings = {{Setting::kSessionsMax, 7}}});
  EXPECT_EQ(other.fingerprint(), state_.fingerprint());
}

TEST_F(SettingsTest, OnlyTheFirstSeedCounts) {
  EXPECT_EQ(Change({{Setting::kSessionsMax, 7}}, 0, kSeed).code, ResultCode::kOk);
  EXPECT_EQ(Change({{Setting::kSessionsMax, 9}}, 0, kSeed).code, ResultCode::kMismatch);
  EXPECT_EQ(state_.settings().sessions.sessions_max, 7u);
  EXPECT_EQ(state_.settings().version, 1u);
}

TEST_F(SettingsTest, FewerSessionsRefuseNewOnesAndEndNoneThatWrote) {
  const uint64_t first = Open(1).session;
  const uint64_t second = Open(2).session;
  EXPECT_EQ(Write(first, 1).code, ResultCode::kOk);
  EXPECT_EQ(Write(second, 1).code, ResultCode::kOk);
  Change({{Setting::kSessionsMax, 1}});
  EXPECT_EQ(Open(3).code, ResultCode::kOverloaded);
  EXPECT_EQ(Write(first, 2).code, ResultCode::kOk);
  EXPECT_EQ(Write(second, 2).code, ResultCode::kOk);
  Change({{Setting::kSessionsMax, 3}});
  EXPECT_EQ(Open(3).code, ResultCode::kOk);
}

TEST_F(SettingsTest, AShorterTimeoutEndsIdleSessionsWithTheNextCommand) {
  const uint64_t session = Open(1).session;
  Write(session, 1, 1, 30 * kSecond);
  Tick(30 * kSecond);
  Change({{Setting::kSessionTimeout, 20 * kSecond}});
  EXPECT_EQ(state_.sessions(), 1u);
  EXPECT_EQ(Write(session, 2).code, ResultCode::kUnknownSession);
  EXPECT_EQ(state_.sessions(), 0u);
}

TEST_F(SettingsTest, ALongerTimeoutKeepsSessionsThatAreThere) {
  Change({{Setting::kSessionTimeout, 20 * kSecond}});
  const uint64_t session = Open(1).session;
  Tick(10 * kSecond);
  Change({{Setting::kSessionTimeout, 60 * kSecond}});
  EXPECT_EQ(Write(session, 1, 1, 49 * kSecond).code, ResultCode::kOk);
}

TEST_F(SettingsTest, FewerAnswersRefuseUntilTheClientHasTakenSome) {
  const uint64_t session = Open(1).session;
  for (uint64_t seq = 1; seq <= 4; ++seq) EXPECT_EQ(Write(session, seq).code, ResultCode::kOk);
  Change({{Setting::kSessionAnswersMax, 3}});
  EXPECT_EQ(Write(session, 5).code, ResultCode::kOverloaded);
  EXPECT_EQ(Write(session, 2).code, ResultCode::kOk) << "it is known";
  EXPECT_EQ(Write(session, 5, 3).code, ResultCode::kOk);
}

TEST_F(SettingsTest, LessMemoryEvictsNothing) {
  const auto set = [this](const char* key) {
    ++index_;
    return state_.Apply(index_, {.key = {.kind = CommandKind::kMemcached, .a = 2, .d = index_},
                                 .item = {.verb = ItemVerb::kSet, .key = key, .value = "v"}});
  };
  EXPECT_EQ(set("k").code, ResultCode::kOk);
  Change({{Setting::kMemcachedMemory, 100}});
  EXPECT_EQ(set("l").code, ResultCode::kNoRoom);
  EXPECT_NE(state_.FindItem("k"), nullptr);
}

TEST_F(SettingsTest, AShorterWindowHoldsForWhatIsInIt) {
  EXPECT_THAT(Count(1).values, ElementsAre("1"));
  Change({{Setting::kMemcachedWindow, 3 * kSecond}});
  EXPECT_THAT(Count(1, 3 * kSecond - 1).values, ElementsAre("1"));
  EXPECT_THAT(Count(1, 1).values, ElementsAre("2"));
}

// A front end admits as many requests as the window that it knows allows, and learns of a longer one later.
TEST_F(SettingsTest, ALongerWindowHoldsForWhatComesAfterTheFrontEndsKnowOfIt) {
  EXPECT_THAT(Count(1).values, ElementsAre("1"));
  Change({{Setting::kMemcachedWindow, 60 * kSecond}});
  EXPECT_THAT(Count(2, DedupeWindow::kRaiseDelay_ns - 1).values, ElementsAre("2"));
  EXPECT_THAT(Count(3, 1).values, ElementsAre("3"));
  EXPECT_THAT(Count(1, 3 * kSecond).values, ElementsAre("4")) << "known for 5 s, as it was told";
  EXPECT_THAT(Count(2, 2 * kSecond).values, ElementsAre("5")) << "the same, just before the longer window";
  EXPECT_THAT(Count(3, 54 * kSecond).values, ElementsAre("3"));
  EXPECT_THAT(Count(3, kSecond).values, ElementsAre("6")) << "known for 60 s";
}

TEST_F(SettingsTest, AWindowThatGoesUpAndDownEndsRequestsInTheirOrder) {
  Change({{Setting::kMemcachedWindow, 20 * kSecond}});
  Tick(DedupeWindow::kRaiseDelay_ns);
  Count(1);
  Change({{Setting::kMemcachedWindow, 4 * kSecond}}, kSecond);
  Count(2);
  Change({{Setting::kMemcachedWindow, 30 * kSecond}}, kSecond);
  Count(3, DedupeWindow::kRaiseDelay_ns);
  EXPECT_EQ(state_.memcached().seen(), 2u) << "the first has ended after 4 s";
  Tick(kSecond);
  EXPECT_EQ(state_.memcached().seen(), 1u);
  Tick(28 * kSecond);
  EXPECT_EQ(state_.memcached().seen(), 1u);
  Tick(kSecond);
  EXPECT_EQ(state_.memcached().seen(), 0u);
}

TEST_F(SettingsTest, AWindowIsRaisedAFewTimesWithinItselfAndThenRefusesWhole) {
  for (uint64_t i = 1; i < DedupeWindow::kStepsMax; ++i) {
    EXPECT_EQ(Change({{Setting::kMemcachedWindow, (5 + i) * kSecond}}).code, ResultCode::kOk) << i;
  }
  const Settings before = state_.settings();
  EXPECT_EQ(Change({{Setting::kSessionsMax, 5}, {Setting::kMemcachedWindow, 59 * kSecond}}).code,
            ResultCode::kOverloaded);
  EXPECT_EQ(state_.settings(), before);
  Tick(60 * kSecond);
  EXPECT_EQ(Change({{Setting::kMemcachedWindow, 59 * kSecond}}).code, ResultCode::kOk);
}

}  // namespace
}  // namespace hedgerow::kv
