// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// A reload that ends before any of its writes: after an error the configuration before holds, and after the daemon's
// death the next reload reaches what it is given, to the byte; and so it does when that one ends half-way.
#include "bpf/tests/reconfigure_fixture.h"

namespace hedgerow::packets {
namespace {

class ReloadCutShortTest : public ReconfigureTest {
 protected:
  // Some of everything: one service comes, one goes; of another its leader goes, somebody comes and settings
  // change; a cluster's key is another, and another service's cluster is another one.
  static DataPlaneSpec Wanted(const DataPlaneSpec &old) {
    DataPlaneSpec next = old;
    ServiceSpec &raw = next.services[kRaw4Service];
    raw.backends.erase(raw.backends.begin());
    raw.backends.push_back(Another(raw, "10.77.0.14", 40, 3));
    raw.config.delay_ns = kMillisecond;
    raw.config.switches = HR_SWITCH_DRY_RUN;
    raw.config.profile.one_datagram = 1;
    next.services[kHkv4Service].cluster = ClusterSpec{kOtherCluster, {kKey6}, 0, kAnnouncePort};
    next.services[kHkv6Service].cluster->keys = {kKey4};
    ServiceSpec added = raw;
    added.name = "new";
    added.vip = kNewVip;
    added.id = kNewService;
    added.backends = {Another(added, "10.77.0.15", 41, 0)};
    added.primary = 0;
    next.services.push_back(added);
    next.services.erase(next.services.begin() + kOnceService);
    return next;
  }
  // The reload ends before its write of this number (from 1). As by a kill nothing is written afterwards, or as by an
  // error it can be undone. False: there are not so many writes.
  enum class End { kKilled, kError };
  bool EndsBefore(int number, const DataPlaneSpec &next, End end = End::kKilled) {
    int writes = 0;
    plane().config().OnWrite([&](absl::string_view) {
      Announce(Seal(Leading(kOtherCluster, kA4, kHkvPort, 900, ++announced_), kKey6));
      ++writes;
      const bool fails = end == End::kKilled ? writes >= number : writes == number;
      return fails ? absl::UnavailableError("cut short") : absl::OkStatus();
    });
    const absl::Status status = plane().config().Reconfigure(next);
    plane().config().OnWrite(nullptr);
    EXPECT_EQ(status.ok(), writes < number) << status;
    EXPECT_TRUE(status.ok() || absl::IsInternal(status)) << status;
    return !status.ok();
  }
  void Forget() {
    const absl::Status forgotten = plane().config().Forget(
        {{kNewService, kNewVip, kRawPort}}, {{40, "10.77.0.14", kRawPort}, {41, "10.77.0.15", kRawPort}});
    ASSERT_TRUE(forgotten.ok()) << forgotten;
  }
  // The place that no backend has keeps its number until a backend gets it.
  std::vector<std::map<Bytes, Bytes>> Comparable() {
    for (uint32_t generation = 0; generation < HR_GENERATIONS; ++generation) {
      ServiceConfig(kRaw4Service).backends[3] = 0;
      Published() = Published() ^ 1;
    }
    return Configured();
  }

  static constexpr uint64_t kOtherCluster = 9;  // which is in a later term
  uint64_t announced_ = 0;
  static constexpr char kNewVip[] = "10.99.0.77";
  static constexpr uint32_t kNewService = 12;
};

TEST_F(ReloadCutShortTest, WhereverItIsKilledTheNextOneReachesWhatItIsGiven) {
  const DataPlaneSpec old = WithIds();
  const DataPlaneSpec next = Wanted(old);
  const auto before = Configured();
  Reconfigure(next);
  const auto wanted = Configured();
  Reconfigure(old);
  Forget();
  ASSERT_EQ(Comparable(), before);
  int number = 1;
  for (;; ++number) {
    SCOPED_TRACE(testing::Message() << "killed before write " << number);
    if (!EndsBefore(number, next)) break;
    // The next one ends somewhere on its way, too, and the one after it is given either of the two.
    EndsBefore(1 + number * 7 % 40, old);
    if (number % 2 == 0) {
      Reconfigure(next);
      ASSERT_EQ(Configured(), wanted);
    }
    Reconfigure(old);
    Forget();
    ASSERT_EQ(Comparable(), before);
    AnnounceLeader(kB4, static_cast<uint64_t>(number) + 1);
    ASSERT_EQ(LeaderOf(kHkv4Service).leader, 1) << "what another cluster has said is forgotten";
  }
  EXPECT_GT(number, 20) << "few writes for so many changes";
}

// An error before the caller lets traffic in, or his own, leaves everything as it was, an administrator's choices too.
TEST_F(ReloadCutShortTest, AfterAnErrorTheConfigurationBeforeHoldsWithAnAdministratorsChoices) {
  const DataPlaneSpec old = WithIds();
  const DataPlaneSpec next = Wanted(old);
  ASSERT_TRUE(plane().policy().SetDryRun("raw6", true).ok());
  ASSERT_TRUE(plane().policy().SetDryRun("raw4", true).ok()) << "as the other configuration says as well";
  ASSERT_TRUE(plane().policy().SetDrained("raw4", "a", true).ok());
  ASSERT_TRUE(plane().policy().PinLeader("raw4", "a").ok());
  int lets_in_at = 0;
  plane().config().OnWrite([&](absl::string_view) { return ++lets_in_at, absl::OkStatus(); });
  ASSERT_FALSE(plane()
                   .config()
                   .Reconfigure(next,
                                [&] {
                                  plane().config().OnWrite(nullptr);
                                  return absl::UnavailableError("no route");
                                })
                   .ok());
  const auto before = [&] {
    Reconfigure(old);
    Forget();
    return Comparable();
  }();
  ASSERT_GT(lets_in_at, 10);
  for (int number = 1; number <= lets_in_at; ++number) {
    SCOPED_TRACE(testing::Message() << "an error before write " << number);
    ASSERT_TRUE(EndsBefore(number, next, End::kError));
    EXPECT_EQ(SentTo(RawRequest(1)), kB4) << "a is drained";
    const RunResult early = Split(RawRequest(1, kNewVip));  // there is no service yet, and perhaps the VIP
    EXPECT_TRUE(early.verdict == kUntouched || early.changes.contains("host.refusals"));
    Reconfigure(old);
    Forget();
    ASSERT_EQ(Comparable(), before);
    const hr_leader_view leader = LeaderOf(kRaw4Service);
    ASSERT_TRUE(leader.pinned == 1 && leader.leader == 0);
  }
}

// One is killed when the other cluster has spoken already, and the next one when the name of the first cluster stands
// there again, but not yet its leader.
TEST_F(ReloadCutShortTest, WhatAnotherClusterHasSaidIsForgottenHoweverOftenItEnds) {
  const DataPlaneSpec old = WithIds();
  DataPlaneSpec next = old;
  next.services[kHkv4Service].cluster = ClusterSpec{kOtherCluster, {kKey6}, 0, kAnnouncePort};
  const auto killed_before = [&](absl::string_view write, const DataPlaneSpec &spec) {
    bool published = false, dead = false;
    plane().config().OnWrite([&](absl::string_view what) {
      Announce(Seal(Leading(kOtherCluster, kA4, kHkvPort, 900, ++announced_), kKey6));
      dead = dead || (published && what == write);
      published = published || what == "generation";
      return dead ? absl::UnavailableError("cut short") : absl::OkStatus();
    });
    EXPECT_FALSE(plane().config().Reconfigure(spec).ok());
    plane().config().OnWrite(nullptr);
  };
  killed_before("policies", next);
  ASSERT_EQ(LeaderOf(kHkv4Service).term, 900u) << "the other cluster was not heard";
  for (int times = 0; times < 3; ++times) {
    killed_before("leaders", old);
    ASSERT_EQ(ServiceConfig(kHkv4Service).cluster_id, kCluster4);
  }
  Reconfigure(old);
  AnnounceLeader(kB4, 5);
  EXPECT_EQ(LeaderOf(kHkv4Service).leader, 1);
}

// No room for one more VIP, as if the kernel had none.
TEST_F(ReloadCutShortTest, AMapThatIsFullEndsItAndItIsUndone) {
  const auto before = Configured();
  std::vector<hr_endpoint> junk;
  const size_t vips = Entries(skeleton()->maps.vips).size();
  for (uint32_t i = 0; vips + i < HR_MAX_SERVICES; ++i) {
    hr_endpoint &endpoint = junk.emplace_back();
    endpoint.port_be = static_cast<uint16_t>(i);
    ASSERT_TRUE(UpdateElement(skeleton()->maps.vips, &endpoint, &i).ok());
  }
  const DataPlaneSpec old = WithIds();
  ASSERT_EQ(plane().config().Reconfigure(Wanted(old)).code(), absl::StatusCode::kInternal)
      << "the fault was not planted";
  EXPECT_EQ(SentTo(RawRequest(1)), kA4);
  Reconfigure(old);
  Forget();
  EXPECT_EQ(Comparable(), before);
}

}  // namespace
}  // namespace hedgerow::packets
