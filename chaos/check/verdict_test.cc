// SPDX-License-Identifier: Apache-2.0
#include "chaos/check/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::chaos {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Record Answered(Kind kind, uint64_t value, uint64_t sent_ns, uint64_t ended_ns) {
  return {.kind = kind, .value = value, .sent_ns = sent_ns, .ended_ns = ended_ns, .ending = Ending::kOk};
}
Record Unanswered(Kind kind, uint64_t value, uint64_t sent_ns, Ending ending = Ending::kTimedOut) {
  return {.kind = kind, .value = value, .sent_ns = sent_ns, .ended_ns = sent_ns + 5, .ending = ending};
}

TEST(Judge, AcceptsAHistoryOfOneStore) {
  const Verdict verdict =
      Judge({Answered(Kind::kIncrement, 1, 1, 2), Unanswered(Kind::kIncrement, 0, 3),
             Answered(Kind::kIncrement, 3, 9, 10), Answered(Kind::kPut, 7, 1, 2), Answered(Kind::kGet, 7, 3, 4),
             Unanswered(Kind::kPut, 8, 5, Ending::kError), Unanswered(Kind::kGet, 0, 6)},
            {Answered(Kind::kReadCounter, 3, 20, 21), Answered(Kind::kGet, 8, 20, 21)})
          .value();
  EXPECT_TRUE(verdict.linearizable) << ToJson(verdict);
  EXPECT_EQ(verdict.operations, 7u);
  EXPECT_EQ(verdict.answered, 4u);
  EXPECT_EQ(verdict.unknown, 2u) << "a read without an answer leaves no doubt";
  EXPECT_EQ(verdict.keys, 2u);
  EXPECT_EQ(verdict.acked_lost, 0u);
  EXPECT_EQ(verdict.double_applied, 0u);
}

TEST(Judge, SeesAnAcknowledgedIncrementThatIsLost) {
  const Verdict verdict = Judge({Answered(Kind::kIncrement, 1, 1, 2), Answered(Kind::kIncrement, 2, 3, 4)},
                                {Answered(Kind::kReadCounter, 1, 20, 21)})
                              .value();
  EXPECT_EQ(verdict.acked_lost, 1u);
  EXPECT_FALSE(verdict.linearizable);
  EXPECT_THAT(verdict.violations, ElementsAre(HasSubstr("counter0: an acknowledged increment is lost")));
}

TEST(Judge, SeesAnIncrementThatWasAppliedTwice) {
  const Verdict verdict = Judge({Answered(Kind::kIncrement, 1, 1, 2), Answered(Kind::kIncrement, 3, 3, 4)},
                                {Answered(Kind::kReadCounter, 3, 20, 21)})
                              .value();
  EXPECT_EQ(verdict.double_applied, 1u);
  EXPECT_EQ(verdict.acked_lost, 0u);
  EXPECT_FALSE(verdict.linearizable);
}

TEST(Judge, SeesAnAcknowledgedPutThatIsLost) {
  const std::vector<Record> history = {Answered(Kind::kPut, 7, 1, 2), Answered(Kind::kPut, 8, 3, 4),
                                       Answered(Kind::kPut, 9, 3, 4)};
  const Verdict verdict = Judge(history, {Answered(Kind::kGet, 7, 20, 21)}).value();
  EXPECT_EQ(verdict.acked_lost, 2u);
  EXPECT_FALSE(verdict.linearizable);
  EXPECT_EQ(Judge(history, {Answered(Kind::kGet, 0, 20, 21)})->acked_lost, 3u);
  EXPECT_EQ(Judge(history, {Answered(Kind::kGet, 9, 20, 21)})->acked_lost, 0u);
}

TEST(Judge, APutWithoutAnAnswerMayComeLast) {
  const Verdict verdict =
      Judge({Unanswered(Kind::kPut, 7, 1), Answered(Kind::kPut, 8, 3, 4)}, {Answered(Kind::kGet, 7, 20, 21)}).value();
  EXPECT_EQ(verdict.acked_lost, 0u);
  EXPECT_TRUE(verdict.linearizable);
}

TEST(Judge, ReplicasThatDifferAreSeen) {
  const Verdict verdict =
      Judge({Answered(Kind::kPut, 7, 1, 2)}, {Answered(Kind::kGet, 7, 20, 21), Answered(Kind::kGet, 0, 22, 23)})
          .value();
  EXPECT_FALSE(verdict.linearizable);
}

TEST(Judge, AHistoryThatSaysNothingIsRefused) {
  EXPECT_FALSE(Judge({Answered(Kind::kPut, 7, 1, 2)}, {}).ok());
  EXPECT_FALSE(Judge({Unanswered(Kind::kPut, 7, 1, Ending::kPending)}, {Answered(Kind::kGet, 7, 20, 21)}).ok());
  EXPECT_FALSE(Judge({Answered(Kind::kPut, 7, 1, 2)}, {Unanswered(Kind::kGet, 7, 20)}).ok());
}

}  // namespace
}  // namespace hedgerow::chaos
