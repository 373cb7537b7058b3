// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What copies around a backend that is not healthy owe: those that were of use nothing, all others a place that answers
// pay for, so that backends whose answers only have gaps are not asked for twice the work.
#include "bpf/tests/kernel_fixture.h"

namespace hedgerow::packets {
namespace {

using ::testing::Contains;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class FailoverDebtTest : public PacketTest {
 protected:
  int32_t Owed() { return ServiceState(kDns4Service).owed[HR_DEBT_FAILOVERS]; }
  void Owe(int32_t copies) { ServiceState(kDns4Service).owed[HR_DEBT_FAILOVERS] = copies * HR_FAILOVER_PARTS; }
  void MakeSuspect(uint32_t backend) {
    BackendState(backend).health = HR_SUSPECT;
    BackendState(backend).health_since_ns = NowNs();
  }
};

TEST_F(FailoverDebtTest, CopiesAroundABackendThatStallsOweNothingOnceTheyAreAnswered) {
  for (uint16_t id = 1; id <= 40; ++id) {
    MakeSuspect(kDns4A);
    ASSERT_THAT(Split(DnsRequest4(id)).changes, Contains(Pair("dns4.failover_sends", 1))) << id;
    ASSERT_EQ(Owed(), HR_FAILOVER_PARTS);
    ASSERT_THAT(Reply(DnsReply4(id, kB4)).changes, Contains(Pair("dns4.won_by_failover", 1))) << id;
    ASSERT_EQ(Owed(), 0) << id;
  }
  Copies(40);
}

TEST_F(FailoverDebtTest, OneThatTheClockSendsLikewise) {
  Split(DnsRequest4(1));
  MakeSuspect(kDns4A);
  EXPECT_THAT(FireNow(FindDns(1)), Contains(Pair("dns4.failover_sends", 1)));
  Clones(HR_MARK_HEDGE, 1);
  EXPECT_EQ(Owed(), HR_FAILOVER_PARTS);
  Reply(DnsReply4(1, kB4));
  EXPECT_EQ(Owed(), 0);
}

// A backend that is slow for long speaks now and then; the other one is well.
TEST_F(FailoverDebtTest, ACopyThatIsAnsweredWithinTheDelayOwesNothing) {
  MakeSuspect(kDns4A);
  Split(DnsRequest4(1));
  BackendState(kDns4A).last_receive_ns = NowNs();
  EXPECT_THAT(Reply(DnsReply4(1, kB4)).changes, Contains(Pair("dns4.won_by_failover", 1)));
  EXPECT_EQ(Owed(), 0);
  Copies(1);
}

TEST_F(FailoverDebtTest, ACopyThatWasNotNeededStaysOwed) {
  MakeSuspect(kDns4A);
  Split(DnsRequest4(1));
  Reply(DnsReply4(1, kA4));
  EXPECT_EQ(Owed(), HR_FAILOVER_PARTS - 1) << "the backend has answered itself";
  MakeSuspect(kDns4A);
  Owe(0);
  Split(DnsRequest4(2));
  Advance(201 * kMillisecond);  // the delay is 200 ms
  BackendState(kDns4A).last_receive_ns = NowNs();
  EXPECT_THAT(Reply(DnsReply4(2, kB4)).changes, Contains(Pair("dns4.won_by_failover", 1)));
  EXPECT_EQ(Owed(), HR_FAILOVER_PARTS - 1) << "it has answered others meanwhile, so both are slow";
  Copies(2);
}

TEST_F(FailoverDebtTest, WhileTooManyAreOwedASuspectBackendCountsAsDown) {
  Owe(HR_FAILOVERS_MAX);
  MakeSuspect(kDns4A);
  BackendState(kDns4A).probe_counter = 1;  // not its turn to be probed
  const RunResult around = Split(DnsRequest4(1));
  EXPECT_EQ(Read(around.packet).destination, kB4);
  EXPECT_THAT(around.changes, Contains(Pair("dns4.failover_sends", 1)));
  EXPECT_THAT(around.changes, Not(Contains(Key("dns4.extra_sends"))));
  MakeSuspect(kDns4B);
  const RunResult alone = Split(DnsRequest4(2));
  EXPECT_EQ(Read(alone.packet).destination, kA4) << "no other is known to be better";
  EXPECT_THAT(alone.changes, Not(Contains(Key("dns4.failover_sends"))));
  Copies(0);
  EXPECT_EQ(Owed(), HR_FAILOVERS_MAX * HR_FAILOVER_PARTS);
}

TEST_F(FailoverDebtTest, WhatWaitsAtASuspectBackendIsThenPaidForLikeAHedge) {
  Split(DnsRequest4(1));
  Split(DnsRequest4(2));
  MakeSuspect(kDns4A);
  Owe(HR_FAILOVERS_MAX);
  ServiceState(kDns4Service).budget_micros = 1000000;  // one hedge
  EXPECT_THAT(FireNow(FindDns(1)), UnorderedElementsAre(Pair("dns4.extra_sends", 1), Pair("dns4.hedges", 1),
                                                        Pair("dns4:failovers_owed", 1)));
  Clones(HR_MARK_HEDGE, 1);
  EXPECT_THAT(FireNow(FindDns(2)), UnorderedElementsAre(Pair("dns4:no_budget", 1), Pair("dns4:failovers_owed", 1)));
  EXPECT_LE(Owed(), HR_FAILOVERS_MAX * HR_FAILOVER_PARTS) << "what is not sent is not owed";
  EXPECT_GE(Owed(), (HR_FAILOVERS_MAX - 1) * HR_FAILOVER_PARTS) << "and time has paid for less than one";
}

TEST_F(FailoverDebtTest, AnswersPayForASixtyFourthEach) {
  Owe(HR_FAILOVERS_MAX);
  for (uint16_t id = 1; id < HR_FAILOVER_PARTS; ++id) {
    Split(DnsRequest4(id, "www.example.org", static_cast<uint16_t>(kClientPort + id)));
    Reply(DnsReply4(id, kA4, 0, "www.example.org", static_cast<uint16_t>(kClientPort + id)));
  }
  EXPECT_EQ(Owed(), (HR_FAILOVERS_MAX - 1) * HR_FAILOVER_PARTS + 1);
  Owe(HR_FAILOVERS_MAX - 1);
  MakeSuspect(kDns4A);
  BackendState(kDns4A).probe_counter = 1;  // not its turn to be probed
  EXPECT_THAT(Split(DnsRequest4(100)).changes, Contains(Pair("dns4.extra_sends", 1)));
  EXPECT_THAT(Split(DnsRequest4(101)).changes, Not(Contains(Key("dns4.extra_sends"))));
  Copies(1);
}

TEST_F(FailoverDebtTest, TimePaysOnceNoMoreMayBeOwed) {
  Owe(HR_FAILOVERS_MAX);
  for (const bool paid : {false, true}) {
    MakeSuspect(kDns4A);
    BackendState(kDns4A).probe_counter = 1;
    EXPECT_EQ(Split(DnsRequest4(paid ? 2 : 1)).changes.contains("dns4.extra_sends"), paid);
    Advance(300 * kMillisecond);
  }
  Copies(1);
}

TEST_F(FailoverDebtTest, OnceHalfIsOwedEachClientMayOweASixteenth) {
  Owe(HR_FAILOVERS_MAX / 2);
  BackendState(kDns4A).probe_counter = 1;
  int copies = 0;
  for (uint16_t id = 1; id <= 30; ++id) {
    MakeSuspect(kDns4A);
    copies += Split(DnsRequest4(id)).changes.contains("dns4.extra_sends") ? 1 : 0;
  }
  EXPECT_EQ(copies, HR_FAILOVERS_MAX / 16);
  Copies(HR_FAILOVERS_MAX / 16);
}

TEST_F(FailoverDebtTest, AReleaseAfterANegativeReplyAndADryRunOweNothing) {
  Owe(1);
  Split(DnsRequest4(1));
  const RunResult nack = Reply(DnsReply4(1, kA4, 2));
  EXPECT_THAT(Clock(nack.packet, {.mark = nack.mark}).changes, Contains(Pair("dns4.failover_sends", 1)));
  EXPECT_THAT(Reply(DnsReply4(1, kB4)).changes, Contains(Pair("dns4.won_by_failover", 1)));
  EXPECT_EQ(Owed(), HR_FAILOVER_PARTS - 1) << "an answer like any other: it has paid in HR_DEBT_RETRIES";
  Owe(0);
  EXPECT_TRUE(plane().policy().SetDryRun("dns4", true).ok());
  MakeSuspect(kDns4A);
  Split(DnsRequest4(2));
  EXPECT_THAT(FireNow(FindDns(2)), Contains(Pair("dns4.would_fail_over", 1)));
  EXPECT_EQ(Owed(), 0);
}

}  // namespace
}  // namespace hedgerow::packets
