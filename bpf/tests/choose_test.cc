// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The choice of a backend: a table of cases, and properties that hold for every snapshot of three backends.
#include "bpf/proxy/choose.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

namespace hedgerow {
namespace {

constexpr unsigned kA = 0b001, kB = 0b010, kC = 0b100, kAll = 0b111;
constexpr int kNone = HR_NO_BACKEND;

// Three healthy backends; a leads, and c answers sooner than b.
hr_choice_view Healthy() {
  hr_choice_view view{};
  view.present = view.healthy = kAll;
  view.answer_us[0] = 10;
  view.answer_us[1] = 30;
  view.answer_us[2] = 20;
  view.explore_tick = HR_EXPLORE_NEVER;
  view.probe_tick = 1;
  return view;
}

void MakeSuspect(hr_choice_view &view, unsigned mask) {
  view.healthy &= static_cast<__u8>(~mask);
  view.suspect |= static_cast<__u8>(mask);
}
void MakeDown(hr_choice_view &view, unsigned mask) { view.healthy &= static_cast<__u8>(~mask); }

struct Case {
  const char *name;
  void (*change)(hr_choice_view &);
  int first, second;
  hr_choice_why why;
  bool probe;
};

const Case kCases[] = {
    {"AllHealthyGoesToTheLeader", [](auto &) {}, 0, kNone, HR_CHOSE_LEADER, false},
    {"AnotherLeader", [](auto &view) { view.leader = 1; }, 1, kNone, HR_CHOSE_LEADER, false},
    {"ThePreferredBackend", [](auto &view) { view.preferred = 3; }, 2, kNone, HR_CHOSE_PREFERRED, false},
    {"OneRequestExploresTheLeader",
     [](auto &view) {
       view.preferred = 3;
       view.explore_tick = 2 * HR_EXPLORE_ONE_IN;
     },
     0, kNone, HR_CHOSE_LEADER, false},
    {"ADrainedLeaderGetsNothing", [](auto &view) { view.drained = kA; }, 2, kNone, HR_CHOSE_STANDBY, false},
    {"TheLeaderIsKeptWhereEveryBackendIsDrained", [](auto &view) { view.drained = kAll; }, 0, kNone, HR_CHOSE_STANDBY,
     false},
    {"TheFirstPlaceLeadsForAnAbsentLeader", [](auto &view) { view.present = kB | kC; }, 1, kNone, HR_CHOSE_LEADER,
     false},
    {"TheFirstPlaceThatIsNotDrainedLeadsForAnAbsentLeader",
     [](auto &view) {
       view.present = kB | kC;
       view.drained = kB;
     },
     2, kNone, HR_CHOSE_LEADER, false},
    {"AnAbsentPreferredBackendCountsForNothing",
     [](auto &view) {
       view.present = kA | kC;
       view.preferred = 2;
     },
     0, kNone, HR_CHOSE_LEADER, false},
    {"ASuspectLeaderAndTheFastestStandby", [](auto &view) { MakeSuspect(view, kA); }, 0, 2, HR_CHOSE_BOTH, false},
    {"ASuspectLeaderIsPassedByWhereCopiesAreSpent",
     [](auto &view) {
       MakeSuspect(view, kA);
       view.spent = 1;
     },
     2, kNone, HR_CHOSE_AROUND, false},
    {"ASuspectLeaderIsAskedAloneWhereCopiesAreSpentAndNoneIsHealthy",
     [](auto &view) {
       MakeSuspect(view, kAll);
       view.spent = 1;
     },
     0, kNone, HR_CHOSE_LAST_RESORT, false},
    {"ADrainedLeaderIsAskedAloneWhereCopiesAreSpent",
     [](auto &view) {
       view.drained = kA;
       MakeSuspect(view, kB | kC);
       view.spent = 1;
     },
     0, kNone, HR_CHOSE_STANDBY, false},
    {"AnImpairedLeaderIsAskedBesideASuspectStandby",
     [](auto &view) {
       MakeDown(view, kA);
       view.impaired = view.retry_due = kA;
       MakeSuspect(view, kB | kC);
     },
     2, 0, HR_CHOSE_BOTH, false},
    {"AnImpairedLeaderIsAskedAloneWhereCopiesAreSpent",
     [](auto &view) {
       MakeDown(view, kA);
       view.impaired = view.retry_due = kA;
       MakeSuspect(view, kB | kC);
       view.spent = 1;
     },
     0, kNone, HR_CHOSE_LAST_RESORT, false},
    {"ADownLeaderIsPassedBy", [](auto &view) { MakeDown(view, kA); }, 2, kNone, HR_CHOSE_AROUND, false},
    {"ADownLeaderIsProbedByTurns",
     [](auto &view) {
       MakeDown(view, kA);
       view.probe_tick = 2 * HR_PROBE_ONE_IN;
     },
     2, 0, HR_CHOSE_PROBE, true},
    {"ADownStandbyWhoseRetryIsDueIsProbedBesideAHealthyOne",
     [](auto &view) {
       MakeDown(view, kA | kC);
       view.retry_due = kC;
     },
     1, 2, HR_CHOSE_AROUND, true},
    {"AHealthyTargetIsSentNoProbeBeside",
     [](auto &view) {
       MakeDown(view, kB);
       view.retry_due = kB;
     },
     0, kNone, HR_CHOSE_LEADER, false},
    {"WithNoneHealthyAndADownLeaderAStandbyIsTried", [](auto &view) { MakeDown(view, kAll); }, 2, kNone,
     HR_CHOSE_AROUND, false},
    {"OfDownStandbysTheOneWhoseRetryIsDue",
     [](auto &view) {
       MakeDown(view, kAll);
       view.retry_due = kB;
     },
     1, kNone, HR_CHOSE_AROUND, false},
    {"OneAloneIsAskedWhateverItsHealth",
     [](auto &view) {
       MakeDown(view, kA);
       view.present = kA;
     },
     0, kNone, HR_CHOSE_LAST_RESORT, false},
    {"ADrainedLeaderIsAskedBesideASuspectStandby",
     [](auto &view) {
       view.drained = kA;
       MakeSuspect(view, kB | kC);
     },
     2, 0, HR_CHOSE_BOTH, false},
    {"OfADrainedLeaderAndDownStandbysTheOneWhoseRetryIsDue",
     [](auto &view) {
       view.drained = kA;
       MakeDown(view, kAll);
       view.retry_due = kB;
     },
     1, kNone, HR_CHOSE_LAST_RESORT, false},
    {"ADrainedDownStandbyIsNotProbed",
     [](auto &view) {
       MakeDown(view, kA | kC);
       view.retry_due = kC;
       view.drained = kC;
     },
     1, kNone, HR_CHOSE_AROUND, false},
    {"NobodyIsPresent", [](auto &view) { view.present = 0; }, kNone, kNone, HR_CHOSE_NONE, false},
    {"AChoiceThatExploresAsksTheOneHeardLeastLately",
     [](auto &view) {
       view.exclude = kA;
       view.least_heard = 1;
       view.answer_us[1] = hr_choice_least_heard(1'000'000'000, 9'000'000'000);
       view.answer_us[2] = hr_choice_least_heard(8'000'000'000, 9'000'000'000);
     },
     1, kNone, HR_CHOSE_STANDBY, false},
    // Further attempts.
    {"TheNextGoesToTheFastestStandby", [](auto &view) { view.exclude = kA; }, 2, kNone, HR_CHOSE_STANDBY, false},
    {"TheNextGoesToANewLeader",
     [](auto &view) {
       view.leader = 1;
       view.exclude = kA;
     },
     1, kNone, HR_CHOSE_LEADER, false},
    {"TheNextAvoidsADrainedLeader",
     [](auto &view) {
       view.leader = 1;
       view.drained = kB;
       view.exclude = kA;
     },
     2, kNone, HR_CHOSE_STANDBY, false},
    {"TheNextGoesToADrainedOneRatherThanToASilentOne",
     [](auto &view) {
       view.drained = kB;
       view.exclude = kA;
       MakeSuspect(view, kC);
     },
     1, kNone, HR_CHOSE_STANDBY, false},
    {"ADownStandbyWhoseRetryIsDueIsNeverPreferredToAHealthyOne",
     [](auto &view) {
       view.exclude = kA;
       MakeDown(view, kC);
       view.retry_due = kC;
     },
     1, 2, HR_CHOSE_STANDBY, true},
    {"ADownStandbyIsTheLastResort",
     [](auto &view) {
       view.exclude = kA | kB;
       MakeDown(view, kC);
     },
     2, kNone, HR_CHOSE_LAST_RESORT, false},
    {"ASuspectStandbyBeforeADownOne",
     [](auto &view) {
       view.exclude = kA;
       MakeSuspect(view, kB);
       MakeDown(view, kC);
       view.retry_due = kC;
     },
     1, kNone, HR_CHOSE_LAST_RESORT, false},
    {"ASuspectLeaderIsNotDoubledForTheNext",
     [](auto &view) {
       view.leader = 1;
       MakeSuspect(view, kB);
       view.exclude = kA;
     },
     2, kNone, HR_CHOSE_STANDBY, false},
    {"EveryBackendWasAsked", [](auto &view) { view.exclude = kAll; }, kNone, kNone, HR_CHOSE_NONE, false},
};

class ChooseTest : public testing::TestWithParam<Case> {};

TEST_P(ChooseTest, Chooses) {
  hr_choice_view view = Healthy();
  GetParam().change(view);
  const hr_choice choice = hr_choose(&view);
  EXPECT_EQ(choice.first, GetParam().first);
  EXPECT_EQ(choice.second, GetParam().second);
  EXPECT_EQ(choice.why, GetParam().why);
  EXPECT_EQ(choice.probe != 0, GetParam().probe);
}

INSTANTIATE_TEST_SUITE_P(Cases, ChooseTest, testing::ValuesIn(kCases),
                         [](const auto &info) { return std::string(info.param.name); });

bool Has(unsigned mask, unsigned place) { return place < HR_MAX_BACKENDS_PER_SERVICE && ((mask >> place) & 1) != 0; }

void ExpectSound(const hr_choice_view &view) {
  const hr_choice_view before = view;
  const hr_choice choice = hr_choose(&view);
  ASSERT_EQ(memcmp(&view, &before, sizeof(view)), 0) << "it writes nothing";
  const unsigned open = view.present & ~view.exclude;
  ASSERT_EQ(choice.first != HR_NO_BACKEND, open != 0) << "a backend is chosen if there is one";
  ASSERT_EQ(choice.first != HR_NO_BACKEND, choice.why != HR_CHOSE_NONE);
  if (open == 0) return;
  ASSERT_TRUE(Has(open, choice.first)) << "it may be asked";
  ASSERT_TRUE(choice.second == HR_NO_BACKEND || Has(open, choice.second));
  ASSERT_NE(choice.first, choice.second);
  if ((open & view.healthy) != 0) {
    ASSERT_TRUE(Has(view.healthy, choice.first) || (choice.why == HR_CHOSE_BOTH && Has(view.suspect, choice.first)))
        << "a healthy backend is there: no other standby is chosen";
    ASSERT_TRUE(choice.why != HR_CHOSE_BOTH || Has(view.healthy, choice.second)) << "and gets the copy";
  }
  const unsigned better = open & view.healthy & ~static_cast<unsigned>(view.drained);
  ASSERT_FALSE(better != 0 && Has(view.drained, choice.first)) << "drained, and another is there";
  if (choice.probe) {
    ASSERT_FALSE(Has(view.healthy | (view.spent ? 0u : view.suspect), choice.second)) << "a probe is of a down backend";
    ASSERT_FALSE(choice.why != HR_CHOSE_PROBE && Has(view.drained, choice.second))
        << "and not of one that is being drained";
    ASSERT_TRUE(choice.why == HR_CHOSE_PROBE || (Has(view.healthy, choice.first) && Has(view.retry_due, choice.second)))
        << "and rides beside a healthy one, when it is due";
  }
  ASSERT_TRUE(!view.spent || choice.second == HR_NO_BACKEND || choice.probe) << "no copy where those are spent";
  ASSERT_TRUE(view.exclude == 0 || choice.second == HR_NO_BACKEND || choice.probe) << "one attempt at a time";
  ASSERT_TRUE(choice.second == HR_NO_BACKEND || (choice.why != HR_CHOSE_LEADER && choice.why != HR_CHOSE_PREFERRED));
}

TEST(ChooseProperties, TheLowestPlaceOfEveryMaskIsFound) {
  for (unsigned mask = 1; mask < 1u << HR_MAX_BACKENDS_PER_SERVICE; ++mask) {
    unsigned lowest = 0;
    while (!(mask >> lowest & 1)) ++lowest;
    EXPECT_EQ(hr_choice_lowest(mask), lowest) << mask;
  }
}

hr_service_config Shares(const std::vector<unsigned> &weights) {
  hr_service_config config{};
  for (unsigned i = 0; i < weights.size(); ++i) {
    config.backends[i] = static_cast<__u16>(7 + 3 * i);
    config.inverse_weights[i] = static_cast<__u16>(weights[i] == 0 ? 0 : 65535 / weights[i]);
  }
  return config;
}

TEST(Shares, AreThoseOfTheWeights) {
  constexpr unsigned kRequests = 400'000;
  for (const std::vector<unsigned> &weights :
       std::vector<std::vector<unsigned>>{{1, 1, 1}, {1, 2, 5, 0}, {10, 1, 1, 4}, {1, 1, 1, 1, 1, 1, 1, 1}}) {
    const hr_service_config config = Shares(weights);
    const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (const unsigned key_of : {0x9e3779b1u, 1u}) {  // spread over all keys, and counted
      std::vector<unsigned> got(weights.size());
      for (unsigned i = 0; i < kRequests; ++i) ++got[hr_share_place(&config, (1u << weights.size()) - 1, i * key_of)];
      for (unsigned i = 0; i < weights.size(); ++i)
        EXPECT_NEAR(got[i], kRequests * weights[i] / all, 0.02 * kRequests * weights[i] / all) << i << " of " << all;
    }
  }
}

TEST(Shares, ABackendThatGoesMovesOnlyItsOwnAndByWeight) {
  const hr_service_config config = Shares({2, 1, 3});
  unsigned moved[3] = {};
  for (unsigned key = 0; key < 200'000; ++key) {
    const unsigned before = hr_share_place(&config, 0b111, key), after = hr_share_place(&config, 0b110, key);
    ASSERT_TRUE(before == 0 || before == after) << key;
    if (before == 0) ++moved[after];
  }
  EXPECT_NEAR(moved[2], 3.0 * moved[1], 0.15 * moved[1]);
}

TEST(Shares, WithoutAShareABackendGetsWhatTheOthersCannotTake) {
  const hr_service_config config = Shares({1, 0, 1});
  for (unsigned key = 0; key < 1000; ++key) ASSERT_EQ(hr_share_place(&config, 0b010, key), 1u);
}

TEST(ChooseProperties, HoldForEverySnapshotOfThreeBackends) {
  hr_choice_view view{};
  for (const unsigned *times : (const unsigned[][3]){{0, 0, 0}, {3, 2, 1}, {1, 3, 2}}) {
    for (int i = 0; i < 3; ++i) view.answer_us[i] = times[i];
    for (unsigned health = 0; health < 64; ++health) {  // two bits a backend: healthy, suspect, down, down and due
      view.healthy = view.suspect = view.retry_due = 0;
      for (unsigned i = 0; i < 3; ++i) {
        const unsigned kind = health >> 2 * i & 3;
        view.healthy |= static_cast<__u8>((kind == 0) << i);
        view.suspect |= static_cast<__u8>((kind == 1) << i);
        view.retry_due |= static_cast<__u8>((kind == 3) << i);
      }
      for (unsigned masks = 0; masks < 512; ++masks) {
        view.present = masks & 7;
        view.drained = masks >> 3 & 7;
        view.exclude = masks >> 6 & 7;
        for (unsigned who = 0; who < 96; ++who) {
          view.leader = static_cast<__u8>(who % 3);
          view.preferred = static_cast<__u8>(who / 3 % 4);
          view.explore_tick = who / 12 & 1;
          view.probe_tick = who / 24 & 1;
          view.spent = who / 48 & 1;
          ExpectSound(view);
          if (HasFatalFailure()) {
            ADD_FAILURE() << "health " << health << ", masks " << masks << ", who " << who;
            return;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace hedgerow
