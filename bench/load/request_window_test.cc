// SPDX-License-Identifier: Apache-2.0
//
// The deadlines of the hedging client are absolute: what arrives, and when, cannot move them.
#include "bench/load/request_window.h"

#include <gtest/gtest.h>

namespace hedgerow::bench {
namespace {

constexpr int64_t kDelayNs = 10'000'000;
constexpr int64_t kTimeoutNs = 1'000'000'000;
constexpr HedgePolicy kHedge{.enabled = true, .delay_ns = kDelayNs};

TEST(RequestWindow, HedgeIsDueAtSendPlusDelayAndNotBefore) {
  RequestWindow window(16, kHedge, kTimeoutNs);
  ASSERT_TRUE(window.Begin(0, 900, 1'000));
  EXPECT_EQ(window.NextDueNs(), 1'000 + kDelayNs);
  EXPECT_EQ(window.TakeDueHedge(999 + kDelayNs), nullptr);
  Request* due = window.TakeDueHedge(1'000 + kDelayNs);
  ASSERT_NE(due, nullptr);
  EXPECT_EQ(due->seq, 0u);
  EXPECT_EQ(window.TakeDueHedge(1'000 + kDelayNs), nullptr) << "a hedge is sent once";
}

TEST(RequestWindow, StrayDatagramsDoNotMoveTheDeadlines) {
  RequestWindow window(16, kHedge, kTimeoutNs);
  ASSERT_TRUE(window.Begin(0, 0, 0));
  for (int64_t now_ns = 1; now_ns < kDelayNs; now_ns += 1'000'000) {
    EXPECT_EQ(window.OnAnswer(77, 0, now_ns), AnswerVerdict::kUnknown);
    EXPECT_EQ(window.NextDueNs(), kDelayNs);
  }
  EXPECT_NE(window.TakeDueHedge(kDelayNs), nullptr);
}

TEST(RequestWindow, LateAnswerOfAnEarlierRequestDoesNotMoveTheDeadlines) {
  RequestWindow window(16, kHedge, kTimeoutNs);
  ASSERT_TRUE(window.Begin(0, 0, 0));
  EXPECT_EQ(window.OnAnswer(0, 0, 1'000), AnswerVerdict::kFirst);
  ASSERT_TRUE(window.Begin(1, 2'000, 2'000));
  EXPECT_EQ(window.OnAnswer(0, 1, 5'000'000), AnswerVerdict::kDuplicate);
  EXPECT_EQ(window.NextDueNs(), 2'000 + kDelayNs);
}

TEST(RequestWindow, AnswerBetweenDueTimeAndSendSavesTheHedge) {
  RequestWindow window(16, kHedge, kTimeoutNs);
  ASSERT_TRUE(window.Begin(0, 0, 0));
  EXPECT_EQ(window.OnAnswer(0, 0, kDelayNs + 5), AnswerVerdict::kFirst);
  EXPECT_EQ(window.TakeDueHedge(kDelayNs + 10), nullptr);
  EXPECT_EQ(window.NextDueNs(), kNeverNs);
}

TEST(RequestWindow, AnsweredRequestsAreNeitherHedgedNorTimedOut) {
  RequestWindow window(16, kHedge, kTimeoutNs);
  ASSERT_TRUE(window.Begin(0, 0, 0));
  ASSERT_TRUE(window.Begin(1, 10, 10));
  EXPECT_EQ(window.OnAnswer(0, 0, 20), AnswerVerdict::kFirst);
  Request* due = window.TakeDueHedge(kTimeoutNs + 10);
  ASSERT_NE(due, nullptr);
  EXPECT_EQ(due->seq, 1u);
  Request* lost = window.TakeTimeout(kTimeoutNs + 10);
  ASSERT_NE(lost, nullptr);
  EXPECT_EQ(lost->seq, 1u);
  EXPECT_EQ(window.pending(), 0u);
}

TEST(RequestWindow, TheLosersAnswerIsExpectedOnlyAfterAHedge) {
  RequestWindow window(16, kHedge, kTimeoutNs);
  ASSERT_TRUE(window.Begin(0, 0, 0));
  window.MarkHedged(*window.TakeDueHedge(kDelayNs), kDelayNs);
  EXPECT_EQ(window.OnAnswer(0, 1, kDelayNs + 1), AnswerVerdict::kFirst);
  EXPECT_EQ(window.Find(0)->winner, 1);
  EXPECT_EQ(window.OnAnswer(0, 0, kDelayNs + 2), AnswerVerdict::kLoser);
  EXPECT_EQ(window.OnAnswer(0, 0, kDelayNs + 3), AnswerVerdict::kDuplicate) << "two sends explain two answers";
}

TEST(RequestWindow, ARequestSentTwiceAtOnceIsNotHedgedAndHasTwoAnswers) {
  RequestWindow window(16, kHedge, kTimeoutNs);
  ASSERT_TRUE(window.Begin(0, 0, 0));
  window.Find(0)->sends = 2;
  ASSERT_TRUE(window.Begin(1, 1, 1));
  Request* due = window.TakeDueHedge(kDelayNs + 1);
  ASSERT_NE(due, nullptr);
  EXPECT_EQ(due->seq, 1u);
  EXPECT_EQ(window.OnAnswer(0, 2, kDelayNs + 2), AnswerVerdict::kFirst);
  EXPECT_EQ(window.OnAnswer(0, 0, kDelayNs + 3), AnswerVerdict::kLoser);
  EXPECT_EQ(window.OnAnswer(0, 0, kDelayNs + 4), AnswerVerdict::kDuplicate);
}

TEST(RequestWindow, ASlotSaysWhatItsLastRequestLeftOutstanding) {
  RequestWindow window(2, {}, kTimeoutNs);
  ASSERT_TRUE(window.Begin(0, 0, 0));
  window.Find(0)->outstanding = 0b110;
  ASSERT_TRUE(window.Begin(1, 0, 0));
  EXPECT_EQ(window.OnAnswer(0, 1, 1), AnswerVerdict::kFirst);
  EXPECT_EQ(window.OutstandingBefore(2), 0b110);
  ASSERT_TRUE(window.Begin(2, 2, 2));
  EXPECT_EQ(window.Find(2)->outstanding, 0);
}

TEST(RequestWindow, AnswerAfterTheDeadlineIsLateWhoeverLooksFirst) {
  RequestWindow window(16, {}, kTimeoutNs);
  ASSERT_TRUE(window.Begin(0, 0, 0));
  ASSERT_TRUE(window.Begin(1, 0, 0));
  EXPECT_EQ(window.OnAnswer(0, 0, kTimeoutNs), AnswerVerdict::kLate) << "read before the time-out was taken";
  EXPECT_EQ(window.TakeTimeout(kTimeoutNs)->seq, 0u);
  EXPECT_EQ(window.TakeTimeout(kTimeoutNs)->seq, 1u);
  EXPECT_EQ(window.OnAnswer(1, 0, kTimeoutNs + 1), AnswerVerdict::kLate) << "read after";
}

TEST(RequestWindow, WithoutHedgingOnlyTheTimeOutIsDue) {
  RequestWindow window(16, {}, kTimeoutNs);
  ASSERT_TRUE(window.Begin(0, 0, 5));
  EXPECT_EQ(window.NextDueNs(), 5 + kTimeoutNs);
  EXPECT_EQ(window.TakeDueHedge(kNeverNs), nullptr);
}

TEST(RequestWindow, SlotIsNotReusedWhileItsRequestIsPending) {
  RequestWindow window(2, {}, kTimeoutNs);
  ASSERT_TRUE(window.Begin(0, 0, 0));
  ASSERT_TRUE(window.Begin(1, 0, 0));
  EXPECT_FALSE(window.Begin(2, 0, 0));
  EXPECT_EQ(window.OnAnswer(0, 0, 1), AnswerVerdict::kFirst);
  EXPECT_TRUE(window.Begin(2, 0, 2));
  EXPECT_EQ(window.OnAnswer(0, 0, 3), AnswerVerdict::kUnknown) << "the slot belongs to request 2 now";
  EXPECT_EQ(window.pending(), 2u);
}

TEST(RequestWindow, CursorsSurviveManyRoundsOfASmallWindow) {
  RequestWindow window(4, kHedge, kTimeoutNs);
  int64_t now_ns = 0;
  int hedges = 0;
  int timeouts = 0;
  for (uint64_t seq = 0; seq < 1'000; ++seq) {
    ASSERT_TRUE(window.Begin(seq, now_ns, now_ns));
    now_ns += kDelayNs;
    if (Request* due = window.TakeDueHedge(now_ns)) {
      window.MarkHedged(*due, now_ns);
      ++hedges;
    }
    if (seq % 2 == 0) {
      ASSERT_EQ(window.OnAnswer(seq, 1, now_ns + 1), AnswerVerdict::kFirst);
    } else {
      now_ns += kTimeoutNs;
      while (window.TakeTimeout(now_ns) != nullptr) ++timeouts;
    }
  }
  EXPECT_EQ(hedges, 1'000);
  EXPECT_EQ(timeouts, 500);
  EXPECT_EQ(window.pending(), 0u);
}

}  // namespace
}  // namespace hedgerow::bench
