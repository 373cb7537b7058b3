// SPDX-License-Identifier: Apache-2.0
//
// Requests made of events again: which belong together, when a request is over, how it ended, what is missing.

#include "proxy/trace/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kStart = 1'000'000'000'000;

class TimelinesTest : public testing::Test {
 protected:
  TimelinesTest() {
    v1::TraceReply reply;
    v1::TraceService& service = *reply.add_services();
    service.set_name("dns");
    service.set_deadline_ns(2'000 * kMs);
    service.set_retention_ns(1'000 * kMs);
    timelines_.SetServices(reply);
  }

  v1::TraceEvent Event(const std::string& kind, int64_t since_ms, const std::string& backend,
                       const std::string& state = "pending", const std::string& request = "1.0") {
    v1::TraceEvent event;
    event.set_kind(kind);
    event.set_service("dns");
    event.set_client("10.77.0.1");
    event.set_client_port(40000);
    event.set_key("2a01");
    event.set_request(request);
    event.set_since_ns(since_ms * kMs);
    event.set_time_ns(kStart + since_ms * kMs);
    event.set_backend(backend);
    event.set_first("a");
    event.set_state(state);
    event.set_number(++numbers_[request]);
    return event;
  }
  // Split to a, hedged to b, which won.
  void AddHedged() {
    timelines_.Add(Event("split", 0, "a"));
    timelines_.Add(Event("due", 10, ""));
    timelines_.Add(Event("hedge", 10, "b"));
    v1::TraceEvent answer = Event("answer", 12, "b", "answered");
    answer.add_sent_to("a");
    answer.add_sent_to("b");
    answer.add_answered("b");
    timelines_.Add(answer);
  }
  void AddLoser() {
    v1::TraceEvent loser = Event("dropped", 800, "a", "answered");
    loser.set_reason("loser");
    for (const char* name : {"a", "b"}) {
      loser.add_sent_to(name);
      loser.add_answered(name);
    }
    timelines_.Add(loser);
  }
  std::vector<v1::TracedRequest> After(int64_t ms) { return timelines_.TakeFinished(kStart + ms * kMs); }

  Timelines timelines_;
  std::map<std::string, uint32_t> numbers_;
};

TEST_F(TimelinesTest, AHedgedRequestEndsWithItsLoser) {
  AddHedged();
  EXPECT_TRUE(After(500).empty()) << "an answer of a is outstanding";
  AddLoser();
  const auto finished = After(1'100);
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].outcome(), "hedge");
  EXPECT_EQ(finished[0].answered_by(), "b");
  EXPECT_EQ(finished[0].latency_ns(), 12 * kMs);
  EXPECT_EQ(finished[0].events_size(), 5);
  EXPECT_TRUE(finished[0].complete());
  EXPECT_TRUE(After(60'000).empty()) << "it is given away once";
}

TEST_F(TimelinesTest, ALoserThatNeverComesIsNotWaitedForLongerThanItsRetention) {
  AddHedged();
  EXPECT_TRUE(After(1'000).empty());
  const auto finished = After(1'500);
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].outcome(), "hedge");
}

TEST_F(TimelinesTest, WhoeverWasAskedAloneEndsItAtOnce) {
  timelines_.Add(Event("split", 0, "a"));
  v1::TraceEvent answer = Event("answer", 2, "a", "answered");
  answer.add_sent_to("a");
  answer.add_answered("a");
  timelines_.Add(answer);
  EXPECT_TRUE(After(100).empty()) << "another processor's events may still be on their way";
  const auto finished = After(300);
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].outcome(), "first");
}

TEST_F(TimelinesTest, EventsOutOfOrderAreSortedByTheirNumbers) {
  const v1::TraceEvent split = Event("split", 0, "a");
  v1::TraceEvent answer = Event("answer", 2, "a", "answered");
  answer.add_sent_to("a");
  answer.add_answered("a");
  timelines_.Add(answer);
  timelines_.Add(split);
  const auto finished = After(5'000);
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].events(0).kind(), "split");
  EXPECT_TRUE(finished[0].complete());
}

TEST_F(TimelinesTest, AGapInTheNumbersIsSaid) {
  timelines_.Add(Event("split", 0, "a"));
  ++numbers_["1.0"];
  timelines_.Add(Event("expired", 2'000, "", "expired"));
  const auto finished = After(60'000);
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].outcome(), "unanswered");
  EXPECT_FALSE(finished[0].complete());
}

TEST_F(TimelinesTest, OutcomesAreThoseOfTheCounters) {
  const auto outcome_of = [this](v1::TraceEvent last) {
    timelines_ = Timelines();
    const v1::TraceEvent split = Event("split", 0, "a");
    timelines_.Add(split);
    last.set_number(split.number() + 1);
    timelines_.Add(last);
    const auto all = timelines_.TakeAll();
    EXPECT_EQ(all.size(), 1u);
    EXPECT_FALSE(all[0].complete()) << "taken before its end";
    return all[0].outcome();
  };
  v1::TraceEvent failover = Event("answer", 5, "b", "answered");
  failover.set_failover(true);
  EXPECT_EQ(outcome_of(failover), "failover");
  EXPECT_EQ(outcome_of(Event("answer", 5, "b", "nacked")), "nacked");
  EXPECT_EQ(outcome_of(Event("answer", 2'500, "a", "expired")), "late");
  EXPECT_EQ(outcome_of(Event("due", 5, "")), "unknown");
}

TEST_F(TimelinesTest, APassedRequestAndItsAnswerAreOne) {
  v1::TraceEvent passed = Event("passed", 0, "a", "untracked", "");
  passed.set_reason("bypass");
  timelines_.Add(passed);
  EXPECT_TRUE(After(500).empty()) << "its answer is to come";
  v1::TraceEvent answer = Event("answer", 3, "a", "untracked", "");
  answer.set_since_ns(0);  // the kernel knows no request
  timelines_.Add(answer);
  const auto finished = After(1'000);
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].outcome(), "passed");
  EXPECT_EQ(finished[0].reason(), "bypass");
  EXPECT_EQ(finished[0].answered_by(), "a");
  EXPECT_EQ(finished[0].latency_ns(), 3 * kMs);
  timelines_.Add(passed);
  EXPECT_EQ(timelines_.TakeAll().size(), 1u) << "the same key again is another request";
}

TEST_F(TimelinesTest, ALateLoserOfNoRequestStandsAlone) {
  v1::TraceEvent late = Event("dropped", 0, "a", "untracked", "");
  late.set_reason("late");
  timelines_.Add(late);
  const auto finished = After(1'000);
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].outcome(), "late");
  EXPECT_EQ(finished[0].latency_ns(), 0);
}

TEST_F(TimelinesTest, TheWinnersFurtherDatagramsMakeNoNewRequest) {
  AddHedged();
  AddLoser();
  ASSERT_EQ(After(1'100).size(), 1u);
  timelines_.Add(Event("answer", 1'200, "b", "answered"));
  EXPECT_TRUE(timelines_.TakeAll().empty());
}

TEST_F(TimelinesTest, NothingIsHeldForEver) {
  timelines_.Add(Event("split", 0, "a"));
  EXPECT_TRUE(After(2'900).empty());
  const auto finished = After(3'500);
  ASSERT_EQ(finished.size(), 1u) << "its end was lost";
  EXPECT_EQ(finished[0].outcome(), "unknown");
  EXPECT_FALSE(finished[0].complete());
}

}  // namespace
}  // namespace hedgerow
