// SPDX-License-Identifier: Apache-2.0
#include "cluster/client/pending_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::client {
namespace {

using wire::HkvAnswer;
using wire::HkvKind;
using wire::HkvStatus;

constexpr uint64_t kTimeout_ns = 1'000'000'000;
constexpr kv::SessionName kSecret{.id = 77, .token = 78};

kv::Operation Increment(std::string key) {
  return {.kind = kv::OperationKind::kIncrement, .key = std::move(key), .delta = 1};
}

HkvAnswer AnswerTo(const wire::HkvRequest& request) {
  return {.kind = request.kind, .client_id = request.client_id, .seq = request.seq};
}

class PendingRequestsTest : public testing::Test {
 protected:
  void OpenSession(uint64_t session) {
    const absl::StatusOr<Draft> open = requests_.Open(session + 1000, 1, kTimeout_ns);
    ASSERT_TRUE(open.ok());
    HkvAnswer answer = AnswerTo(open->request);
    answer.session = session;
    answer.token = session + 50;
    ASSERT_TRUE(requests_.Answer(answer, 2).has_value());
    ASSERT_EQ(requests_.session(), session);
  }
  wire::HkvRequest Write(uint64_t now_ns = 10) {
    return requests_.Write({Increment("a")}, now_ns, kTimeout_ns).value().request;
  }
  wire::HkvRequest Get(uint64_t now_ns = 10) { return requests_.Get("a", now_ns, kTimeout_ns).value().request; }

  PendingRequests requests_{kSecret, 4};
};

TEST_F(PendingRequestsTest, AWriteNeedsASessionAndAReadDoesNot) {
  EXPECT_EQ(requests_.Write({Increment("a")}, 1, kTimeout_ns).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Get().token, 0u);
  OpenSession(5);
  EXPECT_NE(Get().client_id, 5u);
  const wire::HkvRequest write = Write();
  EXPECT_EQ(write.client_id, 5u);
  EXPECT_EQ(write.token, 55u);
}

// An answer is taken by these numbers: one that has not seen a request must not be able to foresee its.
TEST_F(PendingRequestsTest, TheNumbersOfReadsDoNotTellTheNextOnes) {
  const wire::HkvRequest first = Get(), second = Get();
  EXPECT_EQ(first.client_id, second.client_id);
  EXPECT_NE(first.client_id, kSecret.id);
  EXPECT_GT(first.seq, 1u << 20);
  EXPECT_GT(second.seq - first.seq, 1u << 20);
  EXPECT_GT(first.seq - second.seq, 1u << 20);
  PendingRequests other({.id = 77, .token = 79}, 4);
  const wire::HkvRequest of_other = other.Get("a", 10, kTimeout_ns).value().request;
  EXPECT_NE(of_other.client_id, first.client_id);
  EXPECT_NE(of_other.seq, first.seq);
}

TEST_F(PendingRequestsTest, AWriteWithoutASessionStandsForItselfUnderItsNonce) {
  const absl::StatusOr<Draft> once = requests_.WriteOnce(1234, {Increment("a")}, 1, kTimeout_ns);
  ASSERT_TRUE(once.ok());
  EXPECT_EQ(once->request.client_id, wire::kHkvNoSession);
  EXPECT_EQ(once->request.seq, 1234u);
  EXPECT_EQ(once->request.lowest_unanswered, 0u);
  EXPECT_EQ(requests_.WriteOnce(1234, {}, 1, kTimeout_ns).status().code(), absl::StatusCode::kAlreadyExists);
  OpenSession(5);
  EXPECT_EQ(requests_.lowest_unanswered(), 1u) << "it holds nothing back";
  EXPECT_EQ(Write().seq, 1u) << "nor does it take one of the session's numbers";
  const std::optional<Outcome> outcome = requests_.Answer(AnswerTo(once->request), 20);
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->seq, 1234u);
  EXPECT_EQ(requests_.lowest_unanswered(), 1u);
}

TEST_F(PendingRequestsTest, ASessionsWritesAreCounted) {
  OpenSession(5);
  EXPECT_EQ(Write().seq, 1u);
  Get();
  EXPECT_EQ(Write().seq, 2u);
}

TEST_F(PendingRequestsTest, TheLowestUnansweredIsTheOldestWriteWithoutAnAnswer) {
  OpenSession(5);
  const wire::HkvRequest read = Get();
  const wire::HkvRequest first = Write();
  EXPECT_EQ(first.lowest_unanswered, 1u) << "a read holds nothing back";
  const wire::HkvRequest second = Write();
  EXPECT_EQ(second.lowest_unanswered, 1u);
  ASSERT_TRUE(requests_.Answer(AnswerTo(second), 20).has_value());
  EXPECT_EQ(requests_.lowest_unanswered(), 1u) << "the first is still open";
  ASSERT_TRUE(requests_.Answer(AnswerTo(first), 21).has_value());
  EXPECT_EQ(requests_.lowest_unanswered(), 3u) << "nothing is open: the next to be sent";
  ASSERT_TRUE(requests_.Answer(AnswerTo(read), 22).has_value());
  EXPECT_EQ(Write().lowest_unanswered, 3u);
}

TEST_F(PendingRequestsTest, AWriteThatIsGivenUpHoldsNothingBack) {
  OpenSession(5);
  const wire::HkvRequest given_up = Write(10);
  EXPECT_EQ(requests_.next_deadline_ns(), 10 + kTimeout_ns);
  EXPECT_FALSE(requests_.GiveUp(9 + kTimeout_ns).has_value());
  const std::optional<Outcome> outcome = requests_.GiveUp(10 + kTimeout_ns);
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->seq, given_up.seq);
  EXPECT_FALSE(outcome->answer.has_value());
  EXPECT_EQ(Write().lowest_unanswered, given_up.seq + 1);
  EXPECT_FALSE(requests_.Answer(AnswerTo(given_up), 30).has_value()) << "its answer comes too late";
}

TEST_F(PendingRequestsTest, AnAnswerCountsOnce) {
  OpenSession(5);
  const wire::HkvRequest request = Write(10);
  const std::optional<Outcome> outcome = requests_.Answer(AnswerTo(request), 35);
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->sent_ns, 10u);
  EXPECT_EQ(outcome->ended_ns, 35u);
  EXPECT_FALSE(requests_.Answer(AnswerTo(request), 36).has_value());
  EXPECT_EQ(requests_.next_deadline_ns(), UINT64_MAX);
}

TEST_F(PendingRequestsTest, AnAnswerOfAnotherKindIsNotTaken) {
  OpenSession(5);
  HkvAnswer answer = AnswerTo(Write());
  answer.kind = HkvKind::kGet;
  EXPECT_FALSE(requests_.Answer(answer, 20).has_value());
  answer.status = HkvStatus::kMalformed;
  EXPECT_TRUE(requests_.Answer(answer, 20).has_value()) << "who did not understand the request cannot tell its kind";
}

TEST_F(PendingRequestsTest, ANewSessionStartsWithNothingOpen) {
  OpenSession(5);
  const wire::HkvRequest of_the_old = Write();
  OpenSession(6);
  const wire::HkvRequest of_the_new = Write();
  EXPECT_EQ(of_the_new.client_id, 6u);
  EXPECT_EQ(of_the_new.lowest_unanswered, of_the_new.seq);
  ASSERT_TRUE(requests_.Answer(AnswerTo(of_the_old), 20).has_value()) << "the old one's answer is still an answer";
  EXPECT_EQ(requests_.lowest_unanswered(), of_the_new.seq);
}

TEST_F(PendingRequestsTest, IsBounded) {
  OpenSession(5);
  for (int i = 0; i < 4; ++i) Write();
  EXPECT_EQ(requests_.Get("a", 10, kTimeout_ns).status().code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(requests_.GiveUp(UINT64_MAX - 1).has_value());
  EXPECT_TRUE(requests_.Get("a", 10, kTimeout_ns).ok());
}

TEST_F(PendingRequestsTest, WhatFitsNoDatagramIsRefusedAndNotOutstanding) {
  OpenSession(5);
  const kv::Operation put{.kind = kv::OperationKind::kPut, .key = "a", .value = std::string(1300, 'x')};
  EXPECT_EQ(requests_.Write({put}, 10, kTimeout_ns).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(requests_.Get(std::string(251, 'k'), 10, kTimeout_ns).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(requests_.outstanding(), 0u);
  EXPECT_EQ(Write().seq, 1u);
}

TEST_F(PendingRequestsTest, AnOverloadedWriteEndsWhereTheCallerSettlesItself) {
  OpenSession(5);
  HkvAnswer overloaded = AnswerTo(Write());
  overloaded.status = HkvStatus::kOverloaded;
  const std::optional<Outcome> outcome = requests_.Answer(overloaded, 20);
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->answer->status, HkvStatus::kOverloaded);
}

class SettlingBookTest : public PendingRequestsTest {
 protected:
  SettlingBookTest() { requests_ = PendingRequests(kSecret, 4, OnOverload::kSettle); }

  static HkvAnswer OverloadedTo(const wire::HkvRequest& request) {
    HkvAnswer answer = AnswerTo(request);
    answer.status = HkvStatus::kOverloaded;
    return answer;
  }
  // The next copy of a write that was sent at 10, if it is answered OVERLOADED at `now_ns`.
  Draft RepeatAfter(const wire::HkvRequest& request, uint64_t now_ns) {
    EXPECT_FALSE(requests_.Answer(OverloadedTo(request), now_ns).has_value());
    EXPECT_GT(requests_.next_repeat_ns(), now_ns);
    EXPECT_FALSE(requests_.Repeat(requests_.next_repeat_ns() - 1).has_value());
    std::optional<Draft> draft = requests_.Repeat(requests_.next_repeat_ns());
    EXPECT_TRUE(draft.has_value());
    EXPECT_EQ(requests_.next_repeat_ns(), UINT64_MAX) << "nothing is sent again before the next answer";
    return draft.value_or(Draft());
  }
};

TEST_F(SettlingBookTest, AnOverloadedWriteIsSentAgainUnderItsNumberWithTheTimeoutThatIsLeft) {
  OpenSession(5);
  const wire::HkvRequest request = Write(10);
  const Draft again = RepeatAfter(request, 100'000'000);
  EXPECT_EQ(again.request.seq, request.seq);
  EXPECT_EQ(again.request.operations, request.operations);
  EXPECT_EQ(again.request.lowest_unanswered, request.lowest_unanswered);
  EXPECT_LT(again.request.timeout_us, 900'001u);
  EXPECT_GT(again.request.timeout_us, 850'000u);
  EXPECT_EQ(again.datagram, wire::Encode(again.request));
  EXPECT_EQ(requests_.lowest_unanswered(), request.seq) << "it is still open";
  HkvAnswer done = AnswerTo(request);
  done.values = {"1"};
  const std::optional<Outcome> outcome = requests_.Answer(done, 200'000'000);
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->answer->status, HkvStatus::kOk);
  EXPECT_TRUE(outcome->overloaded);
}

TEST_F(SettlingBookTest, PausesGrowAndDifferByNumber) {
  OpenSession(5);
  const wire::HkvRequest first = Write(10), second = Write(10);
  requests_.Answer(OverloadedTo(first), 100);
  const uint64_t first_ns = requests_.next_repeat_ns();
  requests_.Repeat(first_ns);
  requests_.Answer(OverloadedTo(second), 100);
  EXPECT_NE(requests_.next_repeat_ns(), first_ns);
  requests_.Repeat(requests_.next_repeat_ns());
  requests_.Answer(OverloadedTo(first), 100);
  EXPECT_GE(requests_.next_repeat_ns() - 100, 2 * (first_ns - 100) - 128);
}

TEST_F(SettlingBookTest, TheAnswerToAnEarlierCopyDoesNotMoveTheNext) {
  OpenSession(5);
  const wire::HkvRequest request = Write(10);
  requests_.Answer(OverloadedTo(request), 100);
  const uint64_t repeat_ns = requests_.next_repeat_ns();
  requests_.Answer(OverloadedTo(request), 200);
  EXPECT_EQ(requests_.next_repeat_ns(), repeat_ns);
}

TEST_F(SettlingBookTest, AWriteThatIsRefusedToTheEndIsTakenBackUnderItsNumber) {
  OpenSession(5);
  const wire::HkvRequest request = Write(10);
  Draft again;
  uint64_t now_ns = 10;
  while (now_ns < 10 + 3 * kTimeout_ns / 4) {
    if (again.request.seq != 0) ASSERT_FALSE(again.request.operations.empty());
    requests_.Answer(OverloadedTo(request), now_ns + 1);
    now_ns = requests_.next_repeat_ns();
    again = requests_.Repeat(now_ns).value_or(Draft());
  }
  EXPECT_EQ(now_ns, 10 + 3 * kTimeout_ns / 4) << "not later: there must be time for an answer";
  EXPECT_EQ(again.request.kind, HkvKind::kCancel);
  EXPECT_EQ(again.request.seq, request.seq);
  EXPECT_EQ(again.request.token, request.token);
  again = RepeatAfter(request, now_ns + 1);
  EXPECT_EQ(again.request.kind, HkvKind::kCancel);
  EXPECT_LT(now_ns, 10 + kTimeout_ns);
  const std::optional<Outcome> outcome = requests_.Answer(AnswerTo(again.request), now_ns + 2);
  ASSERT_TRUE(outcome.has_value());
  EXPECT_EQ(outcome->kind, HkvKind::kWrite);
  EXPECT_EQ(outcome->answer->status, HkvStatus::kOverloaded) << "the CANCEL came first";
  EXPECT_EQ(Write().lowest_unanswered, request.seq + 1);
}

TEST_F(SettlingBookTest, AWriteThatCannotBeTakenBackAnyMoreIsDone) {
  for (const HkvKind kind : {HkvKind::kWrite, HkvKind::kCancel}) {
    OpenSession(5);
    const wire::HkvRequest request = Write(10);
    RepeatAfter(request, 10 + 3 * kTimeout_ns / 4);
    HkvAnswer done = AnswerTo(request);
    done.kind = kind;
    done.values = {"1"};
    const std::optional<Outcome> outcome = requests_.Answer(done, 10 + kTimeout_ns);
    ASSERT_TRUE(outcome.has_value());
    EXPECT_EQ(outcome->answer->status, HkvStatus::kOk);
    EXPECT_EQ(outcome->answer->kind, HkvKind::kWrite);
  }
}

// A late copy of a write that was taken back is answered MISMATCH, which must not be taken for a comparison.
TEST_F(SettlingBookTest, AMismatchOfAWriteThatWasTakenBackSaysThatItWasNotDone) {
  OpenSession(5);
  const wire::HkvRequest first = Write(10), second = Write(10);
  HkvAnswer mismatch = AnswerTo(first);
  mismatch.status = HkvStatus::kMismatch;
  RepeatAfter(first, 10 + 3 * kTimeout_ns / 4);
  EXPECT_EQ(requests_.Answer(mismatch, 10 + kTimeout_ns)->answer->status, HkvStatus::kOverloaded);
  RepeatAfter(second, 10 + 3 * kTimeout_ns / 4);
  mismatch.seq = second.seq;
  mismatch.kind = HkvKind::kCancel;
  EXPECT_EQ(requests_.Answer(mismatch, 10 + kTimeout_ns)->answer->status, HkvStatus::kMismatch)
      << "the CANCEL repeats what the write found";
}

TEST_F(SettlingBookTest, TheAnswerToACancelIsNoneBeforeOneWasSent) {
  OpenSession(5);
  HkvAnswer answer = AnswerTo(Write(10));
  answer.kind = HkvKind::kCancel;
  EXPECT_FALSE(requests_.Answer(answer, 20).has_value());
}

TEST_F(SettlingBookTest, WithoutAnAnswerToTheLastCopyTheWriteStaysInDoubt) {
  OpenSession(5);
  const wire::HkvRequest request = Write(10);
  EXPECT_FALSE(requests_.Answer(OverloadedTo(request), 20).has_value());
  const std::optional<Outcome> outcome = requests_.GiveUp(10 + kTimeout_ns);
  ASSERT_TRUE(outcome.has_value());
  EXPECT_FALSE(outcome->answer.has_value());
  EXPECT_TRUE(outcome->overloaded);
  EXPECT_EQ(requests_.next_repeat_ns(), UINT64_MAX);
}

TEST_F(SettlingBookTest, CopiesOfANonceStopBeforeAProxysCopiesOfThemCouldOutliveTheWindow) {
  const uint64_t minute_ns = 60'000'000'000;
  const wire::HkvRequest request = requests_.WriteOnce(1234, {Increment("a")}, 10, minute_ns)->request;
  requests_.Answer(OverloadedTo(request), 10 + 3'700'000'000);
  const std::optional<Draft> again = requests_.Repeat(10 + 3'750'000'000);
  ASSERT_TRUE(again.has_value());
  EXPECT_TRUE(again->request.operations.empty());
  EXPECT_FALSE(requests_.Answer(OverloadedTo(request), 10 + 4'999'000'000).has_value());
  EXPECT_EQ(requests_.next_repeat_ns(), UINT64_MAX);
  EXPECT_FALSE(requests_.GiveUp(10 + minute_ns)->answer.has_value());
}

TEST_F(SettlingBookTest, OnlyWritesThatChangeSomethingAreSentAgain) {
  OpenSession(5);
  EXPECT_TRUE(requests_.Answer(OverloadedTo(Get()), 20).has_value());
  EXPECT_TRUE(requests_.Answer(OverloadedTo(requests_.Open(7, 10, kTimeout_ns)->request), 20).has_value());
  EXPECT_TRUE(requests_.Answer(OverloadedTo(requests_.Write({}, 10, kTimeout_ns)->request), 20).has_value());
}

TEST_F(PendingRequestsTest, TimeoutIsSaidInMicrosecondsAndNeverAsZero) {
  EXPECT_EQ(requests_.Get("a", 1, 5'000'000'000)->request.timeout_us, 5'000'000u);
  EXPECT_EQ(requests_.Get("a", 1, 10)->request.timeout_us, 1u);
}

}  // namespace
}  // namespace hedgerow::client
