// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// A packet test with a tracer: the events that the programs emit, through the ring and the memory that the product
// uses. Shared by trace_test.cc (which events) and trace_filter_test.cc (of which requests, and for how long).
#pragma once

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bpf/tests/kernel_fixture.h"
#include "proxy.skel.h"

namespace hedgerow::packets {

class TracedPacketTest : public PacketTest {
 protected:
  static constexpr uint64_t kLeaseNs = 60 * kSecond;

  static hr_trace_filter Everything() {
    hr_trace_filter filter{};
    filter.rate = 1000;
    memset(filter.backends, 0xff, sizeof(filter.backends));
    return filter;
  }
  void Trace(const hr_trace_filter &filter = Everything()) {
    source_.reset();
    auto source = plane().reader().OpenTrace(filter);
    ASSERT_TRUE(source.ok()) << source.status();
    source_ = *std::move(source);
    source_->Renew(NowNs() + kLeaseNs);
  }
  void TearDown() override {
    source_.reset();
    PacketTest::TearDown();
  }

  std::vector<hr_trace_event> Events() {
    std::vector<hr_trace_event> events;
    source_->Drain(10'000, [&events](const hr_trace_event &event) { events.push_back(event); });
    return events;
  }
  // The one event that came; a failure if it is not one.
  hr_trace_event Only(hr_trace_kind kind) {
    const std::vector<hr_trace_event> events = Events();
    EXPECT_EQ(Kinds(events), std::vector<int>{kind});
    return events.empty() ? hr_trace_event{} : events[0];
  }
  static std::vector<int> Kinds(const std::vector<hr_trace_event> &events) {
    std::vector<int> kinds;
    for (const hr_trace_event &event : events) kinds.push_back(event.kind);
    return kinds;
  }
  static uint32_t IndexOf(const hr_trace_event &event) { return static_cast<uint32_t>(event.request); }

  hr_trace &Memory() { return skeleton()->data_live->hr_live.trace; }
  bool HasRing() {
    const uint32_t zero = 0;
    uint32_t id = 0;
    return bpf_map_lookup_elem(bpf_map__fd(skeleton()->maps.trace_rings), &zero, &id) == 0;
  }

  std::unique_ptr<TraceSource> source_;
};

}  // namespace hedgerow::packets
