// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// CONTROL and WATCHDOG: the leader map changes in the order (cluster epoch, term, sequence) and by nothing
// else, pins survive publications, and a clock that lost its packet while nobody sends is started again.
#include <cstring>

#include "bpf/tests/kernel_fixture.h"
#include "proxy.skel.h"

namespace hedgerow::packets {
namespace {

class ControlTest : public PacketTest {
 protected:
  int Control(const hr_control_request &request) {
    Bytes frame(kEthernetBytes + sizeof(request));
    memcpy(frame.data() + kEthernetBytes, &request, sizeof(request));
    return Run(skeleton()->progs.hr_control, frame, {}).verdict;
  }
  int Publish(uint64_t cluster_epoch, uint64_t term, uint64_t sequence, uint32_t leader,
              uint32_t service = kRaw4Service) {
    hr_control_request request{};
    request.operation = HR_CONTROL_PUBLISH;
    request.service = service;
    request.cluster_epoch = cluster_epoch;
    request.term = term;
    request.sequence = sequence;
    request.leader = leader;
    return Control(request);
  }
  int Change(uint32_t operation, uint32_t leader, uint32_t service = kRaw4Service) {
    hr_control_request request{};
    request.operation = operation;
    request.service = service;
    request.leader = leader;
    return Control(request);
  }
  // Another configuration with this primary, and without the backends in `absent`.
  int Configure(uint32_t primary, uint32_t absent = 0, uint64_t forget = 0, uint32_t service = kRaw4Service) {
    ServiceConfig(service).primary = static_cast<uint8_t>(primary);
    ServiceConfig(service).present = static_cast<uint8_t>(0b111 & ~absent);
    hr_control_request request{};
    request.operation = HR_CONTROL_CONFIGURE;
    request.service = service;
    request.sequence = forget;
    return Control(request);
  }
  hr_leader_view Leader(uint32_t service = kRaw4Service) { return LeaderOf(service); }
  int Watchdog() { return Run(skeleton()->progs.hr_watchdog, Bytes(60), {}).verdict; }
};

TEST_F(ControlTest, OnlyAHigherPublicationReplaces) {
  EXPECT_EQ(Publish(0, 0, 1, 1), HR_CONTROL_STALE) << "the configured primary has sequence 1";
  EXPECT_EQ(Publish(0, 0, 2, 1), HR_CONTROL_DONE);
  EXPECT_EQ(Leader().leader, 1);
  EXPECT_EQ(Publish(0, 0, 2, 2), HR_CONTROL_STALE) << "the same again";
  EXPECT_EQ(Publish(0, 5, 1, 2), HR_CONTROL_DONE) << "a higher term, a lower sequence";
  EXPECT_EQ(Publish(0, 4, 900, 0), HR_CONTROL_STALE);
  EXPECT_EQ(Publish(1, 1, 1, 0), HR_CONTROL_DONE) << "a higher cluster epoch, a lower term";
  EXPECT_EQ(Publish(0, 900, 900, 1), HR_CONTROL_STALE);
  const hr_leader_view leader = Leader();
  EXPECT_EQ(leader.leader, 0);
  EXPECT_EQ(leader.published, 0);
  EXPECT_EQ(leader.cluster_epoch, 1u);
  EXPECT_EQ(leader.term, 1u);
  EXPECT_EQ(leader.sequence, 1u);
  EXPECT_NE(leader.updated_ns, 0u);
}

TEST_F(ControlTest, AnotherConfigurationsPrimaryLeadsUntilSomebodyIsAnnounced) {
  EXPECT_EQ(Configure(2), HR_CONTROL_DONE);
  EXPECT_EQ(Leader().leader, 2);
  EXPECT_EQ(Leader().published, 2);
  AnnounceLeader(kB4, 5);
  EXPECT_EQ(Configure(2, 0, 0, kHkv4Service), HR_CONTROL_DONE);
  EXPECT_EQ(Leader(kHkv4Service).leader, 1) << "the announced one leads on";
  EXPECT_EQ(Configure(2, 0b010, 0, kHkv4Service), HR_CONTROL_DONE) << "who is not there any more";
  EXPECT_EQ(Leader(kHkv4Service).leader, 2);
  EXPECT_EQ(Leader(kHkv4Service).term, 5u) << "older announcements stay older";
  EXPECT_EQ(Leader(kHkv4Service).announced_ns, 0u) << "nobody leads because he was announced";
  EXPECT_EQ(Configure(0, 0, 0, kHkv4Service), HR_CONTROL_DONE);
  EXPECT_EQ(Leader(kHkv4Service).leader, 0) << "so the next primary does";
  EXPECT_EQ(Configure(0, 0, 1, kHkv4Service), HR_CONTROL_DONE) << "another cluster";
  EXPECT_EQ(Leader(kHkv4Service).leader, 0);
  EXPECT_EQ(Leader(kHkv4Service).term, 0u);
  EXPECT_EQ(Leader(kHkv4Service).announced_ns, 0u);
  AnnounceLeader(kC4, 1);
  EXPECT_EQ(Change(HR_CONTROL_PIN, 7), HR_CONTROL_INVALID) << "there is no such backend";
}

TEST_F(ControlTest, AReloadThatMovesNoLeaderSaysNothingOfHim) {
  const uint64_t since_ns = Leader().updated_ns;
  EXPECT_EQ(Configure(0), HR_CONTROL_DONE);
  EXPECT_EQ(Leader().updated_ns, since_ns);
  EXPECT_EQ(Configure(1), HR_CONTROL_DONE);
  EXPECT_GT(Leader().updated_ns, since_ns);
}

TEST_F(ControlTest, WhoWasResigningAndIsRemovedIsNotResigningAnyMore) {
  AnnounceLeader(kB4, 5);
  hr_announcement resigning = Leading(kCluster4, kB4, kHkvPort, 5, 2);
  resigning.state = HR_ANNOUNCEMENT_RESIGNING;
  Announce(Seal(resigning, kKey4));
  ASSERT_EQ(Leader(kHkv4Service).resigning, 1);
  EXPECT_EQ(Configure(0, 0b010, 0, kHkv4Service), HR_CONTROL_DONE);
  EXPECT_EQ(Leader(kHkv4Service).leader, 0);
  EXPECT_EQ(Leader(kHkv4Service).resigning, 0);
}

TEST_F(ControlTest, APinHoldsOverAReloadAsLongAsItsBackendIsThere) {
  EXPECT_EQ(Change(HR_CONTROL_PIN, 1), HR_CONTROL_DONE);
  EXPECT_EQ(Configure(2), HR_CONTROL_DONE);
  EXPECT_EQ(Leader().leader, 1);
  EXPECT_EQ(Leader().pinned, 1);
  EXPECT_EQ(Configure(2, 0b010), HR_CONTROL_DONE);
  EXPECT_EQ(Leader().leader, 2);
  EXPECT_EQ(Leader().pinned, 0);
}

TEST_F(ControlTest, TheSplitterFollowsAPublication) {
  Publish(0, 1, 1, 2);
  EXPECT_EQ(
      Read(Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {1, 2, 3, 4}).Build()).packet).destination,
      kC4);
}

TEST_F(ControlTest, APinSurvivesPublicationsAndUnpinFollowsTheLastOne) {
  EXPECT_EQ(Change(HR_CONTROL_PIN, 1), HR_CONTROL_DONE);
  EXPECT_EQ(Publish(0, 1, 1, 2), HR_CONTROL_DONE);
  EXPECT_EQ(Leader().leader, 1);
  EXPECT_EQ(Leader().published, 2);
  EXPECT_EQ(Leader().pinned, 1);
  EXPECT_EQ(Change(HR_CONTROL_UNPIN, 0), HR_CONTROL_DONE);
  EXPECT_EQ(Leader().leader, 2);
  EXPECT_EQ(Leader().pinned, 0);
}

TEST_F(ControlTest, OneServicesLeaderIsNotAnothers) {
  Publish(0, 1, 1, 1, kDns4Service);
  EXPECT_EQ(Leader(kDns4Service).leader, 1);
  EXPECT_EQ(Leader(kDns6Service).leader, 0);
}

TEST_F(ControlTest, WhatMakesNoSenseIsRefused) {
  EXPECT_EQ(Publish(0, 1, 1, 3), HR_CONTROL_INVALID) << "three backends: 0, 1, 2";
  EXPECT_EQ(Publish(0, 1, 1, 0xffffffff), HR_CONTROL_INVALID);
  EXPECT_EQ(Change(HR_CONTROL_PIN, 1, kSingleService), HR_CONTROL_INVALID);
  EXPECT_EQ(Publish(0, 1, 1, 0, 63), HR_CONTROL_INVALID) << "no such service";
  EXPECT_EQ(Publish(0, 1, 1, 0, HR_MAX_SERVICES), HR_CONTROL_INVALID);
  EXPECT_EQ(Change(99, 0), HR_CONTROL_INVALID);
  EXPECT_EQ(Run(skeleton()->progs.hr_control, Bytes(kEthernetBytes + sizeof(hr_control_request) - 1), {}).verdict,
            HR_CONTROL_INVALID)
      << "cut short";
  EXPECT_EQ(Leader().leader, 0);
}

TEST_F(ControlTest, TheWatchdogLeavesAClockAtRestAlone) {
  EXPECT_EQ(Watchdog(), HR_CONTROL_STALE);
  EXPECT_EQ(Wheel().running, 0u);
  Clones(HR_MARK_LAP, 0);
}

TEST_F(ControlTest, TheWatchdogLeavesARunningClockAlone) {
  Split(DnsRequest4(1));
  EXPECT_EQ(Watchdog(), HR_CONTROL_STALE);
  EXPECT_EQ(Wheel().restarts, 0u);
  Clones(HR_MARK_LAP, 1);
}

TEST_F(ControlTest, TheWatchdogReplacesALostClockPacket) {
  Split(DnsRequest4(1));
  const uint32_t epoch = Wheel().epoch;
  Clones(HR_MARK_LAP, 1);
  Wheel().last_lap_ns = NowNs() - kSecond;
  EXPECT_EQ(Watchdog(), HR_CONTROL_DONE);
  EXPECT_EQ(Wheel().restarts, 1u);
  EXPECT_EQ(Wheel().epoch, epoch + 1);
  const std::vector<Captured> laps = Clones(HR_MARK_LAP, 1);
  ASSERT_EQ(laps.size(), 1u);
  EXPECT_EQ(HR_MARK_VALUE(laps[0].mark), epoch + 1);
}

TEST_F(ControlTest, TheWatchdogStartsAClockWhoseKickFailed) {
  ASSERT_TRUE(net::SetLinkDown("hr0c0").ok());
  Split(DnsRequest4(1));
  ASSERT_TRUE(net::SetLinkUp("hr0c0").ok());
  ASSERT_EQ(Wheel().running, 0u);
  const auto started = plane().object().CheckClock();
  ASSERT_TRUE(started.ok());
  EXPECT_TRUE(*started);
  EXPECT_EQ(Wheel().running, 1u);
  Clones(HR_MARK_LAP, 1);
}

}  // namespace
}  // namespace hedgerow::packets
