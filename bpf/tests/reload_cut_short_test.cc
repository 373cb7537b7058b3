// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// A reload that ends before any of its writes, as by an error or by the daemon's death, can be undone to the
// byte; and so can one whose undoing ends half-way.
#include "bpf/tests/reconfigure_fixture.h"

namespace hedgerow::packets {
namespace {

class ReloadCutShortTest : public ReconfigureTest {
 protected:
  // Some of everything: one service comes, one goes; of another its leader goes, somebody comes and settings
  // change; a cluster's key is another, and another service's cluster is another one.
  static DataPlaneSpec Wanted(const DataPlaneSpec& old) {
    DataPlaneSpec next = old;
    ServiceSpec& raw = next.services[kRaw4Service];
    raw.backends.erase(raw.backends.begin());
    raw.backends.push_back(Another(raw, "10.77.0.14", 40, 3));
    raw.delay_ns = kMillisecond;
    raw.dry_run = true;
    raw.profile.one_datagram = 1;
    next.services[kHkv4Service].cluster = ClusterSpec{kOtherCluster, kKey6, 0, kAnnouncePort};
    next.services[kHkv6Service].cluster->key = kKey4;
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
  // Before its write of this number (from 1) the reload ends. False: there are not so many.
  bool EndsBefore(int number, const DataPlaneSpec& next, const std::vector<RetiredService>& retired) {
    int writes = 0;
    plane().OnWrite([&](absl::string_view) {
      Announce(Seal(Leading(kOtherCluster, kA4, kHkvPort, 900, ++announced_), kKey6));
      return ++writes == number ? absl::UnavailableError("cut short") : absl::OkStatus();
    });
    const absl::Status status = plane().Reconfigure(next, retired);
    plane().OnWrite(nullptr);
    EXPECT_EQ(status.ok(), writes < number) << status;
    EXPECT_TRUE(status.ok() || absl::IsInternal(status)) << status;
    return !status.ok();
  }
  // The places that nobody has keep their numbers until somebody gets them.
  std::vector<std::map<Bytes, Bytes>> Comparable() {
    volatile hr_service& raw = ServiceConfig(kRaw4Service);
    raw.backends[3] = 0;
    raw.backend_count = 3;
    raw.absent = 0;
    return Configured();
  }

  static constexpr uint64_t kOtherCluster = 9;  // which is in a later term
  uint64_t announced_ = 0;
  static constexpr char kNewVip[] = "10.99.0.77";
  static constexpr uint32_t kNewService = 12;
};

TEST_F(ReloadCutShortTest, WhereverItEndsItIsUndoneToTheByte) {
  const DataPlaneSpec old = Numbered();
  const DataPlaneSpec next = Wanted(old);
  ASSERT_TRUE(plane().SetDryRun("raw6", true).ok());
  ASSERT_TRUE(plane().SetDryRun("raw4", true).ok()) << "as the other configuration says as well";
  ASSERT_TRUE(plane().SetDrained("raw4", "a", true).ok());
  ASSERT_TRUE(plane().PinLeader("raw4", "a").ok());
  const auto before = Comparable();
  const RetiredService once = {kOnceService, kOnce4, kRawPort};
  const RetiredService added = {kNewService, kNewVip, kRawPort};
  int number = 1;
  for (;; ++number) {
    SCOPED_TRACE(testing::Message() << "ended before write " << number);
    const auto choices = plane().Choices();
    ASSERT_TRUE(choices.ok()) << choices.status();
    if (!EndsBefore(number, next, {once})) break;
    // The undoing, too, ends somewhere on its way.
    ASSERT_TRUE(plane().Assume(next).ok());
    EndsBefore(1 + number * 7 % 40, old, {added});
    ASSERT_TRUE(plane().Assume(next).ok());
    Reconfigure(old, {added});
    ASSERT_TRUE(plane().Choose(*choices).ok());
    const absl::Status forgotten =
        plane().Forget({added}, {{40, "10.77.0.14", kRawPort}, {41, "10.77.0.15", kRawPort}});
    ASSERT_TRUE(forgotten.ok()) << forgotten;
    ASSERT_EQ(Comparable(), before);
    const hr_leader_view leader = LeaderOf(kRaw4Service);
    ASSERT_TRUE(leader.pinned == 1 && leader.leader == 0);
    AnnounceLeader(kB4, static_cast<uint64_t>(number) + 1);
    ASSERT_EQ(LeaderOf(kHkv4Service).leader, 1) << "what another cluster has said is forgotten";
  }
  EXPECT_GT(number, 20) << "few writes for so many changes";
  EXPECT_NE(Configured()[0], before[0]) << "the last one came to its end";
}

// One daemon dies when the other cluster has spoken already, and the next one when the name of the first
// cluster stands there again, but not yet its leader.
TEST_F(ReloadCutShortTest, WhatAnotherClusterHasSaidIsForgottenHoweverOftenItEnds) {
  const DataPlaneSpec old = Numbered();
  DataPlaneSpec next = old;
  next.services[kHkv4Service].cluster = ClusterSpec{kOtherCluster, kKey6, 0, kAnnouncePort};
  // By which of its writes a reload moves that service's leader: one for each service before it.
  const auto moves_at = [&](const DataPlaneSpec& spec) {
    int writes = 0, at = 0;
    uint32_t leaders = 0;
    plane().OnWrite([&](absl::string_view what) {
      ++writes;
      if (what == "leaders" && leaders++ == kHkv4Service) at = writes;
      return absl::OkStatus();
    });
    Reconfigure(spec);
    plane().OnWrite(nullptr);
    return at;
  };
  const int there_at = moves_at(next), back_at = moves_at(old);
  ASSERT_TRUE(EndsBefore(there_at + 1, next, {}));
  ASSERT_EQ(LeaderOf(kHkv4Service).term, 900u) << "the other cluster was not heard";
  ASSERT_TRUE(plane().Assume(next).ok());
  ASSERT_TRUE(EndsBefore(back_at, old, {}));
  ASSERT_EQ(ServiceConfig(kHkv4Service).cluster_id, kCluster4);
  ASSERT_TRUE(plane().Assume(next).ok());
  Reconfigure(old);
  AnnounceLeader(kB4, 5);
  EXPECT_EQ(LeaderOf(kHkv4Service).leader, 1);
}

// No room for one more VIP, as if the kernel had none.
TEST_F(ReloadCutShortTest, AMapThatIsFullEndsItAndItIsUndone) {
  std::vector<hr_endpoint> junk;
  const size_t vips = Entries(skeleton()->maps.vips).size();
  for (uint32_t i = 0; vips + i < HR_MAX_SERVICES; ++i) {
    hr_endpoint& endpoint = junk.emplace_back();
    endpoint.port_be = static_cast<uint16_t>(i);
    ASSERT_TRUE(UpdateElement(skeleton()->maps.vips, &endpoint, &i).ok());
  }
  const auto before = Comparable();
  const DataPlaneSpec old = Numbered();
  const DataPlaneSpec next = Wanted(old);
  const RetiredService added = {kNewService, kNewVip, kRawPort};
  ASSERT_EQ(plane().Reconfigure(next, {{kOnceService, kOnce4, kRawPort}}).code(), absl::StatusCode::kInternal)
      << "the fault was not planted";
  ASSERT_NE(Configured()[0], before[0]) << "it was to fail half-way";
  ASSERT_TRUE(plane().Assume(next).ok());
  Reconfigure(old, {added});
  EXPECT_EQ(SentTo(RawRequest(1)), kA4);
  ASSERT_TRUE(plane().Forget({added}, {{40, "10.77.0.14", kRawPort}, {41, "10.77.0.15", kRawPort}}).ok());
  EXPECT_EQ(Comparable(), before);
}

}  // namespace
}  // namespace hedgerow::packets
