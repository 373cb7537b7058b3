// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Profile hkv, the store's own protocol: what is a request, an answer, a nack, and where a nack that
// names the leader sends the released copy.
#include "bpf/tests/checksum.h"
#include "bpf/tests/kernel_fixture.h"

namespace hedgerow::packets {
namespace {

using ::testing::Contains;
using ::testing::Pair;

class HkvTest : public PacketTest {
 protected:
  RunResult Ask(uint64_t seq, uint8_t kind = kHkvWrite) { return Split(HkvRequest4(seq, kind)); }
  RunResult AskWith(const Bytes &payload) {
    return Split(PacketBuilder(kClient4, kHkv4).Udp(kClientPort, kHkvPort, payload).Build());
  }
  RunResult AnswerWith(const Bytes &payload, const char *from = kA4) {
    return Reply(PacketBuilder(from, kClient4).Udp(kHkvPort, kClientPort, payload).Build());
  }
  // What the clock makes of a spent nack: to whom the copy goes.
  std::string Release(const RunResult &nack) {
    EXPECT_EQ(nack.verdict, kRedirected);
    EXPECT_EQ(HR_MARK_KIND(nack.mark), HR_MARK_RELEASE);
    const RunResult sent = Clock(nack.packet, {.mark = nack.mark});
    EXPECT_EQ(sent.verdict, kRedirected);
    EXPECT_EQ(ChecksumFault(sent.packet), "");
    hinted_ = sent.changes.count("hkv4.hinted");
    return Read(sent.packet).destination;
  }
  void MakeDown(uint32_t backend) {
    BackendState(backend).health = HR_DOWN;
    BackendState(backend).health_since_ns = NowNs();
  }

  size_t hinted_ = 0;  // whether the last release followed a hint
};

TEST_F(HkvTest, ARequestIsKnownBySessionAndSequence) {
  for (const uint8_t kind : {kHkvOpen, kHkvWrite, kHkvGet, kHkvCancel}) {
    SCOPED_TRACE(int{kind});
    EXPECT_THAT(Ask(kind, kind).changes, UnorderedElementsAre(Pair("hkv4.requests", 1)));
    const uint32_t request = FindHkv(kind);
    ASSERT_NE(request, 0u);
    const RunResult won = AnswerWith(HkvAnswer(HkvRequest(kind, kHkvSession, kind)));
    EXPECT_EQ(won.verdict, kRedirected);
    EXPECT_EQ(Read(won.packet).source, kHkv4);
    EXPECT_THAT(won.changes, UnorderedElementsAre(Pair("hkv4.won_by_first", 1), Pair("hkv4.replies", 1)));
    EXPECT_EQ(StateOf(request), HR_STATE_ANSWERED);
  }
}

TEST_F(HkvTest, EveryKindIsHedged) {
  for (const uint8_t kind : {kHkvOpen, kHkvWrite, kHkvGet, kHkvCancel}) {
    Ask(kind, kind);
    EXPECT_EQ(FireNow(FindHkv(kind)).at("hkv4.hedges"), 1) << "a session writes once whatever comes twice";
    for (const Captured &copy : Clones(HR_MARK_HEDGE, 1))
      EXPECT_EQ(Read(copy.packet).payload, HkvRequest(kind, kHkvSession, kind, Text("body")));
  }
}

TEST_F(HkvTest, ANackWaitsForNoProbe) {
  ServiceConfig(kHkv4Service).election_timeout_ns = kSecond;
  MakeDown(kHkv4B);
  Advance(HR_STANDBY_RETRY * kSecond);
  Ask(1);
  const uint32_t request = FindHkv(1);
  EXPECT_EQ(Release(Reply(HkvReply4(1, kA4, kHkvOverloaded))), kC4) << "the healthy one";
  for (const Captured &copy : Copies(1)) EXPECT_EQ(Read(copy.packet).destination, kB4) << "the probe beside it";
  EXPECT_EQ(SentTo(request), 0b111u);
  const RunResult last = Reply(HkvReply4(1, kC4, kHkvOverloaded));
  EXPECT_EQ(last.verdict, kRedirected) << "the client's: a backend that is down is not waited for";
  EXPECT_THAT(last.changes, Contains(Pair("hkv4.nacked", 1)));
  EXPECT_EQ(Reply(HkvReply4(1, kB4)).verdict, kDropped) << "decided";
  EXPECT_EQ(BackendState(kHkv4B).health, HR_HEALTHY);
}

TEST_F(HkvTest, WorksOverIpv6) {
  const Bytes payload = HkvRequest(kHkvGet, 1, 2, Text("\3key"));
  Split(PacketBuilder(kClient6, kHkv6).Udp(kClientPort, kHkvPort, payload).Build());
  const uint32_t request = FindRequest(kHkv6Service, kClient6, kClientPort, HkvCorrelation(1, 2));
  ASSERT_NE(request, 0u);
  const RunResult nack =
      Reply(PacketBuilder(kA6, kClient6).Udp(kHkvPort, kClientPort, HkvAnswer(payload, kHkvNotLeader, 2)).Build());
  const RunResult sent = Clock(nack.packet, {.mark = nack.mark});
  EXPECT_EQ(Read(sent.packet).destination, kB6);
  EXPECT_EQ(ChecksumFault(sent.packet), "");
  EXPECT_THAT(sent.changes, Contains(Pair("hkv6.hinted", 1)));
}

TEST_F(HkvTest, WhatIsNoRequestOfThisVersionIsForwardedUnhedged) {
  const Bytes sound = HkvRequest(kHkvWrite, 1, 1);
  struct {
    size_t offset;
    uint8_t value;
  } const changes[] = {{0, 0x49}, {1, 1}, {1, 3}, {2, 8}, {2, 0x82}, {2, 0xff}};
  for (const auto &[offset, value] : changes) {
    Bytes payload = sound;
    payload[offset] = value;
    const RunResult run = AskWith(payload);
    EXPECT_EQ(Read(run.packet).destination, kA4);
    EXPECT_THAT(run.changes, Contains(Pair("hkv4:unknown_operation", 1))) << offset << " " << int{value};
  }
  EXPECT_THAT(AskWith(Bytes(sound.begin(), sound.begin() + 31)).changes, Contains(Pair("hkv4:unknown_operation", 1)));
}

TEST_F(HkvTest, WhatIsNoAnswerOfThisVersionIsNotJudged) {
  Ask(1);
  const Bytes sound = HkvAnswer(HkvRequest(kHkvWrite, kHkvSession, 1), kHkvNotLeader);
  struct {
    size_t offset;
    uint8_t value;
  } const changes[] = {{0, 0x49}, {1, 1}, {2, kHkvWrite}};
  for (const auto &[offset, value] : changes) {
    Bytes payload = sound;
    payload[offset] = value;
    const RunResult run = AnswerWith(payload);
    EXPECT_EQ(run.verdict, kRedirected) << "given to the client, who may know what it is";
    EXPECT_THAT(run.changes, Contains(Pair("hkv4:not_a_reply", 1))) << offset;
  }
  EXPECT_THAT(AnswerWith(Bytes(sound.begin(), sound.end() - 1)).changes, Contains(Pair("hkv4:not_a_reply", 1)));
  EXPECT_EQ(StateOf(FindHkv(1)), HR_STATE_PENDING);
}

TEST_F(HkvTest, OnlyNotLeaderAndOverloadedAreNacks) {
  for (uint8_t status = 0; status <= 10; ++status) {
    Ask(100 + status);
    const RunResult run = Reply(HkvReply4(100u + status, kA4, status));
    const bool nack = status == kHkvNotLeader || status == kHkvOverloaded;
    EXPECT_EQ(run.changes.count("hkv4.nacks_swallowed"), nack ? 1u : 0u) << int{status};
    EXPECT_EQ(run.changes.count("hkv4.won_by_first"), nack ? 0u : 1u) << int{status};
  }
}

TEST_F(HkvTest, TheLastNackGoesToTheClient) {
  ServiceConfig(kHkv4Service).attempts = 2;
  Ask(1);
  EXPECT_EQ(Release(Reply(HkvReply4(1, kA4, kHkvNotLeader))), kB4);
  const RunResult last = Reply(HkvReply4(1, kB4, kHkvOverloaded));
  EXPECT_EQ(last.verdict, kRedirected);
  EXPECT_THAT(last.changes, UnorderedElementsAre(Pair("hkv4.nacked", 1), Pair("hkv4.replies", 1)));
}

TEST_F(HkvTest, ANackOfLeadershipIsNeverTheLastWhereAnotherLeaderWillCome) {
  Ask(1);
  EXPECT_EQ(Release(Reply(HkvReply4(1, kA4, kHkvNotLeader))), kB4);
  const RunResult last = Reply(HkvReply4(1, kB4, kHkvNotLeader, 3));
  EXPECT_EQ(last.verdict, kDropped);
  EXPECT_THAT(last.changes, Contains(Pair("hkv4.nacks_swallowed", 1)));
  EXPECT_EQ(StateOf(FindHkv(1)), HR_STATE_PENDING) << "handover_test.cc: the next leader gets it";
  EXPECT_EQ(Request(FindHkv(1)).attempts, 2u) << "the hint does not add an attempt";
}

TEST_F(HkvTest, WithoutAClusterTheLastNackIsTheClients) {
  ServiceConfig(kHkv4Service).cluster_id = 0;
  Ask(1);
  Release(Reply(HkvReply4(1, kA4, kHkvNotLeader)));
  EXPECT_THAT(Reply(HkvReply4(1, kB4, kHkvNotLeader)).changes, Contains(Pair("hkv4.nacked", 1)));
}

TEST_F(HkvTest, ANackThatNamesTheLeaderSendsTheCopyThere) {
  BackendState(kHkv4B).answer_ewma_ns = 1 * kMillisecond;
  BackendState(kHkv4C).answer_ewma_ns = 9 * kMillisecond;
  Ask(1);
  const uint32_t request = FindHkv(1);
  EXPECT_EQ(Release(Reply(HkvReply4(1, kA4, kHkvNotLeader, 3))), kC4) << "and not to the faster standby";
  EXPECT_EQ(hinted_, 1u);
  EXPECT_EQ(SentTo(request), 0b101u);
  EXPECT_EQ(Request(request).attempts, 2u);
  EXPECT_THAT(Reply(HkvReply4(1, kC4)).changes, Contains(Pair("hkv4.won_by_failover", 1)));
}

TEST_F(HkvTest, AHintSteersItsRequestOnlyAndNeverTheMap) {
  const hr_leader_view before = LeaderOf(kHkv4Service);
  Ask(1);
  Ask(2);
  Release(Reply(HkvReply4(1, kA4, kHkvNotLeader, 3)));
  const hr_leader_view after = LeaderOf(kHkv4Service);
  EXPECT_EQ(after.leader, before.leader);
  EXPECT_EQ(after.updated_ns, before.updated_ns);
  EXPECT_EQ(Read(Ask(3).packet).destination, kA4);
  EXPECT_EQ(Release(Reply(HkvReply4(2, kA4, kHkvNotLeader, 0))), kB4);
  EXPECT_EQ(hinted_, 0u);
}

TEST_F(HkvTest, WithoutAUsefulHintItGoesAsBefore) {
  // Nobody; the node itself, which was asked; and a node that is not configured. What OVERLOADED has there is
  // no node: policy_test.cc.
  struct {
    uint8_t status;
    uint32_t hint;
  } const nacks[] = {{kHkvNotLeader, 0}, {kHkvNotLeader, 1}, {kHkvNotLeader, 99}};
  uint64_t seq = 0;
  for (const auto &[status, hint] : nacks) {
    Ask(++seq);
    EXPECT_EQ(Release(Reply(HkvReply4(seq, kA4, status, hint))), kB4) << int{status} << " " << hint;
    EXPECT_EQ(hinted_, 0u);
  }
}

TEST_F(HkvTest, AHintIsFollowedWhateverThatBackendsHealth) {
  MakeDown(kHkv4B);
  MakeDown(kHkv4C);
  Ask(1);
  EXPECT_THAT(Reply(HkvReply4(1, kA4, kHkvOverloaded)).changes, Contains(Pair("hkv4.nacked", 1)))
      << "such a nack in hand is better than a wait for the silent";
  Ask(2);
  EXPECT_EQ(Release(Reply(HkvReply4(2, kA4, kHkvNotLeader, 3))), kC4);
}

TEST_F(HkvTest, WhoeverHoldsRequestsWhileNobodyLeadsIsNotTakenForDead) {
  MakeDown(kHkv4B);
  MakeDown(kHkv4C);
  Ask(1);
  Release(Reply(HkvReply4(1, kA4, kHkvNotLeader, 0)));
  EXPECT_EQ(Request(FindHkv(1)).attempts, 2u);
}

TEST_F(HkvTest, TheClocksAttemptFollowsTheHintToo) {
  Ask(1);
  Reply(HkvReply4(1, kA4, kHkvNotLeader, 3));  // and its release is lost
  EXPECT_EQ(FireNow(FindHkv(1)), (Changes{{"hkv4.extra_sends", 1}, {"hkv4.failover_sends", 1}, {"hkv4.hinted", 1}}));
  for (const Captured &copy : Clones(HR_MARK_HEDGE, 1)) EXPECT_EQ(Read(copy.packet).destination, kC4);
}

TEST_F(HkvTest, ALaterHintReplacesAnEarlierOne) {
  ServiceConfig(kHkv4Service).attempts = 3;
  Ask(1);
  const uint32_t request = FindHkv(1);
  FireNow(request);  // a and b were asked
  Clones(HR_MARK_HEDGE, 1);
  EXPECT_EQ(Reply(HkvReply4(1, kB4, kHkvNotLeader, 1)).verdict, kDropped) << "a may still answer";
  EXPECT_EQ(Request(request).hint, 1);
  EXPECT_EQ(Release(Reply(HkvReply4(1, kA4, kHkvNotLeader, 3))), kC4);
}

TEST_F(HkvTest, APlaceThatIsUsedAgainHasNoHint) {
  Ask(1);
  const uint32_t request = FindHkv(1);
  Reply(HkvReply4(1, kA4, kHkvNotLeader, 3));
  EXPECT_EQ(Request(request).hint, 3);
  Reply(HkvReply4(1, kA4));
  EndRetention(request);
  VisitAll();
  Ask(2);
  ASSERT_EQ(FindHkv(2), request);
  EXPECT_EQ(Request(request).hint, 0);
}

TEST_F(HkvTest, ALosersAnswerIsOneDatagramAndDroppedHoweverLate) {
  Ask(1);
  const uint32_t request = FindHkv(1);
  FireNow(request);
  Clones(HR_MARK_HEDGE, 1);
  EXPECT_THAT(Reply(HkvReply4(1, kB4)).changes, Contains(Pair("hkv4.won_by_hedge", 1)));
  EndRetention(request);
  VisitAll();
  ASSERT_EQ(FindHkv(1), 0u);
  EXPECT_THAT(Reply(HkvReply4(1, kA4)).changes, Contains(Pair("hkv4:late", 1)));
}

}  // namespace
}  // namespace hedgerow::packets
