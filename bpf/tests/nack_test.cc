// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// REPLY and CLOCK, nacks (DNS SERVFAIL and REFUSED): swallowed while anything else can still answer, turned
// into the next attempt at once, and only the last one given to the client. ICMP as a nack is in icmp_test.cc.
#include "bpf/tests/checksum.h"
#include "bpf/tests/kernel_fixture.h"

namespace hedgerow::packets {
namespace {

using ::testing::Contains;
using ::testing::Pair;

constexpr uint8_t kServFail = 2;
constexpr uint8_t kRefused = 5;

class NackTest : public PacketTest {
 protected:
  static constexpr uint32_t kReleaseMark = HR_MARK_RELEASE;

  // What the clock makes of a spent nack.
  RunResult Release(const RunResult &nack) { return Clock(nack.packet, {.mark = nack.mark}); }
};

TEST_F(NackTest, ANackIsSwallowedAndReleasesTheParkedCopyAtOnce) {
  for (const uint8_t rcode : {kServFail, kRefused}) {
    const uint16_t id = rcode;
    Split(DnsRequest4(id));
    const uint32_t request = FindDns(id);
    const RunResult nack = Reply(DnsReply4(id, kA4, rcode));
    EXPECT_EQ(nack.verdict, kRedirected) << "round the clock's link, not to the client";
    EXPECT_EQ(nack.mark, kReleaseMark | request);
    EXPECT_THAT(nack.changes, UnorderedElementsAre(Pair("dns4.nacks_swallowed", 1), Pair("dns4:nack", 1)));
    EXPECT_EQ(StateOf(request), HR_STATE_PENDING);

    const RunResult sent = Release(nack);
    EXPECT_EQ(sent.verdict, kRedirected);
    EXPECT_EQ(Layer3(sent.packet),
              Layer3(PacketBuilder(kClient4, kB4).Udp(kClientPort, 53, DnsQuery(id, "www.example.org")).Build()));
    EXPECT_EQ(ChecksumFault(sent.packet), "");
    EXPECT_THAT(sent.changes, UnorderedElementsAre(Pair("dns4.failover_sends", 1), Pair("dns4.extra_sends", 1)))
        << "free of the budget";
    EXPECT_EQ(SentTo(request), 0b11u);

    const RunResult won = Reply(DnsReply4(id, kB4));
    EXPECT_EQ(won.verdict, kRedirected);
    EXPECT_THAT(won.changes, UnorderedElementsAre(Pair("dns4.won_by_failover", 1), Pair("dns4.replies", 1)));
  }
}

TEST_F(NackTest, TheReleasedCopyHasTheClientsMark) {
  Split(DnsRequest4(1), {.mark = 0x55});
  EXPECT_EQ(Release(Reply(DnsReply4(1, kA4, kServFail))).mark, 0x55u);
}

TEST_F(NackTest, ANackAfterTheDeadlineAnswersNoRequest) {
  Split(DnsRequest4(1));
  const uint32_t request = FindDns(1);
  FireNow(request);
  MakeExpired(request);
  VisitAll();
  const RunResult nack = Reply(DnsReply4(1, kB4, kServFail));
  EXPECT_EQ(nack.verdict, kDropped) << "the other one may still answer";
  EXPECT_THAT(nack.changes, UnorderedElementsAre(Pair("dns4.nacks_swallowed", 1), Pair("dns4:nack", 1)));
  const RunResult answer = Reply(DnsReply4(1, kA4));
  EXPECT_EQ(answer.verdict, kRedirected);
  EXPECT_EQ(answer.changes.at("dns4.late_answers"), 1);
}

TEST_F(NackTest, TheLastNackAfterTheDeadlineIsPassedOn) {
  Split(DnsRequest4(1));
  const uint32_t request = FindDns(1);
  FireNow(request);
  MakeExpired(request);
  VisitAll();
  EXPECT_EQ(Reply(DnsReply4(1, kB4, kServFail)).verdict, kDropped);
  const RunResult last = Reply(DnsReply4(1, kA4, kServFail));
  EXPECT_EQ(last.verdict, kRedirected);
  EXPECT_THAT(last.changes, UnorderedElementsAre(Pair("dns4.replies", 1)));
  EXPECT_EQ(Reply(DnsReply4(1, kA4)).verdict, kRedirected) << "an answer is welcome all the same";
}

TEST_F(NackTest, ANackIsSwallowedWhileAnotherCopyIsUnderWay) {
  Split(DnsRequest4(1));
  FireNow(FindDns(1));
  const RunResult nack = Reply(DnsReply4(1, kA4, kServFail));
  EXPECT_EQ(nack.verdict, kDropped);
  EXPECT_THAT(nack.changes, UnorderedElementsAre(Pair("dns4.nacks_swallowed", 1), Pair("dns4:nack", 1)));
  EXPECT_EQ(Reply(DnsReply4(1, kB4)).changes.at("dns4.won_by_hedge"), 1);
}

TEST_F(NackTest, TheLastNackGoesToTheClient) {
  Split(DnsRequest4(1));
  const uint32_t request = FindDns(1);
  Release(Reply(DnsReply4(1, kA4, kServFail)));
  const RunResult last = Reply(DnsReply4(1, kB4, kRefused));
  EXPECT_EQ(last.verdict, kRedirected);
  EXPECT_EQ(Layer3(last.packet),
            Layer3(PacketBuilder(kDns4, kClient4)
                       .Udp(kDnsPort, kClientPort, DnsAnswer(DnsQuery(1, "www.example.org"), kRefused))
                       .Build()));
  EXPECT_THAT(last.changes, UnorderedElementsAre(Pair("dns4.nacked", 1), Pair("dns4.replies", 1)));
  EXPECT_EQ(StateOf(request), HR_STATE_NACKED);
  EXPECT_EQ(Reply(DnsReply4(1, kA4)).verdict, kDropped) << "decided";
}

TEST_F(NackTest, ANackBesideAnAnswerInTheMakingIsNoLastNack) {
  // Another CPU has b's good answer in hand, but has not ended PENDING yet.
  Split(DnsRequest4(1));
  const uint32_t request = FindDns(1);
  FireNow(request);
  Request(request).masks = Request(request).masks | HR_MASKS_ANSWERED(0b10);
  const RunResult nack = Reply(DnsReply4(1, kA4, kServFail));
  EXPECT_EQ(nack.verdict, kDropped);
  EXPECT_EQ(StateOf(request), HR_STATE_PENDING);
  EXPECT_EQ(Reply(DnsReply4(1, kB4)).verdict, kRedirected) << "the good answer wins";
}

TEST_F(NackTest, ANackOfTheWinnersRivalAfterTheWinIsDropped) {
  Split(DnsRequest4(1));
  FireNow(FindDns(1));
  Reply(DnsReply4(1, kB4));
  const RunResult nack = Reply(DnsReply4(1, kA4, kServFail));
  EXPECT_EQ(nack.verdict, kDropped);
  EXPECT_THAT(nack.changes, UnorderedElementsAre(Pair("dns4.losers_dropped", 1), Pair("dns4:loser", 1)));
}

TEST_F(NackTest, TheClockMakesTheAttemptOfANackWhoseReleaseWasLost) {
  Split(DnsRequest4(1));
  const uint32_t request = FindDns(1);
  Reply(DnsReply4(1, kA4, kServFail));  // and never given to the clock
  EXPECT_EQ(FireNow(request), (Changes{{"dns4.extra_sends", 1}, {"dns4.failover_sends", 1}}));
  Clones(HR_MARK_HEDGE, 1);
}

TEST_F(NackTest, AReleaseThatCameTooLateSendsNothing) {
  Split(DnsRequest4(1));
  const uint32_t request = FindDns(1);
  const RunResult nack = Reply(DnsReply4(1, kA4, kServFail));
  FireNow(request);  // the clock was faster
  const RunResult late = Release(nack);
  EXPECT_EQ(late.verdict, kDropped);
  EXPECT_THAT(late.changes, IsEmpty());
  EXPECT_EQ(Request(request).attempts, 2u);
}

TEST_F(NackTest, AReleaseForAnAnsweredRequestSendsNothing) {
  Split(DnsRequest4(1));
  const RunResult nack = Reply(DnsReply4(1, kA4, kServFail));
  Reply(DnsReply4(1, kA4));
  EXPECT_EQ(Release(nack).verdict, kDropped);
}

TEST_F(NackTest, AReleaseTakesNoAttemptOfALaterRequestInItsPlace) {
  Split(DnsRequest4(1));
  const uint32_t request = FindDns(1);
  const RunResult nack = Reply(DnsReply4(1, kA4, kServFail));
  Reply(DnsReply4(1, kA4));
  EndRetention(request);
  VisitAll();
  Split(DnsRequest4(2));
  ASSERT_EQ(FindDns(2), request) << "the entry is used again";
  const RunResult late = Release(nack);
  EXPECT_EQ(late.verdict, kDropped);
  EXPECT_THAT(late.changes, IsEmpty());
  EXPECT_EQ(SentTo(request), 0b01u);
  EXPECT_EQ(Request(request).attempts, 1u);
}

TEST_F(NackTest, AReleaseThatFailsLeavesTheAttemptOpen) {
  Split(DnsRequest4(1));
  const uint32_t request = FindDns(1);
  const RunResult nack = Reply(DnsReply4(1, kA4, kServFail));
  const uint32_t parked = Request(request).parked;
  Request(request).parked = 0;
  const RunResult failed = Release(nack);
  Request(request).parked = parked;
  EXPECT_EQ(failed.verdict, kDropped);
  EXPECT_EQ(failed.changes.at("dns4:release_failed"), 1);
  EXPECT_EQ(SentTo(request), 0b01u) << "b was never asked";
  EXPECT_EQ(Request(request).attempts, 1u);
  EXPECT_EQ(FireNow(request).at("dns4.failover_sends"), 1) << "the clock makes it";
  Clones(HR_MARK_HEDGE, 1);
}

TEST_F(NackTest, ANackForNobodyIsDropped) {
  EXPECT_EQ(Clock(DnsReply4(1, kA4, kServFail), {.mark = HR_MARK_RELEASE | 63}).verdict, kDropped);
  EXPECT_EQ(Clock(DnsReply4(1, kA4, kServFail), {.mark = HR_MARK_RELEASE | 0xffffff}).verdict, kDropped);
}

TEST_F(NackTest, ANackWithTheOlderQuestionIsStale) {
  Split(DnsRequest4(7, "old.example.org"));
  FireNow(FindDns(7));
  Reply(DnsReply4(7, kB4, 0, "old.example.org"));
  Split(DnsRequest4(7, "new.example.org"));
  const RunResult nack = Reply(DnsReply4(7, kA4, kServFail, "old.example.org"));
  EXPECT_EQ(nack.verdict, kDropped);
  EXPECT_THAT(nack.changes, Contains(Pair("dns4:stale", 1)));
}

TEST_F(NackTest, NxDomainIsAnAnswer) {
  Split(DnsRequest4(1));
  EXPECT_EQ(Reply(DnsReply4(1, kA4, 3)).changes.at("dns4.won_by_first"), 1);
}

}  // namespace
}  // namespace hedgerow::packets
