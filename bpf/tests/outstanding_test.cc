// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// A key that is used again while replies to older requests are outstanding, where nothing in a reply says which request
// it answers (no echo): hr_request.outstanding.
#include <cstring>

#include "bpf/tests/kernel_fixture.h"
#include "proxy/profiles/profile_test.h"

namespace hedgerow::packets {
namespace {

using ::testing::Contains;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr uint32_t kA = 0b001, kB = 0b010, kC = 0b100;

class OutstandingTest : public PacketTest {
 protected:
  void SetUp() override {
    PacketTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ServiceState(kRaw4Service).budget_micros = 50'000'000;
    ServiceConfig(kRaw4Service).deadline_ns = 2 * kSecond;
    ServiceConfig(kRaw4Service).retention_ns = kSecond;
    BackendState(kRaw4C).answer_ewma_ns = kSecond;  // so b is the better standby
  }
  // One client's requests under one key; the version says which one a reply really answers.
  uint32_t Ask(uint8_t version) {
    Split(PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, {7, 0, 0, 0, version}).Build());
    return FindRequest(kRaw4Service, kClient4, kClientPort, {7, 0, 0, 0});
  }
  int Answer(const char *backend, uint8_t version) {
    return Reply(PacketBuilder(backend, kClient4).Udp(9000, kClientPort, {7, 0, 0, 0, version}).Build()).verdict;
  }
  // Its deadline has passed, and no backend has answered.
  uint32_t AskInVain(uint8_t version) {
    ServiceConfig(kRaw4Service).profile.one_datagram = 1;  // so it is retained
    const uint32_t request = Ask(version);
    MakeExpired(request);
    VisitAll();
    EXPECT_EQ(StateOf(request), HR_STATE_EXPIRED);
    return request;
  }
  // The leader has this request, and its hedge is answered.
  void LeaveOneAtTheLeader(uint8_t version) {
    const uint32_t request = Ask(version);
    ASSERT_EQ(SentTo(request), kA);
    FireNow(request);
    ASSERT_EQ(SentTo(request), kA | kB);
    ASSERT_EQ(Answer(kB4, version), kRedirected);
  }
  // A reply counts as lost so long after its request was sent: the deadline, the retention and two ticks.
  static constexpr uint64_t kLapse = 3 * kSecond + (uint64_t{2} << HR_OUTSTANDING_TICK_SHIFT);
};

// The leader is stalled. Each request is answered by another backend, so the client uses its key again.
TEST_F(OutstandingTest, NoReplyOfABacklogIsTakenForTheRequestInHand) {
  const std::vector<const char *> addresses = {kA4, kB4, kC4};
  std::vector<uint8_t> backlog;
  for (uint8_t version = 1; version <= 6; ++version) {
    const uint32_t request = Ask(version);
    if (SentTo(request) & kA) backlog.push_back(version);
    if (version == 6) break;
    if (SentTo(request) == kA) FireNow(request);
    if (backlog.empty() || backlog.back() != version) ASSERT_EQ(SentTo(request) & kA, 0u);
    for (uint32_t place = 1; place < 3; ++place)
      if (SentTo(request) >> place & 1) {
        ASSERT_EQ(Answer(addresses[place], version), kRedirected) << int{version};
        break;
      }
  }
  ASSERT_FALSE(backlog.empty());
  for (const uint8_t version : backlog)
    EXPECT_EQ(Answer(kA4, version), version == 6 ? kRedirected : kDropped)
        << "the leader answers request " << int{version};
}

TEST_F(OutstandingTest, ABackendThatOwesAReplyIsNotAskedUntilItHasCome) {
  LeaveOneAtTheLeader(1);
  uint32_t request = Ask(2);
  EXPECT_EQ(SentTo(request), kB);
  EXPECT_EQ(Outstanding(request), kA);
  FireNow(request);
  EXPECT_EQ(SentTo(request), kB | kC) << "nor hedged to";
  EXPECT_EQ(Answer(kB4, 2), kRedirected);
  EXPECT_EQ(Answer(kC4, 2), kDropped);
  EXPECT_EQ(Answer(kA4, 1), kDropped);
  request = Ask(3);
  EXPECT_EQ(SentTo(request), kA);
  EXPECT_EQ(Answer(kA4, 3), kRedirected);
}

TEST_F(OutstandingTest, AnOutstandingReplyIsASignOfLifeAndAnotherDatagramIsNone) {
  LeaveOneAtTheLeader(1);
  const uint32_t request = Ask(2);
  ASSERT_EQ(SentTo(request), kB);
  ASSERT_NE(BackendState(kRaw4A).wait_since, 0u);
  EXPECT_EQ(Answer(kA4, 1), kDropped);
  EXPECT_EQ(BackendState(kRaw4A).wait_since, 0u) << "a leader that answers late is not silent";
  BackendState(kRaw4A).wait_since = HR_WAIT(NowNs(), Request(request).client);
  EXPECT_EQ(Answer(kA4, 1), kDropped);
  EXPECT_NE(BackendState(kRaw4A).wait_since, 0u) << "no reply is outstanding: it may be forged";
  BackendState(kRaw4A).wait_since = 0;
}

TEST_F(OutstandingTest, ACopyBesideASuspectLeaderIsNotSentWhereAReplyIsOutstanding) {
  LeaveOneAtTheLeader(1);
  Silence(kRaw4A, 41 * kSecond);  // longer than its suspicion timeout of 40 s
  for (uint8_t version = 2; version <= 4; ++version) {
    EXPECT_EQ(SentTo(Ask(version)), kB);
    EXPECT_EQ(Answer(kB4, version), kRedirected);
  }
  EXPECT_EQ(Answer(kA4, 1), kDropped);
}

TEST_F(OutstandingTest, ALostReplyIsForgottenWhileTheKeyIsInUse) {
  LeaveOneAtTheLeader(1);
  Advance(2900 * kMillisecond);
  EXPECT_EQ(SentTo(Ask(2)), kB);
  EXPECT_EQ(Answer(kB4, 2), kRedirected);
  Advance(kLapse - 2900 * kMillisecond);
  EXPECT_EQ(SentTo(Ask(3)), kA);
  EXPECT_EQ(Answer(kA4, 3), kRedirected);
}

// The only healthy backend owes the key two replies, so no attempt may follow the leader's refusal: the client gets it.
TEST_F(OutstandingTest, ARefusalThatNoAttemptCanReplaceReachesTheClient) {
  const hr_profile refusing =
      OwnProfile("{request_length: 4, reply_length: 4, negative_replies: [{match: [{offset: 4, bytes: \"ee\"}]}]}");
  std::memcpy(const_cast<hr_profile *>(&ServiceConfig(kRaw4Service).profile), &refusing, sizeof(refusing));
  BackendState(kRaw4A).probe_counter = 1;  // not its turn to be probed
  for (const uint32_t backend : {kRaw4A, kRaw4C}) {
    BackendState(backend).health = HR_DOWN;
    BackendState(backend).health_since_ns = NowNs();
  }
  ASSERT_EQ(SentTo(AskInVain(1)) & kB, kB);
  ASSERT_EQ(SentTo(AskInVain(2)) & kB, kB);
  BackendState(kRaw4A).health = HR_HEALTHY;
  const uint32_t request = Ask(3);
  ASSERT_EQ(SentTo(request), kA);
  ASSERT_EQ(HR_OUTSTANDING_TWO(Request(request).outstanding) & kB, kB);
  const RunResult nack = Reply(PacketBuilder(kA4, kClient4).Udp(9000, kClientPort, {7, 0, 0, 0, 0xee}).Build());
  EXPECT_EQ(nack.verdict, kRedirected);
  EXPECT_THAT(nack.changes, Contains(Pair("raw4.nacked", 1)));
  EXPECT_EQ(ServiceState(kRaw4Service).owed[HR_DEBT_RETRIES], 0) << "what is not sent is not owed";
}

TEST_F(OutstandingTest, WhereNoOtherIsHealthyTheOneThatOwesIsAskedTwiceAndNoMore) {
  LeaveOneAtTheLeader(1);
  uint32_t request = Ask(2);
  ASSERT_EQ(SentTo(request), kB);
  BackendState(kRaw4C).health = HR_DOWN;
  BackendState(kRaw4C).health_since_ns = NowNs();
  FireNow(request);
  EXPECT_EQ(SentTo(request), kA | kB);
  EXPECT_EQ(Answer(kB4, 2), kRedirected);
  request = Ask(3);
  EXPECT_EQ(SentTo(request), kB);
  FireNow(request);
  EXPECT_EQ(SentTo(request) & kA, 0u);
  for (uint8_t version = 1; version <= 2; ++version) EXPECT_EQ(Answer(kA4, version), kDropped) << int{version};
  EXPECT_EQ(Outstanding(request), 0u);
  EXPECT_EQ(Answer(kB4, 3), kRedirected);
}

// raw: nothing in a reply tells the two apart. The older one keeps the key, and both replies reach the client.
TEST_F(OutstandingTest, TwoRequestsThatWaitUnderOneKeyBothGetTheirReply) {
  const uint32_t request = Ask(1);
  EXPECT_EQ(Ask(2), request);
  EXPECT_EQ(Answer(kA4, 1), kRedirected);
  EXPECT_EQ(StateOf(request), HR_STATE_ANSWERED);
  EXPECT_EQ(Answer(kA4, 2), kRedirected);
}

class ExpiredOutstandingTest : public OutstandingTest {
 protected:
  void SetUp() override {
    OutstandingTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ServiceConfig(kRaw4Service).suspect_min_ns = 100 * kMillisecond;
    ServiceConfig(kRaw4Service).suspect_max_ns = 100 * kMillisecond;
    for (const uint32_t backend : {kRaw4B, kRaw4C}) {  // so the leader is asked although it owes a reply
      BackendState(backend).health = HR_DOWN;
      BackendState(backend).health_since_ns = NowNs();
    }
  }
};

// A lost reply: the next request's own is dropped in its place, and the one after that is believed.
TEST_F(ExpiredOutstandingTest, WhatCameWithinTheSuspicionTimeoutWasTheLastRequestsReply) {
  AskInVain(1);
  const uint32_t request = Ask(2);
  EXPECT_EQ(Outstanding(request), kA);
  EXPECT_EQ(Answer(kA4, 2), kDropped) << "the reply to 1 may come yet";
  Advance(101 * kMillisecond);
  EXPECT_EQ(Outstanding(Ask(3)), 0u);
  EXPECT_EQ(Answer(kA4, 3), kRedirected);
}

TEST_F(ExpiredOutstandingTest, ASilentBackendsRepliesStayOutstanding) {
  AskInVain(1);
  AskInVain(2);
  const uint32_t request = Ask(3);
  EXPECT_EQ(Outstanding(request), kA);
  EXPECT_EQ(HR_OUTSTANDING_TWO(Request(request).outstanding), kA);
}

TEST_F(ExpiredOutstandingTest, AnOlderReplyIsForgottenBeforeAYoungerOne) {
  uint32_t request = AskInVain(1);
  Request(request).outstanding = HR_OUTSTANDING(kC, kC, HR_OUTSTANDING_TICK(NowNs() - kLapse));
  request = AskInVain(2);
  EXPECT_EQ(Outstanding(request), kA);
  EXPECT_EQ(HR_OUTSTANDING_TWO(Request(request).outstanding), 0u);
  Request(request).outstanding = HR_OUTSTANDING(kC, kC, HR_OUTSTANDING_TICK(NowNs() - 3 * kSecond));
  request = Ask(3);
  EXPECT_EQ(Outstanding(request), kA | kC);
  EXPECT_EQ(HR_OUTSTANDING_TWO(Request(request).outstanding), kC);
}

TEST_F(OutstandingTest, ADryRunSteersNothing) {
  LeaveOneAtTheLeader(1);
  ServicePolicy(kRaw4Service).switches = HR_SWITCH_DRY_RUN;
  EXPECT_EQ(SentTo(Ask(2)), kA);
}

}  // namespace
}  // namespace hedgerow::packets
