// SPDX-License-Identifier: Apache-2.0
//
// A number is kept by whoever stays, and given to nobody else while a request
// may still know it.

#include "proxy/start/roster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace hedgerow {
namespace {

using testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000'000;
constexpr DataPlaneRoom kRoom{.services = 3, .backends = 12};

// "dns: a b" is a service with two backends, whose addresses follow from their names.
v1::Config Config(const std::vector<std::pair<std::string, std::string>>& services) {
  v1::Config config;
  for (const auto& [name, backends] : services) {
    v1::Service& service = *config.add_services();
    service.set_name(name);
    service.set_vip("10.99.0.1");
    service.set_port(53);
    service.set_profile("dns");
    service.set_deadline_ns(2 * kSecond);
    service.set_retention_ns(kSecond);
    for (const char letter : backends) {
      v1::Backend& backend = *service.add_backends();
      backend.set_name(std::string(1, letter));
      backend.set_address(absl::StrCat("10.77.0.", static_cast<int>(letter)));
      backend.set_port(53);
    }
  }
  return config;
}

bool Unknown(uint32_t, uint32_t) { return false; }

v1::Roster Next(v1::Roster present, const v1::Config& config, int64_t now_ns = kSecond) {
  present = Without(present, Over(present, now_ns, Unknown));
  auto roster = NextRoster(present, config, kRoom, now_ns);
  EXPECT_TRUE(roster.ok()) << roster.status();
  return roster.ok() ? *roster : v1::Roster();
}

std::string Refusal(const v1::Roster& present, const v1::Config& config, int64_t now_ns = kSecond) {
  const auto roster = NextRoster(present, config, kRoom, now_ns);
  EXPECT_EQ(roster.status().code(), absl::StatusCode::kFailedPrecondition);
  return std::string(roster.status().message());
}

// "dns=0: a=0/0 b=1/1": numbers, and places within the service, of what is configured.
std::string Text(const v1::Roster& roster, const v1::Config& config) {
  std::string text;
  for (const v1::Service& service : config.services()) {
    const v1::RosterService* known = FindService(roster, service.name());
    if (known == nullptr) return "no " + service.name();
    absl::StrAppend(&text, text.empty() ? "" : " ", service.name(), "=", known->id(), ":");
    for (const v1::Backend& backend : service.backends()) {
      const v1::RosterBackend* found = FindBackend(*known, backend);
      if (found == nullptr) return "no " + backend.name();
      absl::StrAppend(&text, " ", backend.name(), "=", found->id(), "/", found->slot());
    }
  }
  return text;
}

TEST(Roster, NumbersFromNothingFollowTheOrder) {
  const v1::Config config = Config({{"dns", "ab"}, {"kv", "xyz"}});
  EXPECT_EQ(Text(Next({}, config), config), "dns=0: a=0/0 b=1/1 kv=1: x=2/0 y=3/1 z=4/2");
}

TEST(Roster, WhoStaysKeepsItsNumberWhereverItStands) {
  const v1::Roster roster = Next({}, Config({{"dns", "ab"}, {"kv", "xyz"}}));
  const v1::Config config = Config({{"kv", "zyx"}, {"dns", "ba"}});
  EXPECT_EQ(Text(Next(roster, config), config), "kv=1: z=4/2 y=3/1 x=2/0 dns=0: b=1/1 a=0/0");
}

TEST(Roster, ANumberThatIsGivenUpIsNotGivenAwayBeforeItsRequestsHaveEnded) {
  v1::Roster roster = Next({}, Config({{"dns", "ab"}, {"kv", "x"}}));
  const v1::Config without = Config({{"dns", "bc"}});
  roster = Next(roster, without, 10 * kSecond);
  EXPECT_EQ(Text(roster, without), "dns=0: b=1/1 c=3/2");
  const v1::Config later = Config({{"dns", "bcd"}, {"new", "w"}});
  EXPECT_EQ(Text(Next(roster, later, 15 * kSecond), later), "dns=0: b=1/1 c=3/2 d=4/3 new=2: w=5/0");
  EXPECT_EQ(Text(Next(roster, later, 30 * kSecond), later), "dns=0: b=1/1 c=3/2 d=0/0 new=1: w=2/0");
}

TEST(Roster, WhoComesBackInTimeHasItsOldNumber) {
  v1::Roster roster = Next({}, Config({{"dns", "ab"}}));
  roster = Next(roster, Config({{"dns", "b"}}), 10 * kSecond);
  const v1::Config again = Config({{"dns", "ab"}});
  EXPECT_EQ(Text(Next(roster, again, 12 * kSecond), again), "dns=0: a=0/0 b=1/1");
}

TEST(Roster, ARenamedBackendIsTheSameOne) {
  const v1::Roster roster = Next({}, Config({{"dns", "ab"}}));
  v1::Config renamed = Config({{"dns", "ab"}});
  renamed.mutable_services(0)->mutable_backends(0)->set_name("first");
  EXPECT_EQ(Text(Next(roster, renamed), renamed), "dns=0: first=0/0 b=1/1");
}

TEST(Roster, ABackendDoesNotChangeItsServiceWhileItMayStillAnswerForTheOldOne) {
  const v1::Roster roster = Next({}, Config({{"dns", "ab"}, {"kv", "x"}}));
  for (const auto& order : {Config({{"dns", "a"}, {"kv", "xb"}}), Config({{"kv", "xb"}, {"dns", "a"}})}) {
    EXPECT_THAT(Refusal(roster, order), HasSubstr("services[kv].backends[b]: 10.77.0.98 port 53 was service dns's"));
  }
  const v1::Roster parted = Next(roster, Config({{"dns", "a"}, {"kv", "x"}}), kSecond);
  const v1::Config moved = Config({{"dns", "a"}, {"kv", "xb"}});
  EXPECT_THAT(Refusal(parted, moved, 5 * kSecond), HasSubstr("for 11s"));
  EXPECT_EQ(Text(Next(parted, moved, 20 * kSecond), moved), "dns=0: a=0/0 kv=1: x=2/0 b=1/1");
}

TEST(Roster, AServiceThatComesBackInTimeIsTheSameOne) {
  const v1::Config both = Config({{"dns", "ab"}, {"kv", "x"}});
  const v1::Roster removed = Next(Next({}, both), Config({{"dns", "ab"}}), 10 * kSecond);
  EXPECT_TRUE(AnyRetired(removed));
  const v1::Roster back = Next(removed, both, 12 * kSecond);
  EXPECT_EQ(Text(back, both), "dns=0: a=0/0 b=1/1 kv=1: x=2/0");
  EXPECT_FALSE(AnyRetired(back));
  EXPECT_THAT(Over(back, 100 * kSecond, Unknown).services, testing::IsEmpty());
}

TEST(Roster, AServiceThatComesBackAsAnotherOneWaitsForTheRequestsOfTheFirst) {
  const v1::Config both = Config({{"dns", "ab"}, {"kv", "x"}});
  const v1::Roster removed = Next(Next({}, both), Config({{"dns", "ab"}}), 10 * kSecond);
  v1::Config other = both;
  other.mutable_services(1)->set_profile("hkv");
  EXPECT_THAT(Refusal(removed, other, 12 * kSecond), HasSubstr("services[kv].backends[x]"));
  v1::Config elsewhere = both;
  elsewhere.mutable_services(1)->set_vip("10.99.0.2");
  EXPECT_THAT(Refusal(removed, elsewhere, 12 * kSecond), HasSubstr("services[kv].backends[x]"));
  EXPECT_EQ(Text(Next(removed, other, 60 * kSecond), other), "dns=0: a=0/0 b=1/1 kv=1: x=2/0");
}

TEST(Roster, WhatARequestStillKnowsIsNotOver) {
  v1::Roster roster = Next({}, Config({{"dns", "abc"}, {"kv", "x"}}));
  roster = Next(roster, Config({{"dns", "b"}}), 10 * kSecond);
  const auto knows_a = [](uint32_t service, uint32_t places) { return service == 0 && (places & 0b001) != 0; };
  const RosterPart over = Over(roster, 100 * kSecond, knows_a);
  ASSERT_EQ(over.backends.size(), 2u);
  EXPECT_EQ(over.backends[0].name(), "c");
  EXPECT_EQ(over.backends[1].name(), "x");
  const auto knows_kv = [](uint32_t service, uint32_t) { return service == 1; };
  EXPECT_TRUE(Over(roster, 100 * kSecond, knows_kv).services.empty());
  EXPECT_TRUE(Over(roster, 23 * kSecond, Unknown).empty()) << "in the grace";
  EXPECT_FALSE(AnyRetired(Without(roster, Over(roster, 100 * kSecond, Unknown))));
}

TEST(Roster, ALongDeadlineIsALongGrace) {
  v1::Config config = Config({{"dns", "ab"}});
  config.mutable_services(0)->set_deadline_ns(20 * kSecond);
  v1::Roster roster = Next({}, config);
  config.mutable_services(0)->mutable_backends()->RemoveLast();
  roster = Next(roster, config, 10 * kSecond);
  // Sent in the last moment, expired after 20 s, and believed for 10 s more.
  EXPECT_TRUE(Over(roster, 40 * kSecond, Unknown).empty());
  EXPECT_FALSE(Over(roster, 43 * kSecond, Unknown).empty());
}

TEST(Roster, BackFromAReloadWhatItAddedIsRetiredAndWhatItRemovedIsThere) {
  const v1::Config config = Config({{"dns", "ab"}, {"kv", "x"}});
  const v1::Roster before = Next({}, config);
  const v1::Roster half_done = Next(before, Config({{"dns", "bc"}, {"new", "w"}}), 10 * kSecond);
  const v1::Roster all = Next(half_done, config, 11 * kSecond);
  EXPECT_EQ(Text(all, config), Text(before, config));
  EXPECT_EQ(FindService(all, "new"), nullptr);
  const RosterPart over = Over(all, 100 * kSecond, Unknown);
  ASSERT_EQ(over.services.size(), 1u);
  EXPECT_EQ(over.services[0].name(), "new");
  ASSERT_EQ(over.backends.size(), 2u) << "c and w";
  EXPECT_TRUE(Over(all, 24 * kSecond, Unknown).empty()) << "a request may have met them";
  // The same reload once more gives the same numbers.
  const v1::Config wanted = Config({{"dns", "bc"}, {"new", "w"}});
  EXPECT_EQ(Text(Next(all, wanted, 12 * kSecond), wanted), Text(half_done, wanted));
}

// Which endpoint has which numbers, retired ones included; a number that two have fails the test.
std::map<std::string, std::vector<uint32_t>> Holders(const v1::Roster& roster) {
  std::map<std::string, std::vector<uint32_t>> holders;
  std::set<uint32_t> services, backends;
  for (const v1::RosterService& service : roster.services()) {
    EXPECT_TRUE(services.insert(service.id()).second);
    std::set<uint32_t> slots;
    for (const v1::RosterBackend& backend : service.backends()) {
      EXPECT_TRUE(backends.insert(backend.id()).second);
      EXPECT_TRUE(slots.insert(backend.slot()).second);
      EXPECT_TRUE(backend.id() < kRoom.backends && backend.slot() < 8);
      holders[backend.address()] = {service.id(), backend.id(), backend.slot()};
    }
    EXPECT_LT(service.id(), kRoom.services);
  }
  return holders;
}

TEST(Roster, ThroughAnyReloadsNumbersAreKeptAndNeverHeldByTwo) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  v1::Roster roster;
  v1::Config config;
  int64_t now_ns = kSecond;
  int applied = 0, refused = 0, killed = 0;
  for (int step = 0; step < 5000; ++step) {
    now_ns += static_cast<int64_t>(random() % 6) * kSecond;
    std::vector<std::pair<std::string, std::string>> services;
    for (const auto& [name, all] : {std::pair("dns", "abcd"), {"kv", "efgh"}, {"ntp", "ijkl"}, {"tftp", "mnop"}}) {
      if (random() % 3 == 0) continue;
      std::string backends;
      for (const char* each = all; *each != 0; ++each)
        if (random() % 2 == 0) backends += *each;
      if (!backends.empty()) services.emplace_back(name, backends);
    }
    roster = Without(roster, Over(roster, now_ns, Unknown));
    const auto next = NextRoster(roster, Config(services), kRoom, now_ns);
    if (!next.ok()) {
      ++refused;
      continue;
    }
    const v1::Roster old = roster;
    roster = *next;
    if (random() % 5 == 0) {  // the daemon dies in the midst of it, and the next one goes back
      const auto back = NextRoster(roster, config, kRoom, now_ns);
      ASSERT_TRUE(back.ok()) << back.status();
      roster = *back;
      ++killed;
    } else {
      config = Config(services);
      ++applied;
    }
    const auto after = Holders(roster);
    const auto kept = Holders(old);
    for (const auto& [address, numbers] : kept) {
      ASSERT_TRUE(after.contains(address)) << "forgotten before its time";
      ASSERT_EQ(after.at(address), numbers) << "another number while requests may know the first";
    }
  }
  EXPECT_GT(applied, 1000);
  EXPECT_GT(refused, 10) << "there was always room: nothing was tested";
  EXPECT_GT(killed, 200);
}

TEST(Roster, ThereIsRoomForSoManyAndNoMore) {
  const v1::Roster roster = Next({}, Config({{"dns", "abcdefgh"}, {"kv", "x"}}));
  EXPECT_THAT(Refusal(roster, Config({{"dns", "bcdefghi"}, {"kv", "x"}})),
              HasSubstr("room for 8 backends in a service"));
  EXPECT_THAT(Refusal(roster, Config({{"dns", "abcdefgh"}, {"kv", "xyzw"}, {"new", "m"}})),
              HasSubstr("services[new].backends[m]: there is room for 12 backends in all"));
  EXPECT_THAT(Refusal(roster, Config({{"one", "1"}, {"two", "2"}})), HasSubstr("room for 3 services"));
}

// A request that it may answer is known for longer than was thought: the time is over, and it is still there.
TEST(Roster, WhatIsLeftIsNeverLessThanNothing) {
  const v1::Roster both = Next({}, Config({{"one", "ab"}, {"two", "c"}}));
  const v1::Roster without = Next(both, Config({{"one", "a"}, {"two", "c"}}));
  EXPECT_THAT(Refusal(without, Config({{"one", "a"}, {"two", "cb"}}), 1000 * kSecond),
              HasSubstr("whose requests it may still answer for 1s"));
}

TEST(Roster, AServiceThatComesBackIsTheSameOneWithOtherKeysThatJudgeNoAnswer) {
  const auto with = [](const std::function<void(v1::Profile&)>& change) {
    v1::Config config = Config({{"dns", "a"}});
    config.mutable_services(0)->set_profile("raw");
    change(*config.mutable_services(0)->mutable_raw());
    return config;
  };
  const auto comes_back = [&](const v1::Config& before, const v1::Config& again) {
    const v1::Roster removed = Next(Next({}, before), Config({}), 2 * kSecond);
    const auto roster = NextRoster(removed, again, kRoom, 3 * kSecond);
    return roster.ok() ? Text(*roster, again) : "refused";
  };
  const v1::Config plain = with([](v1::Profile& raw) { raw.set_request_length(4); });
  const v1::Config other = with([](v1::Profile& raw) {
    raw.set_request_length(4);
    raw.mutable_check()->set_bytes("00");
    raw.add_must_share("keys");
    raw.add_not_idempotent("incr");
    raw.add_operations()->set_name("get");
  });
  EXPECT_EQ(comes_back(plain, other), "dns=0: a=0/0");
  EXPECT_EQ(comes_back(plain, with([](v1::Profile& raw) { raw.set_request_length(2); })), "refused")
      << "answers are paired otherwise";
}

TEST(Roster, AVipIsKnownUntilTheLastServiceThatHadItIsForgotten) {
  v1::Config config = Config({{"short", "a"}, {"long", "b"}});
  config.mutable_services(1)->set_deadline_ns(30 * kSecond);
  v1::Roster roster = Next(Next({}, config), Config({}), 2 * kSecond);
  const RosterPart first = Over(roster, 20 * kSecond, Unknown);
  ASSERT_EQ(first.services.size(), 1u);
  roster = Without(roster, first);
  EXPECT_TRUE(HasVip(roster, "10.99.0.1"));
  EXPECT_FALSE(HasVip(Without(roster, Over(roster, 60 * kSecond, Unknown)), "10.99.0.1"));
}

}  // namespace
}  // namespace hedgerow
