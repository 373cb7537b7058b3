// SPDX-License-Identifier: Apache-2.0
//
// Events and requests as people read them: each kind in words, one line each.

#include "proxy/cli/trace_text.h"

#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/message_differencer.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/json.h"

namespace hedgerow::cli {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSeen = 1'700'000'000'123'456'000;

v1::TraceEvent Event(const std::string& kind, const std::string& backend, int64_t since_ns = 0) {
  v1::TraceEvent event;
  event.set_kind(kind);
  event.set_backend(backend);
  event.set_first("a");
  event.set_since_ns(since_ns);
  event.set_request("1.0");
  event.set_state("pending");
  event.set_service("dns");
  event.set_client("10.77.0.1");
  event.set_client_port(40000);
  event.set_key("2a01");
  return event;
}

TEST(TraceText, EachStepInWords) {
  v1::TraceEvent split = Event("split", "a");
  split.set_due_ns(10 * kMs);
  EXPECT_EQ(StepText(split), "to a, parked for 10ms");
  split.set_failover(true);
  EXPECT_EQ(StepText(split), "to a (around the leader), parked for 10ms");
  v1::TraceEvent passed = Event("passed", "a");
  passed.set_reason("bypass");
  EXPECT_EQ(StepText(passed), "to a, not parked: bypass");
  EXPECT_EQ(StepText(Event("copy", "b")), "copy at once to b");
  EXPECT_EQ(StepText(Event("due", "")), "due, no answer yet");
  v1::TraceEvent hedge = Event("hedge", "b");
  EXPECT_EQ(StepText(hedge), "hedge to b");
  hedge.set_failover(true);
  EXPECT_EQ(StepText(hedge), "failover to b");
  v1::TraceEvent none = Event("no_hedge", "");
  none.set_reason("no_budget");
  EXPECT_EQ(StepText(none), "no hedge: no_budget");
  v1::TraceEvent release = Event("release", "c");
  release.set_hinted(true);
  EXPECT_EQ(StepText(release), "next attempt to c (hinted)");
  EXPECT_EQ(StepText(Event("handover", "c")), "handed to the new leader c");
  EXPECT_EQ(StepText(Event("expired", "")), "deadline, no answer");
}

TEST(TraceText, AnswersRefusalsAndLosers) {
  v1::TraceEvent answer = Event("answer", "b");
  answer.set_state("answered");
  EXPECT_EQ(StepText(answer), "answer of b");
  answer.set_state("expired");
  EXPECT_EQ(StepText(answer), "late answer of b");
  answer.set_state("nacked");
  EXPECT_EQ(StepText(answer), "negative reply from b, the last: given to the client");
  answer.set_request("");
  EXPECT_EQ(StepText(answer), "answer of b, unjudged");
  v1::TraceEvent nack = Event("nack", "a");
  EXPECT_EQ(StepText(nack), "negative reply from a, dropped");
  nack.set_icmp(true);
  EXPECT_EQ(StepText(nack), "ICMP unreachable about a, dropped");
  v1::TraceEvent dropped = Event("dropped", "a");
  dropped.set_reason("loser");
  EXPECT_EQ(StepText(dropped), "loser a dropped");
  dropped.set_reason("stale");
  EXPECT_EQ(StepText(dropped), "a dropped: stale");
}

TEST(TraceText, AnEventIsALine) {
  const std::string line = EventLine(Event("hedge", "b", 10'200'000), kSeen);
  EXPECT_THAT(line, HasSubstr(".123456"));
  EXPECT_THAT(line, HasSubstr("+10.2ms  dns  10.77.0.1:40000  2a01  hedge to b\n"));
}

v1::TracedRequest Hedged() {
  v1::TracedRequest request;
  request.set_service("dns");
  request.set_client("fd77::1");
  request.set_client_port(40000);
  request.set_key("2a01");
  request.set_outcome("hedge");
  request.set_answered_by("b");
  request.set_latency_ns(10'900'000);
  request.set_complete(true);
  return request;
}

TEST(TraceText, ARequestIsALineWithItsWholeWay) {
  v1::TracedRequest request = Hedged();
  v1::TraceEvent split = Event("split", "a");
  split.set_due_ns(10 * kMs);
  v1::TraceEvent answer = Event("answer", "b", 10'900'000);
  answer.set_state("answered");
  *request.add_events() = split;
  *request.add_events() = Event("hedge", "b", 10'100'000);
  *request.add_events() = answer;
  EXPECT_THAT(RequestLine(request, kSeen),
              EndsWith("  dns  [fd77::1]:40000  2a01  10.9ms hedge b | 0 to a, parked for 10ms | 10.1ms hedge to b | "
                       "10.9ms answer of b\n"));
}

TEST(TraceText, ABeginningThatWasNotToldIsToldFromTheFields) {
  v1::TracedRequest request = Hedged();
  *request.add_events() = Event("hedge", "b", 10'100'000);
  EXPECT_THAT(RequestLine(request, kSeen), HasSubstr(" | 0 to a | 10.1ms hedge to b"));
  v1::TraceEvent answer = Event("answer", "b", 60 * kMs);
  answer.set_fire_ns(10 * kMs);
  answer.add_sent_to("a");
  answer.add_sent_to("b");
  request.clear_events();
  *request.add_events() = answer;
  EXPECT_THAT(RequestLine(request, kSeen), HasSubstr(" | 0 to a | 10.0ms due, to b | 60.0ms answer of b"));
}

TEST(TraceText, AsJsonARequestIsALineThatIsReadBackAsItWas) {
  v1::TracedRequest request = Hedged();
  request.set_reason("a \"b\"\n  c");
  *request.add_events() = Event("split", "a");
  const std::string line = ToJsonLine(request);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  v1::TracedRequest read;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(line, &read).ok()) << line;
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(request, read));
}

TEST(TraceText, WhatIsMissingIsSaid) {
  v1::TracedRequest request = Hedged();
  request.set_complete(false);
  *request.add_events() = Event("split", "a");
  EXPECT_THAT(RequestLine(request, kSeen), HasSubstr("hedge b (incomplete) | "));
}

TEST(TraceText, APassedRequestSaysWhy) {
  v1::TracedRequest request = Hedged();
  request.set_outcome("passed");
  request.set_reason("too_big");
  request.set_answered_by("a");
  v1::TraceEvent passed = Event("passed", "a");
  passed.set_request("");
  *request.add_events() = passed;
  EXPECT_THAT(RequestLine(request, kSeen), HasSubstr("10.9ms unhedged: too_big, a | 0 to a, not parked"));
}

}  // namespace
}  // namespace hedgerow::cli
