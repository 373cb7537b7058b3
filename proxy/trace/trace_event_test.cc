// SPDX-License-Identifier: Apache-2.0
//
// A kernel event in words: names of the configuration, times since the request began, and every kind named.

#include "proxy/trace/trace_event.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "proxy/admin/fake_data_plane.h"

namespace hedgerow {
namespace {

using testing::ElementsAre;

hr_trace_event Event() {
  hr_trace_event event{};
  event.time_ns = 1'010'200'000;
  event.sent_ns = 1'000'000'000;
  event.due_ns = 3'000'000'000;
  event.fire_ns = 1'010'000'000;
  event.request = (uint64_t{7} << 32) | 19;
  const uint8_t client[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 1};
  memcpy(event.key.client.bytes, client, sizeof(client));
  event.key.client_port_be = htons(40000);
  event.key.correlation[0] = 0x2a;
  event.key.pad = 2;
  event.kind = HR_TRACE_HEDGE;
  event.backend = 1;
  event.state = HR_STATE_PENDING;
  event.winner = HR_NO_BACKEND;
  event.masks = HR_MASKS_SENT(0b11) | HR_MASKS_ANSWERED(0b01);
  event.attempts = 2;
  event.sequence = 3;
  return event;
}

TEST(TraceEvent, IsToldInTheConfigurationsNames) {
  const v1::TraceEvent out = DescribeTraceEvent(FakeConfig(), Event());
  EXPECT_EQ(out.kind(), "hedge");
  EXPECT_EQ(out.service(), "dns");
  EXPECT_EQ(out.client(), "10.77.0.1");
  EXPECT_EQ(out.client_port(), 40000u);
  EXPECT_EQ(out.key(), "2a00") << "two bytes: as many as the service's key has";
  EXPECT_EQ(out.backend(), "b");
  EXPECT_EQ(out.first(), "a");
  EXPECT_EQ(out.request(), "19.7");
  EXPECT_EQ(out.since_ns(), 10'200'000);
  EXPECT_EQ(out.fire_ns(), 10'000'000);
  EXPECT_EQ(out.due_ns(), 2'000'000'000);
  EXPECT_THAT(out.sent_to(), ElementsAre("a", "b"));
  EXPECT_THAT(out.answered(), ElementsAre("a"));
  EXPECT_EQ(out.state(), "pending");
  EXPECT_EQ(out.winner(), "");
  EXPECT_FALSE(out.failover());
}

TEST(TraceEvent, WhoWasReachedByFailoverIsSaidAtEachOfItsEvents) {
  hr_trace_event event = Event();
  event.kind = HR_TRACE_ANSWER;
  event.masks |= HR_MASKS_FAILOVER(0b10);
  EXPECT_TRUE(DescribeTraceEvent(FakeConfig(), event).failover());
  event.backend = 0;
  EXPECT_FALSE(DescribeTraceEvent(FakeConfig(), event).failover());
}

TEST(TraceEvent, FlagsAndReasonsHaveTheirNames) {
  hr_trace_event event = Event();
  event.kind = HR_TRACE_NACK;
  event.reason = HR_REASON_NACK;
  event.flags = HR_TRACE_RELEASED | HR_TRACE_ICMP | HR_TRACE_HINTED;
  const v1::TraceEvent out = DescribeTraceEvent(FakeConfig(), event);
  EXPECT_EQ(out.reason(), "nack");
  EXPECT_TRUE(out.released() && out.icmp() && out.hinted());
}

TEST(TraceEvent, AnUntrackedPacketHasNoRequest) {
  hr_trace_event event = Event();
  event.request = 0;
  event.state = HR_STATE_FREE;
  event.due_ns = event.fire_ns = 0;
  const v1::TraceEvent out = DescribeTraceEvent(FakeConfig(), event);
  EXPECT_EQ(out.request(), "");
  EXPECT_EQ(out.state(), "untracked");
  EXPECT_EQ(out.due_ns(), 0);
}

TEST(TraceEvent, WhatTheConfigurationDoesNotHaveStaysEmpty) {
  hr_trace_event event = Event();
  event.key.service = 63;
  event.key.pad = 200;
  const v1::TraceEvent out = DescribeTraceEvent(FakeConfig(), event);
  EXPECT_EQ(out.service(), "");
  EXPECT_EQ(out.backend(), "");
  EXPECT_EQ(out.key().size(), 2u * HR_CORRELATION_BYTES);
}

TEST(TraceEvent, EveryKindHasANameOfItsOwn) {
  std::set<absl::string_view> names;
  for (int kind = 1; kind < HR_TRACE_KINDS; ++kind) {
    EXPECT_NE(TraceKindName(kind), "");
    names.insert(TraceKindName(kind));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(HR_TRACE_KINDS - 1));
  EXPECT_EQ(TraceKindName(0), "");
  EXPECT_EQ(TraceKindName(HR_TRACE_KINDS), "");
}

}  // namespace
}  // namespace hedgerow
