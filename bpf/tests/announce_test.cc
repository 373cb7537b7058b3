// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// REPLY, announcements: the leader map follows what a service's cluster has sealed for this proxy and nothing
// else; every refusal has its reason and changes nothing; what is not provably ours is left untouched. What
// becomes of the parked requests is in handover_test.cc.
#include "bpf/tests/checksum.h"
#include "bpf/tests/kernel_fixture.h"

namespace hedgerow::packets {
namespace {

using ::testing::Contains;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

class AnnounceTest : public PacketTest {
 protected:
  static hr_announcement ToC() { return Leading(kCluster4, kC4, kHkvPort, 5, 10); }
  static Bytes Sealed(const hr_announcement &announcement) { return Seal(announcement, kKey4); }

  // It is left alone for the stack, counted under `reason` of nobody's, and the map stays.
  void ExpectUntouched(const Bytes &datagram, const char *reason) {
    const hr_leader_view before = LeaderOf(kHkv4Service);
    const RunResult run = Announce(datagram);
    EXPECT_EQ(run.verdict, kUntouched);
    EXPECT_THAT(run.changes, UnorderedElementsAre(Pair(reason, 1)));
    ExpectSame(before);
  }
  // It is consumed, counted under `reason`, and the map stays.
  void ExpectRefused(const Bytes &datagram, const char *reason) {
    const hr_leader_view before = LeaderOf(kHkv4Service);
    const RunResult run = Announce(datagram);
    EXPECT_EQ(run.verdict, kDropped);
    EXPECT_THAT(run.changes, UnorderedElementsAre(Pair(reason, 1)));
    ExpectSame(before);
  }
  void ExpectSame(const hr_leader_view &before) {
    const hr_leader_view after = LeaderOf(kHkv4Service);
    EXPECT_EQ(memcmp(&before, &after, sizeof(after)), 0);
  }
  std::string LeaderOfNextRequest() { return Read(Split(HkvRequest4(++seq_)).packet).destination; }

  uint64_t seq_ = 0;
};

TEST_F(AnnounceTest, TheConfiguredPrimaryLeadsUntilTheFirstAnnouncement) {
  EXPECT_EQ(LeaderOfNextRequest(), kA4);
  EXPECT_EQ(LeaderOf(kHkv4Service).announced_ns, 0u);
}

TEST_F(AnnounceTest, AnAnnouncementMovesTheLeader) {
  const uint64_t before_ns = NowNs();
  const RunResult run = Announce(Sealed(ToC()));
  EXPECT_EQ(run.verdict, kDropped) << "consumed";
  EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("hkv4:announce_accepted", 1), Pair("hkv4.leader_changes", 1)));
  const hr_leader_view leader = LeaderOf(kHkv4Service);
  EXPECT_EQ(leader.leader, 2);
  EXPECT_EQ(leader.published, 2);
  EXPECT_EQ(leader.cluster_epoch, 0u);
  EXPECT_EQ(leader.term, 5u);
  EXPECT_EQ(leader.sequence, 10u);
  EXPECT_GE(leader.updated_ns, before_ns);
  EXPECT_EQ(leader.announced_ns, leader.updated_ns);
  EXPECT_EQ(leader.since_ns, leader.updated_ns);
  EXPECT_EQ(LeaderOfNextRequest(), kC4);
}

TEST_F(AnnounceTest, WorksOverIpv6ForAnotherClusterInItsOwnEpoch) {
  hr_announcement announcement = Leading(kCluster6, kB6, kHkvPort, 1, 1);
  announcement.cluster_epoch = kEpoch6;
  const RunResult run = Announce(Seal(announcement, kKey6), /*ipv6=*/true);
  EXPECT_EQ(run.verdict, kDropped);
  EXPECT_THAT(run.changes, Contains(Pair("hkv6:announce_accepted", 1)));
  EXPECT_EQ(LeaderOf(kHkv6Service).leader, 1);
  EXPECT_EQ(LeaderOf(kHkv6Service).cluster_epoch, kEpoch6);
  EXPECT_EQ(LeaderOf(kHkv4Service).leader, 0) << "one cluster's leader is not another's";
}

TEST_F(AnnounceTest, ALeaderOfOneFamilyMayBeAnnouncedOverTheOther) {
  EXPECT_THAT(Announce(Sealed(ToC()), /*ipv6=*/true).changes, Contains(Pair("hkv4:announce_accepted", 1)));
}

// ---- What is not provably for this proxy
// -------------------------------------------------------------------------

TEST_F(AnnounceTest, WhatIsNoAnnouncementIsSomebodyElses) {
  Bytes other = Sealed(ToC());
  other[0] ^= 1;
  for (const Bytes &datagram : {other, Bytes{}, Bytes{0x48, 0x52, 0x41}, Text("anything at all")}) {
    const RunResult run = Announce(datagram);
    EXPECT_EQ(run.verdict, kUntouched);
    EXPECT_THAT(run.changes, IsEmpty());
  }
}

TEST_F(AnnounceTest, AnotherPortIsNotAnAnnouncements) {
  const RunResult run = Reply(PacketBuilder(kB4, kClient4).Udp(4802, kAnnouncePort + 1, Sealed(ToC())).Build());
  EXPECT_EQ(run.verdict, kUntouched);
  EXPECT_THAT(run.changes, IsEmpty());
  EXPECT_EQ(Reply(PacketBuilder(kB4, kClient4).Tcp(4802, kAnnouncePort, kTcpAck, Sealed(ToC())).Build()).verdict,
            kUntouched);
  EXPECT_EQ(LeaderOf(kHkv4Service).leader, 0);
}

TEST_F(AnnounceTest, AFragmentIsNoAnnouncement) {
  for (const Bytes &fragment :
       PacketBuilder(kB4, kClient4).Udp(4802, kAnnouncePort, Sealed(ToC())).BuildFragments(56, 7)) {
    EXPECT_EQ(Reply(fragment).verdict, kUntouched);
  }
  EXPECT_EQ(LeaderOf(kHkv4Service).leader, 0);
}

TEST_F(AnnounceTest, AnotherLengthIsUntouched) {
  const Bytes sound = Sealed(ToC());
  for (const size_t bytes : {4, 16, 103})
    ExpectUntouched(Bytes(sound.begin(), sound.begin() + bytes), "host:announce_length");
  Bytes longer = sound;
  longer.push_back(0);
  ExpectUntouched(longer, "host:announce_length");
  longer.resize(1200);
  ExpectUntouched(longer, "host:announce_length");
  hr_announcement lies = ToC();
  lies.bytes = 103;
  ExpectUntouched(Sealed(lies), "host:announce_length");
}

TEST_F(AnnounceTest, AnotherVersionIsUntouched) {
  for (const uint8_t version : {0, 2, 255}) {
    hr_announcement other = ToC();
    other.version = version;
    ExpectUntouched(Sealed(other), "host:announce_version");
  }
}

TEST_F(AnnounceTest, AnotherClusterIsUntouched) {
  for (const uint64_t id : {uint64_t{0}, uint64_t{9}, kCluster4 << 32}) {
    hr_announcement other = ToC();
    other.cluster_id = id;
    ExpectUntouched(Sealed(other), "host:announce_cluster");
  }
}

TEST_F(AnnounceTest, AnotherKeyIsUntouched) {
  ExpectUntouched(Seal(ToC(), kKey6), "host:announce_tag");
  ExpectUntouched(Seal(ToC(), {kKey4.k1, kKey4.k0}), "host:announce_tag");
  hr_announcement theirs = Leading(kCluster6, kB6, kHkvPort, 5, 10);
  theirs.cluster_epoch = kEpoch6;
  ExpectUntouched(Seal(theirs, kKey4), "host:announce_tag");
}

TEST_F(AnnounceTest, NoBitOfItCanBeChanged) {
  const hr_leader_view before = LeaderOf(kHkv4Service);
  const Bytes sound = Sealed(ToC());
  for (size_t bit = 0; bit < sound.size() * 8; ++bit) {
    Bytes changed = sound;
    changed[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    EXPECT_EQ(Announce(changed).verdict, kUntouched) << "bit " << bit;
  }
  ExpectSame(before);
  EXPECT_EQ(Announce(sound).verdict, kDropped);
}

// ---- What is for this proxy, and refused
// --------------------------------------------------------------------------

TEST_F(AnnounceTest, OnlyTheClusterEpochThatTheAdministratorAcceptsCounts) {
  for (const uint64_t epoch : {uint64_t{1}, ~uint64_t{0}}) {
    hr_announcement other = ToC();
    other.cluster_epoch = epoch;
    ExpectRefused(Sealed(other), "host:announce_epoch");
  }
  hr_announcement older = Leading(kCluster6, kB6, kHkvPort, 5, 10);
  older.cluster_epoch = kEpoch6 - 1;
  EXPECT_THAT(Announce(Seal(older, kKey6)).changes, UnorderedElementsAre(Pair("host:announce_epoch", 1)));
  EXPECT_EQ(LeaderOf(kHkv6Service).leader, 0);
}

TEST_F(AnnounceTest, TheLeaderMustBeABackendOfAServiceOfThatCluster) {
  for (const hr_announcement &other :
       {Leading(kCluster4, "10.77.0.99", kHkvPort, 5, 10), Leading(kCluster4, kC4, kHkvPort + 1, 5, 10),
        Leading(kCluster4, kA4, 53, 5, 10) /* of dns4, which has no cluster */,
        Leading(kCluster4, kB6, kHkvPort, 5, 10) /* of another cluster's service */})
    ExpectRefused(Sealed(other), "host:announce_endpoint");
  EXPECT_EQ(LeaderOf(kHkv6Service).leader, 0);
  EXPECT_EQ(LeaderOf(kDns4Service).leader, 0);
}

TEST_F(AnnounceTest, AStateThatIsNotKnownIsRefused) {
  for (const uint8_t state : {0, 3, 255}) {
    hr_announcement other = ToC();
    other.state = state;
    ExpectRefused(Sealed(other), "hkv4:announce_state");
  }
}

TEST_F(AnnounceTest, AReplayChangesNothing) {
  const Bytes first = Sealed(Leading(kCluster4, kB4, kHkvPort, 4, 900));
  const Bytes second = Sealed(Leading(kCluster4, kC4, kHkvPort, 5, 10));
  Announce(first);
  ExpectRefused(first, "hkv4:announce_stale");
  Announce(second);
  ExpectRefused(first, "hkv4:announce_stale");
  ExpectRefused(second, "hkv4:announce_stale");
  EXPECT_EQ(LeaderOf(kHkv4Service).leader, 2);
}

TEST_F(AnnounceTest, TheOrderIsTermThenSequence) {
  Announce(Sealed(Leading(kCluster4, kC4, kHkvPort, 5, 10)));
  ExpectRefused(Sealed(Leading(kCluster4, kB4, kHkvPort, 4, 1000)), "hkv4:announce_stale");
  ExpectRefused(Sealed(Leading(kCluster4, kB4, kHkvPort, 5, 9)), "hkv4:announce_stale");
  ExpectRefused(Sealed(Leading(kCluster4, kB4, kHkvPort, 5, 10)), "hkv4:announce_stale");
  ExpectRefused(Sealed(Leading(kCluster4, kB4, kHkvPort, 0, ~uint64_t{0})), "hkv4:announce_stale");
  EXPECT_THAT(Announce(Sealed(Leading(kCluster4, kC4, kHkvPort, 5, 11))).changes,
              UnorderedElementsAre(Pair("hkv4:announce_accepted", 1)))
      << "the same leader once more is no change";
  Announce(Sealed(Leading(kCluster4, kB4, kHkvPort, 6, 1)));
  EXPECT_EQ(LeaderOf(kHkv4Service).leader, 1);
}

TEST_F(AnnounceTest, ARepetitionRefreshesItsAgeAndNothingElse) {
  AnnounceLeader(kC4, 5, 1);
  const hr_leader_view first = LeaderOf(kHkv4Service);
  AnnounceLeader(kC4, 5, 2);
  const hr_leader_view second = LeaderOf(kHkv4Service);
  EXPECT_GT(second.announced_ns, first.announced_ns);
  EXPECT_EQ(second.since_ns, first.since_ns) << "it leads since the first";
  EXPECT_EQ(second.sequence, 2u);
}

TEST_F(AnnounceTest, AfterALeaderIsForgottenAnyTermCounts) {
  AnnounceLeader(kC4, 57);
  ExpectRefused(Sealed(Leading(kCluster4, kB4, kHkvPort, 1, 1)), "hkv4:announce_stale");
  ASSERT_TRUE(plane().policy().ForgetLeader("hkv4").ok());
  EXPECT_EQ(LeaderOf(kHkv4Service).leader, 0) << "the configured primary";
  EXPECT_THAT(Announce(Sealed(Leading(kCluster4, kB4, kHkvPort, 1, 1))).changes,
              testing::IsSupersetOf({Pair("hkv4:announce_accepted", 1)}));
  EXPECT_EQ(LeaderOf(kHkv4Service).leader, 1);
  EXPECT_EQ(LeaderOf(kHkv4Service).term, 1u);
}

// ---- Pins, health, resignation
// --------------------------------------------------------------------------------------

TEST_F(AnnounceTest, APinnedLeaderStaysAndUnpinningFollowsTheLastAnnouncement) {
  ASSERT_TRUE(plane().policy().PinLeader("hkv4", "n2").ok());
  EXPECT_THAT(Announce(Sealed(ToC())).changes, UnorderedElementsAre(Pair("hkv4:announce_accepted", 1)));
  EXPECT_EQ(LeaderOf(kHkv4Service).leader, 1);
  EXPECT_EQ(LeaderOf(kHkv4Service).published, 2);
  EXPECT_EQ(LeaderOfNextRequest(), kB4);
  ASSERT_TRUE(plane().policy().UnpinLeader("hkv4").ok());
  EXPECT_EQ(LeaderOfNextRequest(), kC4);
}

TEST_F(AnnounceTest, ANewLeaderIsTriedAtOnceWhateverItWasSilentAbout) {
  uint64_t term = 0;
  for (const hr_health health : {HR_SUSPECT, HR_DOWN}) {
    BackendState(kHkv4C).health = health;
    BackendState(kHkv4C).health_since_ns = NowNs();
    Silence(kHkv4C, 100 * kSecond);
    AnnounceLeader(kC4, ++term);
    EXPECT_EQ(BackendState(kHkv4C).health, HR_HEALTHY);
    const RunResult run = Split(HkvRequest4(health));
    EXPECT_EQ(Read(run.packet).destination, kC4);
    EXPECT_THAT(run.changes, UnorderedElementsAre(Pair("hkv4.requests", 1))) << "to it alone";
    AnnounceLeader(kA4, ++term);
  }
}

TEST_F(AnnounceTest, ARepeatedAnnouncementDoesNotHealASilentLeader) {
  AnnounceLeader(kC4, 5, 1);
  BackendState(kHkv4C).health = HR_DOWN;
  BackendState(kHkv4C).health_since_ns = NowNs();
  AnnounceLeader(kC4, 5, 2);
  EXPECT_EQ(BackendState(kHkv4C).health, HR_DOWN) << "it announces, and answers nobody";
  AnnounceLeader(kC4, 6, 1);
  EXPECT_EQ(BackendState(kHkv4C).health, HR_HEALTHY) << "elected anew";
}

TEST_F(AnnounceTest, AResigningLeaderIsSuspectedAndKeepsItsPlace) {
  AnnounceLeader(kC4, 5, 1);
  hr_announcement resigning = Leading(kCluster4, kC4, kHkvPort, 5, 2);
  resigning.state = HR_ANNOUNCEMENT_RESIGNING;
  EXPECT_THAT(Announce(Sealed(resigning)).changes,
              UnorderedElementsAre(Pair("hkv4:announce_accepted", 1), Pair("hkv4.suspected", 1)));
  EXPECT_EQ(LeaderOf(kHkv4Service).leader, 2) << "nobody better is known";
  EXPECT_EQ(LeaderOf(kHkv4Service).resigning, 1);
  EXPECT_THAT(Split(HkvRequest4(1)).changes, Contains(Pair("hkv4.failover_sends", 1))) << "both copies at once";
  Clones(HR_MARK_SEND, 1);
  // It was a false alarm.
  AnnounceLeader(kC4, 5, 3);
  EXPECT_EQ(LeaderOf(kHkv4Service).resigning, 0);
  EXPECT_EQ(BackendState(kHkv4C).health, HR_HEALTHY);
  EXPECT_THAT(Split(HkvRequest4(2)).changes, UnorderedElementsAre(Pair("hkv4.requests", 1)));
}

TEST_F(AnnounceTest, SomebodyElsesResignationMovesNobody) {
  AnnounceLeader(kC4, 5, 1);
  hr_announcement resigning = Leading(kCluster4, kB4, kHkvPort, 6, 1);
  resigning.state = HR_ANNOUNCEMENT_RESIGNING;
  EXPECT_THAT(Announce(Sealed(resigning)).changes, UnorderedElementsAre(Pair("hkv4:announce_accepted", 1)));
  EXPECT_EQ(LeaderOf(kHkv4Service).leader, 2);
  EXPECT_EQ(BackendState(kHkv4C).health, HR_HEALTHY);
  EXPECT_EQ(BackendState(kHkv4B).health, HR_HEALTHY);
  EXPECT_EQ(LeaderOf(kHkv4Service).term, 6u) << "an older leader's word counts no more";
}

// ---- The announce port is nobody's alone
// ----------------------------------------------------------------------------

TEST_F(AnnounceTest, AClientOnTheAnnouncePortGetsItsReplies) {
  Split(PacketBuilder(kClient4, kDns4).Udp(kAnnouncePort, kDnsPort, DnsQuery(1, "www.example.org")).Build());
  const RunResult run = Reply(
      PacketBuilder(kA4, kClient4).Udp(kDnsPort, kAnnouncePort, DnsAnswer(DnsQuery(1, "www.example.org"))).Build());
  EXPECT_EQ(run.verdict, kRedirected);
  EXPECT_THAT(run.changes, Contains(Pair("dns4.won_by_first", 1)));
}

TEST_F(AnnounceTest, SeveralPortsAreAwaited) {
  if (IsSkipped()) return;
  DataPlaneSpec spec = Spec();
  spec.services[kHkv6Service].cluster->announce_port = 5000;
  Start(spec);
  EXPECT_EQ(Reply(PacketBuilder(kB4, kClient4).Udp(4802, 5000, Sealed(ToC())).Build()).verdict, kDropped);
  EXPECT_EQ(Announce(Sealed(Leading(kCluster4, kB4, kHkvPort, 6, 1))).verdict, kDropped);
  EXPECT_EQ(LeaderOf(kHkv4Service).leader, 1);
}

TEST_F(AnnounceTest, WithoutAClusterNobodyIsHeard) {
  if (IsSkipped()) return;
  DataPlaneSpec spec = Spec();
  for (ServiceSpec &service : spec.services) service.cluster.reset();
  Start(spec);
  const RunResult run = Announce(Sealed(ToC()));
  EXPECT_EQ(run.verdict, kUntouched);
  EXPECT_THAT(run.changes, IsEmpty());
}

TEST_F(AnnounceTest, AClusterWithoutAKeyIsNotLoaded) {
  if (IsSkipped()) return;
  DataPlaneSpec spec = Spec();
  spec.services[kHkv4Service].cluster->keys.clear();
  EXPECT_EQ(KernelDataPlane::Load(spec).status().code(), absl::StatusCode::kInvalidArgument);
}

// ---- Keys that change
// ----------------------------------------------------------------------------------------------

constexpr hr_siphash_key kNextKey4 = {0x0123456789abcdef, 0xfedcba9876543210};

class AnnounceKeysTest : public AnnounceTest {
 protected:
  // Other tests share the programs, and have the one key.
  void TearDown() override {
    if (!IsSkipped()) Reload({kKey4});
    AnnounceTest::TearDown();
  }
  // A reload with these keys of hkv4's cluster.
  void Reload(const std::vector<hr_siphash_key> &keys) {
    DataPlaneSpec spec = plane().spec();
    spec.services[kHkv4Service].cluster->keys = keys;
    const absl::Status status = plane().config().Reconfigure(spec);
    ASSERT_TRUE(status.ok()) << status;
  }
  RunResult Say(const char *leader, uint64_t term, const hr_siphash_key &key, uint64_t sequence = 1) {
    return Announce(Seal(Leading(kCluster4, leader, kHkvPort, term, sequence), key));
  }
  void ExpectLeads(uint8_t place, uint64_t term) {
    EXPECT_EQ(LeaderOf(kHkv4Service).leader, place);
    EXPECT_EQ(LeaderOf(kHkv4Service).term, term);
  }
};

TEST_F(AnnounceKeysTest, WhileAKeyIsChangedBothAreBelievedInOneOrder) {
  if (IsSkipped()) return;
  Say(kB4, 5, kKey4);
  Reload({kKey4, kNextKey4});
  Say(kC4, 6, kNextKey4);
  ExpectLeads(2, 6);
  Say(kB4, 6, kKey4, 2);
  ExpectLeads(1, 6);
  ExpectRefused(Seal(Leading(kCluster4, kC4, kHkvPort, 5, 9), kNextKey4), "hkv4:announce_stale");
  ExpectRefused(Seal(Leading(kCluster4, kC4, kHkvPort, 6, 1), kKey4), "hkv4:announce_stale");
}

TEST_F(AnnounceKeysTest, ARemovedKeyIsBelievedNoMore) {
  if (IsSkipped()) return;
  Reload({kNextKey4, kKey4});
  Say(kB4, 5, kNextKey4);
  Reload({kNextKey4});
  ExpectUntouched(Seal(Leading(kCluster4, kC4, kHkvPort, 6, 1), kKey4), "host:announce_tag");
  Say(kC4, 6, kNextKey4);
  ExpectLeads(2, 6);
}

TEST_F(AnnounceKeysTest, WhatARemovedKeyAnnouncedOrdersNothing) {
  if (IsSkipped()) return;
  Say(kB4, 1'000'000, kKey4, ~uint64_t{0});
  Reload({kNextKey4});
  ExpectLeads(1, 1'000'000);
  Say(kC4, 8, kNextKey4);
  ExpectLeads(2, 8);
  ExpectRefused(Seal(Leading(kCluster4, kB4, kHkvPort, 7, 9), kNextKey4), "hkv4:announce_stale");
}

TEST_F(AnnounceKeysTest, TheOrderStaysIfTheKeyThatMadeItStays) {
  if (IsSkipped()) return;
  Reload({kKey4, kNextKey4});
  Say(kB4, 9, kNextKey4);
  Reload({kNextKey4});
  ExpectRefused(Seal(Leading(kCluster4, kC4, kHkvPort, 8, 1), kNextKey4), "hkv4:announce_stale");
}

// ---- Terms that are possible
// ----------------------------------------------------------------------------------------------

TEST_F(AnnounceKeysTest, TheFirstAnnouncementMayBeOfAnyTerm) {
  Say(kB4, ~uint64_t{0} - 5, kKey4);
  ExpectLeads(1, ~uint64_t{0} - 5);
}

TEST_F(AnnounceKeysTest, ATermThatElectionsCannotHaveReachedIsRefused) {
  Say(kB4, 5, kKey4);
  ExpectRefused(Seal(Leading(kCluster4, kC4, kHkvPort, ~uint64_t{0}, ~uint64_t{0}), kKey4), "hkv4:announce_term");
  // A minute allows for less than a million terms more.
  ExpectRefused(Seal(Leading(kCluster4, kC4, kHkvPort, 5 + 2 * HR_TERM_LEAP_MAX, 1), kKey4), "hkv4:announce_term");
  Say(kC4, 5 + HR_TERM_LEAP_MAX, kKey4);
  ExpectLeads(2, 5 + HR_TERM_LEAP_MAX);
}

TEST_F(AnnounceKeysTest, AProxyThatWasCutOffFollowsHoweverManyElectionsWereHeldMeanwhile) {
  if (IsSkipped()) return;
  Say(kB4, 5, kKey4);
  const uint64_t hour_terms = 3600 * kSecond >> HR_TERM_NS_SHIFT;
  ExpectRefused(Seal(Leading(kCluster4, kC4, kHkvPort, 5 + hour_terms, 1), kKey4), "hkv4:announce_term");
  Advance(3600 * kSecond);
  Say(kC4, 5 + hour_terms, kKey4);
  ExpectLeads(2, 5 + hour_terms);
}

}  // namespace
}  // namespace hedgerow::packets
