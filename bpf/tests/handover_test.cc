// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// CLOCK, a newly announced leader: it gets the parked requests whose earlier sends went elsewhere, once for
// each term, outside the attempts and the budget, paced.
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>

#include "bpf/tests/checksum.h"
#include "bpf/tests/kernel_fixture.h"
#include "bpf/tests/test_links.h"
#include "proxy.skel.h"

namespace hedgerow::packets {
namespace {

using ::testing::Contains;
using ::testing::Pair;

constexpr int kThreads = 4;
constexpr auto kDuration = std::chrono::milliseconds(1500);

class HandoverTest : public PacketTest {
 protected:
  uint32_t Ask(uint64_t seq) {
    Split(HkvRequest4(seq));
    const uint32_t request = FindHkv(seq);
    EXPECT_NE(request, 0u);
    return request;
  }
  // Announced by a node that may hold what it was sent in the last `holds_ms`; 0: it does not say.
  void AnnounceHolding(const char *node, uint64_t term, uint32_t holds_ms) {
    hr_announcement news = Leading(kCluster4, node, kHkvPort, term, 1);
    news.holds_ms = holds_ms;
    EXPECT_EQ(Announce(Seal(news, kKey4)).verdict, kDropped) << "consumed";
  }
  // A request waits, and an announcement's lap at once cannot be sent.
  uint32_t EpochBeforeAHurryThatFails() {
    Ask(1);
    Clones(HR_MARK_LAP, 1);
    const uint32_t epoch = Wheel().epoch;
    EXPECT_TRUE(net::SetLinkDown("hr0c0").ok());
    AnnounceLeader(kC4, 5);
    EXPECT_TRUE(net::SetLinkUp("hr0c0").ok());
    return epoch;
  }
  // It was sent so long ago, by its own account.
  void Age(uint32_t request, uint64_t ns) { Request(request).sent_ns = Request(request).sent_ns - ns; }
  // Laps until nothing of it is left.
  Changes HandOver() {
    Changes sum;
    for (int lap = 0; lap < 20 && (Wheel().handover != 0 || Wheel().handover_services != 0); ++lap)
      for (const auto &[name, change] : Lap().changes) sum[name] += change;
    EXPECT_EQ(Wheel().handover, 0u);
    EXPECT_EQ(Wheel().handover_services, 0u);
    return sum;
  }
};

TEST_F(HandoverTest, ANewLeaderGetsWhatWentElsewhere) {
  Split(HkvRequest4(1), {.mark = 0x66});
  const uint32_t request = FindHkv(1);
  AnnounceLeader(kC4, 5);
  EXPECT_EQ(HandOver(), (Changes{{"hkv4.extra_sends", 1}, {"hkv4.failover_sends", 1}, {"hkv4.handed_over", 1}}));
  EXPECT_EQ(SentTo(request), 0b101u);
  EXPECT_EQ(Request(request).attempts, 1u) << "outside the attempts";
  EXPECT_EQ(ServiceState(kHkv4Service).budget_micros, 1'000'000) << "and the budget";
  const std::vector<Captured> copies = Clones(HR_MARK_SEND, 1);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].mark, HR_MARK_OF_COPY(HR_MARK_SEND, 2, request)) << "it says to whom it goes";
  EXPECT_TRUE(copies[0].checksum_ready);
  EXPECT_EQ(Layer3(copies[0].packet),
            Layer3(PacketBuilder(kClient4, kC4)
                       .Udp(kClientPort, kHkvPort, HkvRequest(kHkvWrite, kHkvSession, 1, Text("body")))
                       .Build()));
  EXPECT_EQ(ChecksumFault(copies[0].packet), "");
  const RunResult sent = Clock(copies[0].packet, {.mark = copies[0].mark});
  EXPECT_EQ(sent.verdict, kRedirected);
  EXPECT_EQ(sent.mark, 0x66u) << "the client's";
  EXPECT_TRUE(HasFlow(kClient4, kClientPort, 17, HR_FLOW_REPLY, kHkv4C)) << "its answer must find the VIP";
  EXPECT_THAT(Reply(HkvReply4(1, kC4)).changes, Contains(Pair("hkv4.won_by_failover", 1)));
  EXPECT_THAT(Reply(HkvReply4(1, kA4)).changes, Contains(Pair("hkv4:loser", 1)));
}

TEST_F(HandoverTest, ALeaderThatIsReachedByAnotherUplinkGetsOnceMoreWhatWasSentBefore) {
  const uint32_t before = Ask(1);
  FireNow(before);  // no attempt is left, and both may have gone to an uplink that was down
  Clones(HR_MARK_HEDGE, 1);
  DataPlaneSpec moved = plane().spec();
  for (ServiceSpec &service : moved.services)
    for (BackendSpec &backend : service.backends) backend.also_ifindex = std::exchange(backend.uplink_ifindex, 4711);
  ASSERT_TRUE(plane().config().MoveBackends(moved, static_cast<int64_t>(NowNs())).ok());
  const uint32_t after = Ask(2);
  EXPECT_EQ(HandOver(), (Changes{{"hkv4.extra_sends", 1}, {"hkv4.failover_sends", 1}, {"hkv4.handed_over", 1}}));
  EXPECT_NE(Request(before).sent_again, 0u);
  EXPECT_EQ(Request(after).sent_again, 0u);
  EXPECT_THAT(Reply(HkvReply4(1, kA4)).changes, Contains(Pair("hkv4.won_by_failover", 1)))
      << "by the former uplink, too";
}

TEST_F(HandoverTest, AMoveThatChangesNoUplinkSendsNothingAgain) {
  Ask(1);
  ASSERT_TRUE(plane().config().MoveBackends(plane().spec(), static_cast<int64_t>(NowNs())).ok());
  EXPECT_EQ(HandOver(), Changes{});
}

TEST_F(HandoverTest, AlsoWhatHasNoAttemptLeft) {
  const uint32_t request = Ask(1);
  FireNow(request);  // both attempts are made
  Clones(HR_MARK_HEDGE, 1);
  const uint64_t due_ns = Request(request).due_ns;
  AnnounceLeader(kC4, 5);
  HandOver();
  Clones(HR_MARK_SEND, 1);
  EXPECT_EQ(SentTo(request), 0b111u);
  EXPECT_EQ(Request(request).attempts, 2u);
  EXPECT_EQ(Request(request).due_ns, due_ns) << "its place in the wheel is as it was";
}

TEST_F(HandoverTest, WhatTheNewLeaderHasAlreadyIsNotSentAgain) {
  const uint32_t request = Ask(1);
  FireNow(request);
  Clones(HR_MARK_HEDGE, 1);
  ASSERT_EQ(SentTo(request), 0b11u);
  AnnounceLeader(kB4, 5);
  EXPECT_THAT(HandOver(), IsEmpty());
  Clones(HR_MARK_SEND, 0);
}

TEST_F(HandoverTest, OnceForEachTerm) {
  Ask(1);
  AnnounceLeader(kC4, 5, 1);
  HandOver();
  Clones(HR_MARK_SEND, 1);
  AnnounceLeader(kC4, 5, 2);
  EXPECT_EQ(Wheel().handover, 0u) << "the same term";
  AnnounceLeader(kC4, 6, 1);
  EXPECT_THAT(HandOver(), IsEmpty()) << "another term, but it has it";
  AnnounceLeader(kB4, 7, 1);
  EXPECT_EQ(HandOver().at("hkv4.handed_over"), 1);
  for (const Captured &copy : Clones(HR_MARK_SEND, 1)) EXPECT_EQ(Read(copy.packet).destination, kB4);
}

// Its process died with its copy: the same leader is none the wiser.
TEST_F(HandoverTest, ALeaderThatWasRestartedGetsAgainWhatItHadBefore) {
  AnnounceHolding(kA4, 5, 1000);
  const uint32_t request = Ask(1);
  ASSERT_EQ(SentTo(request), 0b001u);
  Age(request, 100 * kMillisecond);
  AnnounceHolding(kA4, 6, 40);
  EXPECT_EQ(HandOver(), (Changes{{"hkv4.extra_sends", 1}, {"hkv4.failover_sends", 1}, {"hkv4.handed_over", 1}}));
  for (const Captured &copy : Clones(HR_MARK_SEND, 1)) EXPECT_EQ(Read(copy.packet).destination, kA4);
  EXPECT_EQ(SentTo(request), 0b001u);
  AnnounceHolding(kA4, 6, 41);
  EXPECT_EQ(Wheel().handover, 0u) << "once for each term";
  BackendState(kHkv4A).answer_ewma_ns = 0;
  EXPECT_THAT(Reply(HkvReply4(1, kA4)).changes, Contains(Pair("hkv4.won_by_failover", 1)));
  EXPECT_EQ(BackendState(kHkv4A).answer_ewma_ns, 0u) << "how long it was away is not how long it takes to answer";
  const RunResult second = Reply(HkvReply4(1, kA4));
  EXPECT_EQ(second.verdict, kDropped) << "if it had both copies";
  EXPECT_THAT(second.changes, Contains(Pair("hkv4:loser", 1)));
}

// The next leader gets it too, and the one before, who has it twice, answers first.
TEST_F(HandoverTest, TheSecondAnswerIsDroppedAlsoAfterAnotherHandover) {
  AnnounceHolding(kA4, 5, 1000);
  const uint32_t request = Ask(1);
  Age(request, 100 * kMillisecond);
  AnnounceHolding(kA4, 6, 40);
  EXPECT_EQ(HandOver()["hkv4.handed_over"], 1);
  AnnounceHolding(kB4, 7, 1000);
  EXPECT_EQ(HandOver()["hkv4.handed_over"], 1);
  Clones(HR_MARK_SEND, 2);
  EXPECT_NE(Reply(HkvReply4(1, kA4)).verdict, kDropped);
  EXPECT_EQ(Reply(HkvReply4(1, kA4)).verdict, kDropped);
  EXPECT_EQ(Reply(HkvReply4(1, kB4)).verdict, kDropped);
}

TEST_F(HandoverTest, WhatItWasGivenInThisLifeItIsNotGivenAgain) {
  AnnounceHolding(kA4, 5, 1000);
  const uint32_t request = Ask(1);
  Age(request, 100 * kMillisecond);
  AnnounceHolding(kA4, 6, 40);
  EXPECT_EQ(HandOver().at("hkv4.handed_over"), 1);
  AnnounceHolding(kA4, 7, 60);
  EXPECT_THAT(HandOver(), IsEmpty());
  Clones(HR_MARK_SEND, 1);
  FireNow(request);
  ASSERT_EQ(SentTo(request), 0b11u);
  AnnounceHolding(kA4, 8, 60);
  EXPECT_THAT(HandOver(), IsEmpty()) << "also where b was sent a hedge since";
  Copies(1);
}

// What only it had is what nobody has.
TEST_F(HandoverTest, ARestartedLeaderGetsItAlsoWhileItIsDrained) {
  AnnounceHolding(kA4, 5, 1000);
  const uint32_t request = Ask(1);
  Age(request, 100 * kMillisecond);
  ASSERT_TRUE(plane().policy().SetDrained("hkv4", "n1", true).ok());
  AnnounceHolding(kA4, 6, 40);
  EXPECT_EQ(HandOver()["hkv4.handed_over"], 1);
  Clones(HR_MARK_SEND, 1);
}

TEST_F(HandoverTest, ARestartedFollowerThatLeadsNextGetsAgainWhatItHadBefore) {
  const uint32_t request = Ask(1);
  FireNow(request);
  Clones(HR_MARK_HEDGE, 1);
  ASSERT_EQ(SentTo(request), 0b11u);
  Advance(100 * kMillisecond);
  AnnounceHolding(kB4, 5, 40);
  EXPECT_EQ(HandOver().at("hkv4.handed_over"), 1);
  for (const Captured &copy : Clones(HR_MARK_SEND, 1)) EXPECT_EQ(Read(copy.packet).destination, kB4);
  EXPECT_THAT(Reply(HkvReply4(1, kB4)).changes, Contains(Pair("hkv4.won_by_failover", 1)));
}

TEST_F(HandoverTest, AFollowerThatWasHedgedAfterItsRestartIsNotGivenTheRequestAgain) {
  const uint32_t request = Ask(1);
  Age(request, 100 * kMillisecond);
  FireNow(request);
  Clones(HR_MARK_HEDGE, 1);
  ASSERT_EQ(SentTo(request), 0b11u);
  AnnounceHolding(kB4, 5, 40);
  EXPECT_THAT(HandOver(), IsEmpty());
  Clones(HR_MARK_SEND, 0);
}

TEST_F(HandoverTest, WhatALeaderStillHoldsIsNotSentAgain) {
  AnnounceHolding(kA4, 5, 1000);
  const uint32_t request = Ask(1);
  Age(request, 100 * kMillisecond);
  AnnounceHolding(kA4, 6, 1000);
  EXPECT_THAT(HandOver(), IsEmpty()) << "it lived all the time";
  AnnounceHolding(kA4, 7, 0);
  EXPECT_THAT(HandOver(), IsEmpty()) << "it does not say";
  Age(request, kSecond);
  AnnounceHolding(kA4, 8, 1000);
  EXPECT_EQ(HandOver().at("hkv4.handed_over"), 1) << "nobody holds for so long: its copy, or the answer, was lost";
  Clones(HR_MARK_SEND, 1);
}

TEST_F(HandoverTest, TheFirstAnnouncementOfTheConfiguredPrimaryCountsToo) {
  AnnounceLeader(kC4, 5);
  const uint32_t request = Ask(1);
  ASSERT_EQ(SentTo(request), 0b100u);
  AnnounceLeader(kA4, 6);
  EXPECT_EQ(HandOver().at("hkv4.handed_over"), 1);
  Clones(HR_MARK_SEND, 1);
}

TEST_F(HandoverTest, WhatItRefusedBeforeItLedItIsAskedAgain) {
  ServiceConfig(kHkv4Service).attempts = 3;
  const uint32_t request = Ask(1);
  FireNow(request);  // a and b have it
  Clones(HR_MARK_HEDGE, 1);
  EXPECT_EQ(Reply(HkvReply4(1, kB4, kHkvNotLeader)).verdict, kDropped);
  AnnounceLeader(kB4, 5);
  EXPECT_EQ(HandOver().at("hkv4.handed_over"), 1);
  Clones(HR_MARK_SEND, 1);
  EXPECT_EQ(HR_NOT_AWAITED_MASK(Request(request).masks), 0u);
  EXPECT_EQ(Reply(HkvReply4(1, kA4, kHkvNotLeader)).verdict, kDropped) << "b is being asked";
  EXPECT_THAT(Reply(HkvReply4(1, kB4)).changes, Contains(Pair("hkv4.won_by_failover", 1)));
}

// It was held there for as long as the node holds anything, and a nack left in the turn in which it became the leader:
// the nack comes behind the announcement, and the lap between them.
TEST_F(HandoverTest, WhatTheNewLeaderRefusesAfterItsHandoverItIsGivenOnce) {
  const uint32_t request = Ask(1);
  FireNow(request);
  Clones(HR_MARK_HEDGE, 1);
  AnnounceHolding(kB4, 5, 1000);
  ASSERT_THAT(HandOver(), IsEmpty()) << "it has it";
  EXPECT_EQ(Reply(HkvReply4(1, kB4, kHkvNotLeader)).verdict, kDropped);
  EXPECT_EQ(HandOver()["hkv4.handed_over"], 1);
  for (const Captured &copy : Clones(HR_MARK_SEND, 1)) EXPECT_EQ(Read(copy.packet).destination, kB4);
  EXPECT_EQ(Reply(HkvReply4(1, kB4, kHkvNotLeader)).verdict, kDropped);
  EXPECT_EQ(Wheel().handover, 0u) << "once";
  EXPECT_THAT(Reply(HkvReply4(1, kA4)).changes, Contains(Pair("hkv4.won_by_first", 1)));
}

TEST_F(HandoverTest, WhoDoesNotLeadIsNotAskedAgain) {
  const uint32_t request = Ask(1);
  FireNow(request);
  Clones(HR_MARK_HEDGE, 1);
  AnnounceLeader(kA4, 5);
  ASSERT_THAT(HandOver(), IsEmpty());
  EXPECT_EQ(Reply(HkvReply4(1, kB4, kHkvNotLeader)).verdict, kDropped);
  EXPECT_EQ(Wheel().handover, 0u);
}

TEST_F(HandoverTest, WhatEverybodyRefusedWaitsForTheNextLeader) {
  const uint32_t request = Ask(1);
  FireNow(request);  // both attempts are made
  Clones(HR_MARK_HEDGE, 1);
  EXPECT_EQ(Reply(HkvReply4(1, kA4, kHkvNotLeader)).verdict, kDropped);
  EXPECT_EQ(Reply(HkvReply4(1, kB4, kHkvNotLeader)).verdict, kDropped);
  AnnounceLeader(kC4, 5);
  EXPECT_EQ(HandOver().at("hkv4.handed_over"), 1);
  Clones(HR_MARK_SEND, 1);
  EXPECT_THAT(Reply(HkvReply4(1, kC4)).changes, Contains(Pair("hkv4.won_by_failover", 1)));
}

TEST_F(HandoverTest, OnlyWhatIsPendingAndOlderThanTheAnnouncement) {
  const uint32_t answered = Ask(1);
  Reply(HkvReply4(1, kA4));
  const uint32_t expired = Ask(2);
  MakeExpired(expired);
  const uint32_t younger = Ask(3);
  AnnounceLeader(kC4, 5);
  Request(younger).sent_ns = LeaderOf(kHkv4Service).since_ns + 2 * kMillisecond;
  EXPECT_EQ(HandOver().count("hkv4.handed_over"), 0u);
  Clones(HR_MARK_SEND, 0);
  EXPECT_EQ(SentTo(answered) | SentTo(expired) | SentTo(younger), 0b001u);
}

TEST_F(HandoverTest, OtherServicesRequestsStayWhereTheyAre) {
  Split(DnsRequest4(1));
  Ask(1);
  AnnounceLeader(kC4, 5);
  EXPECT_EQ(HandOver().at("hkv4.handed_over"), 1);
  Clones(HR_MARK_SEND, 1);
  EXPECT_EQ(SentTo(FindDns(1)), 0b01u);
}

TEST_F(HandoverTest, NothingGoesPastAPin) {
  ASSERT_TRUE(plane().policy().PinLeader("hkv4", "n2").ok());
  const uint32_t request = Ask(1);
  AnnounceLeader(kC4, 5);
  EXPECT_EQ(Wheel().handover, 0u);
  EXPECT_EQ(SentTo(request), 0b010u);
  // Pinned between the announcement and the lap.
  ASSERT_TRUE(plane().policy().UnpinLeader("hkv4").ok());
  AnnounceLeader(kA4, 6);
  ASSERT_TRUE(plane().policy().PinLeader("hkv4", "n3").ok());
  EXPECT_THAT(HandOver(), IsEmpty());
  Clones(HR_MARK_SEND, 0);
}

TEST_F(HandoverTest, ItIsPaced) {
  constexpr uint32_t kRequests = 2 * HR_HANDOVER_PER_LAP;  // as many as may be parked
  // To ask so many takes a slow machine longer than a request waits for its hedge.
  ServicePolicy(kHkv4Service).delay_ns = 10 * kSecond;
  for (uint64_t seq = 1; seq <= kRequests; ++seq) Ask(seq);
  AnnounceLeader(kC4, 5);
  const RunResult first = Lap();
  EXPECT_EQ(first.changes.at("hkv4.handed_over"), HR_HANDOVER_PER_LAP);
  EXPECT_EQ((first.priority & 0xffff) - HR_CLOCK_CLASS_BASE, 0u) << "the next lap comes soon";
  EXPECT_EQ(Lap().changes.at("hkv4.handed_over"), HR_HANDOVER_PER_LAP);
  Clones(HR_MARK_SEND, kRequests);
  Lap();
  EXPECT_EQ(Wheel().handover_services, 0u);
  for (uint64_t seq = 1; seq <= kRequests; ++seq) EXPECT_EQ(SentTo(FindHkv(seq)), 0b101u);
}

TEST_F(HandoverTest, TheClockIsHurriedByANewPacketAndTheOldOneDies) {
  Ask(1);
  Clones(HR_MARK_LAP, 1);
  const uint32_t epoch = Wheel().epoch;
  AnnounceLeader(kC4, 5, 1);
  for (const Captured &lap : Clones(HR_MARK_LAP, 1)) EXPECT_EQ(HR_MARK_VALUE(lap.mark), epoch + 1);
  const RunResult old = Clock(Bytes(HR_CLOCK_FRAME_BYTES), {.mark = HR_MARK_LAP | epoch});
  EXPECT_EQ(old.verdict, kDropped);
  EXPECT_THAT(old.changes, UnorderedElementsAre(Pair("host:clock_stale", 1)));
  AnnounceLeader(kC4, 5, 2);
  Clones(HR_MARK_LAP, 0);
}

TEST_F(HandoverTest, AtRestNobodyIsHurried) {
  AnnounceLeader(kC4, 5);
  Clones(HR_MARK_LAP, 0);
  EXPECT_EQ(Wheel().running, 0u);
  // What was asked for then does not come true for a request that is sent elsewhere much later.
  BackendState(kHkv4C).health = HR_DOWN;
  BackendState(kHkv4C).health_since_ns = NowNs();
  BackendState(kHkv4C).probe_counter = 1;
  Advance(2 * kMillisecond);
  const uint32_t request = Ask(1);
  ASSERT_EQ(SentTo(request) & 0b100u, 0u);
  EXPECT_THAT(HandOver(), IsEmpty());
  Clones(HR_MARK_SEND, 0);
}

TEST_F(HandoverTest, ASendThatFailsIsUndoneAndCounted) {
  const uint32_t request = Ask(1);
  AnnounceLeader(kC4, 5);
  ASSERT_TRUE(net::SetLinkDown("hr0c1").ok());
  const Changes failed = HandOver();
  ASSERT_TRUE(net::SetLinkUp("hr0c1").ok());
  EXPECT_EQ(failed, (Changes{{"hkv4:hedge_failed", 1}}));
  EXPECT_EQ(SentTo(request), 0b001u);
  EXPECT_EQ(HR_FAILOVER_MASK(Request(request).masks), 0u);
  EXPECT_THAT(FireNow(request), Contains(Pair("hkv4.hedges", 1))) << "its own next attempt goes there";
  for (const Captured &copy : Clones(HR_MARK_HEDGE, 1)) EXPECT_EQ(Read(copy.packet).destination, kC4);
}

TEST_F(HandoverTest, ASendThatFailsTakesNoEarlierOneBack) {
  AnnounceHolding(kA4, 5, 1000);
  const uint32_t request = Ask(1);
  Age(request, 100 * kMillisecond);
  AnnounceHolding(kA4, 6, 40);
  ASSERT_TRUE(net::SetLinkDown("hr0c1").ok());
  const Changes failed = HandOver();
  ASSERT_TRUE(net::SetLinkUp("hr0c1").ok());
  EXPECT_EQ(failed, (Changes{{"hkv4:hedge_failed", 1}}));
  EXPECT_EQ(SentTo(request), 0b001u) << "a has the first send";
  EXPECT_THAT(Reply(HkvReply4(1, kA4)).changes, Contains(Pair("hkv4.won_by_first", 1))) << "and its answer is welcome";
}

TEST_F(HandoverTest, ANackComesBackWhereTheSendFails) {
  const uint32_t request = Ask(1);
  FireNow(request);
  Clones(HR_MARK_HEDGE, 1);
  EXPECT_EQ(Reply(HkvReply4(1, kB4, kHkvNotLeader)).verdict, kDropped);
  AnnounceLeader(kB4, 5);
  ASSERT_TRUE(net::SetLinkDown("hr0c1").ok());
  HandOver();
  ASSERT_TRUE(net::SetLinkUp("hr0c1").ok());
  EXPECT_EQ(HR_NOT_AWAITED_MASK(Request(request).masks), 0b010u);
  EXPECT_EQ(SentTo(request), 0b011u);
}

TEST_F(HandoverTest, AHedgeAndAHandoverInOneLapKeepApart) {
  ServicePolicy(kHkv4Service).delay_ns = 20 * kMillisecond;
  const uint32_t request = Ask(1);
  AnnounceLeader(kC4, 5);
  BackendState(kHkv4C).health = HR_SUSPECT;  // so that the hedge goes to another
  BackendState(kHkv4C).health_since_ns = NowNs();
  Advance(70 * kMillisecond);
  EXPECT_EQ(
      Lap().changes,
      (Changes{{"hkv4.extra_sends", 2}, {"hkv4.hedges", 1}, {"hkv4.failover_sends", 1}, {"hkv4.handed_over", 1}}));
  EXPECT_EQ(SentTo(request), 0b111u);
  const std::vector<Captured> copies = Copies(2);
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_EQ(copies[0].mark, HR_MARK_OF_COPY(HR_MARK_HEDGE, 1, request));
  EXPECT_EQ(Read(copies[0].packet).destination, kB4);
  EXPECT_EQ(copies[1].mark, HR_MARK_OF_COPY(HR_MARK_SEND, 2, request));
  EXPECT_EQ(Read(copies[1].packet).destination, kC4);
  for (const Captured &copy : copies) EXPECT_EQ(Clock(copy.packet, {.mark = copy.mark}).verdict, kRedirected);
  const auto snapshot = plane().reader().Read(true);
  ASSERT_TRUE(snapshot.ok());
  EXPECT_EQ(snapshot->services[kHkv4Service].fire_error.Count(), 1u) << "the hedge's";
  EXPECT_GE(snapshot->services[kHkv4Service].fire_error.max_ns, 50 * kMillisecond) << "from when it was due";
}

// The clock packet may have come round meanwhile, and died by the epoch of the one that could not be sent.
TEST_F(HandoverTest, AfterAHurryThatFailsTheNextRequestSendsAClockPacket) {
  const uint32_t epoch = EpochBeforeAHurryThatFails();
  EXPECT_EQ(Wheel().last_lap_ns, 0u) << "overdue";
  Ask(2);
  for (const Captured &lap : Clones(HR_MARK_LAP, 1)) EXPECT_EQ(HR_MARK_VALUE(lap.mark), epoch + 1);
  Wheel().last_lap_ns = NowNs();  // however long that took
  Ask(3);
  Clones(HR_MARK_LAP, 0);
}

TEST_F(HandoverTest, AHurryThatFailsLeavesTheClockRunning) {
  const uint32_t epoch = EpochBeforeAHurryThatFails();
  EXPECT_EQ(Wheel().running, 1u);
  EXPECT_EQ(Wheel().epoch, epoch) << "the packet that is on its way is the clock still";
  EXPECT_EQ(Lap().verdict, kRedirected);
  EXPECT_EQ(HandOver().size(), 0u) << "in that lap";
  Clones(HR_MARK_SEND, 1);
}

// Under traffic from four threads. Afterwards nothing is lost, twice, or counted wrongly.
TEST_F(HandoverTest, NothingIsLostWhenLeadersChangeAllTheTime) {
  LetTimeRun();
  volatile hr_service_config &service = ServiceConfig(kHkv4Service);
  ServicePolicy(kHkv4Service).delay_ns = 300'000;
  service.deadline_ns = 3 * kMillisecond;
  service.retention_ns = 2 * kMillisecond;
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  const TestLinks &links = TestLinks::Get();
  const auto &programs = skeleton()->progs;
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> term = 1;
  const auto step = [&](std::mt19937 &random) {
    const uint64_t seq = random() % 48;
    const char *nodes[] = {kA4, kB4, kC4};
    const char *node = nodes[random() % 3];
    switch (random() % 8) {
      case 0:
      case 1:
      case 2: RunUncounted(programs.hr_splitter, HkvRequest4(seq), {.ifindex = links.proxy.ifindex}); break;
      case 3: RunUncounted(programs.hr_reply, HkvReply4(seq, node), {.ifindex = links.uplink.ifindex}); break;
      case 4: {
        const RunResult nack =
            RunUncounted(programs.hr_reply, HkvReply4(seq, node, kHkvNotLeader, static_cast<uint32_t>(random() % 5)),
                         {.mark = 1, .ifindex = links.uplink.ifindex});
        if (HR_MARK_KIND(nack.mark) == HR_MARK_RELEASE)
          RunUncounted(programs.hr_clock, nack.packet, {.mark = nack.mark, .ifindex = links.clock_in.ifindex});
        break;
      }
      case 5: {
        hr_announcement news = Leading(kCluster4, node, kHkvPort, random() % 2 ? ++term : term.load(), random() % 100);
        if (random() % 8 == 0) news.state = HR_ANNOUNCEMENT_RESIGNING;
        RunUncounted(programs.hr_reply,
                     PacketBuilder(node, kClient4).Udp(4802, kAnnouncePort, Seal(news, kKey4)).Build(),
                     {.ifindex = links.uplink.ifindex});
        break;
      }
      default:
        RunUncounted(programs.hr_clock, Tagged(Bytes(HR_CLOCK_FRAME_BYTES)),
                     {.mark = HR_MARK_LAP | HR_MARK_VALUE(Wheel().epoch), .ifindex = links.clock_in.ifindex});
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      std::mt19937 random(seed + static_cast<uint32_t>(i));
      while (!stop) step(random);
    });
  // Everything is to be met, or the test has tested nothing; an emulated machine takes longer.
  const auto unmet = [this] {
    const hr_stats stats = View().services[kHkv4Service].stats;
    std::vector<int> counters = {HR_WON_BY_FIRST, HR_WON_BY_FAILOVER, HR_UNANSWERED,
                                 HR_HANDED_OVER,  HR_LEADER_CHANGES,  HR_HINTED};
    std::erase_if(counters, [&stats](int counter) { return stats.counters[counter] > 0; });
    if (stats.reasons[HR_REASON_ANNOUNCE_STALE] == 0) counters.push_back(-1);
    return counters;
  };
  std::this_thread::sleep_for(kDuration);
  for (int i = 0; i < 20 && !unmet().empty(); ++i) std::this_thread::sleep_for(kDuration);
  stop = true;
  for (std::thread &thread : threads) thread.join();
  EXPECT_THAT(BrokenInvariants(View()), IsEmpty());
  EXPECT_THAT(unmet(), IsEmpty());
  for (int i = 0; i < 20 && RequestsInUse() != 0; ++i) {
    usleep(5000);
    // What no backend answered is retained for as long as its flow is believed: here that time passes at once.
    for (uint32_t index = 1; index <= Wheel().requests_made; ++index) {
      volatile hr_request &request = Request(index);
      if (HR_WORD_STATE(request.word) == HR_STATE_EXPIRED) request.done_ns = 0;
    }
    VisitAll();
  }
  EXPECT_EQ(RequestsInUse(), 0u) << "at rest everything is free again";
}

}  // namespace
}  // namespace hedgerow::packets
