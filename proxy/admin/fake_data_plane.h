// SPDX-License-Identifier: Apache-2.0
//
// A data plane without a kernel, for tests of the code that stands on it: two services, counters that satisfy the
// accounting identity, and a record of the calls that it got.

#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "proxy/config/load.h"
#include "proxy/data_plane/data_plane.h"

namespace hedgerow {

inline v1::Config FakeConfig() {
  constexpr char kText[] = R"(
instance: test
services:
  - name: dns
    vip: 10.99.0.53
    port: 53
    profile: dns
    backends:
      - {name: a, address: 10.77.0.11, port: 53}
      - {name: b, address: 10.77.0.12, port: 53}
  - name: echo
    vip: fd99::1
    port: 7
    profile: raw
    raw: {request_offset: 0, request_length: 4, reply_offset: 0, reply_length: 4}
    backends: [{name: only, address: "fd77::b", port: 7}]
)";
  return *config::LoadText(kText, "fake.yaml");
}

inline void Record(Histogram& histogram, uint64_t duration_ns, uint64_t times) {
  histogram.buckets[hr_histogram_bucket(duration_ns)] += times;
  histogram.sum_ns += duration_ns * times;
  histogram.max_ns = std::max(histogram.max_ns, duration_ns);
}

class FakeDataPlane final : public LivePolicy, public DataPlaneReader {
 public:
  FakeDataPlane() {
    snapshot.taken_ns = 60'000'000'000;
    ServiceSnapshot dns;
    dns.name = "dns";
    dns.stats.counters[HR_REQUESTS] = 1000;
    dns.stats.counters[HR_WON_BY_FIRST] = 970;
    dns.stats.counters[HR_WON_BY_HEDGE] = 19;
    dns.stats.counters[HR_PASSED_THROUGH] = 4;
    dns.stats.counters[HR_UNANSWERED] = 2;
    dns.stats.counters[HR_HEDGES] = 21;
    dns.stats.reasons[HR_REASON_RETRANSMISSION] = 4;
    dns.in_flight = 5;
    dns.budget_tokens = 12.5;
    dns.delay_ns = 10'000'000;
    Record(dns.fire_error, 80'000, 20);
    Record(dns.fire_error, 240'000, 1);
    Record(dns.latency, 2'000'000, 970);
    Record(dns.latency, 12'000'000, 19);
    BackendSnapshot a;
    a.name = "a";
    a.sends = 1000;
    a.wins = 970;
    a.p95_ns = 3'000'000;
    Record(a.answer_times, 2'000'000, 970);
    BackendSnapshot b;
    b.name = "b";
    b.sends = 21;
    b.wins = 19;
    dns.backends = {a, b};
    ServiceSnapshot echo;
    echo.name = "echo";
    echo.delay_ns = 10'000'000;
    BackendSnapshot only;
    only.name = "only";
    echo.backends = {only};
    snapshot.services = {dns, echo};
    snapshot.host.reasons[HR_REASON_MALFORMED] = 2;
    snapshot.clock.running = true;
    snapshot.clock.laps = 4321;
    snapshot.maps = {{"requests", 5, 131072, 1 << 24, true}, {"flows", 0, 65536, 1 << 22, false}};
  }

  std::vector<ProgramInfo> Programs() override { return {}; }
  absl::StatusOr<Snapshot> Read(bool histograms) override {
    ++reads;
    if (!read_error.ok()) return read_error;
    Snapshot copy = snapshot;
    if (!histograms) {
      for (ServiceSnapshot& service : copy.services) service.latency = service.fire_error = Histogram();
    }
    return copy;
  }
  absl::Status PinLeader(const std::string& service, const std::string& backend) override {
    for (ServiceSnapshot& candidate : snapshot.services) {
      for (size_t i = 0; i < candidate.backends.size(); ++i) {
        if (candidate.name != service || candidate.backends[i].name != backend) continue;
        candidate.leader.leader = static_cast<uint8_t>(i);
        candidate.leader.pinned = 1;
        return absl::OkStatus();
      }
    }
    return absl::NotFoundError("fake: no such backend");
  }
  absl::Status UnpinLeader(const std::string& service) override {
    return Of(service, [](ServiceSnapshot& each) {
      each.leader.leader = each.leader.published;
      each.leader.pinned = 0;
    });
  }
  absl::Status ForgetLeader(const std::string& service) override {
    return Of(service, [](ServiceSnapshot& each) { each.leader = {}; });
  }
  absl::Status SetBypass(const std::string& service, bool on) override {
    return Of(service, [on](ServiceSnapshot& each) { each.bypass = on; });
  }
  absl::Status SetDryRun(const std::string& service, bool on) override {
    return Of(service, [on](ServiceSnapshot& each) { each.dry_run = on; });
  }
  absl::Status SetDrained(const std::string& service, const std::string& backend, bool on) override {
    return Of(service, [&](ServiceSnapshot& each) {
      for (BackendSnapshot& candidate : each.backends)
        if (candidate.name == backend) candidate.drained = on;
    });
  }
  absl::Status SetDelay(const std::string& service, uint64_t delay_ns) override {
    return Of(service, [delay_ns](ServiceSnapshot& each) { each.delay_ns = delay_ns; });
  }
  absl::Status SetPreferred(const std::string& service, std::optional<size_t> backend) override {
    return Of(service, [backend](ServiceSnapshot& each) {
      each.preferred = backend.has_value() ? static_cast<uint32_t>(*backend) + 1 : 0;
    });
  }
  absl::Status SetUnhealthy(const std::string& service, const std::vector<size_t>& backends) override {
    unhealthy[service] = backends;
    return absl::OkStatus();
  }
  absl::Status SetUnrouted(const std::string&, const std::vector<size_t>&, uint64_t) override {
    return absl::OkStatus();
  }
  absl::Status SetFailing(const std::string& service, const std::vector<size_t>& backends, uint64_t) override {
    failing[service] = backends;
    return absl::OkStatus();
  }
  absl::Status TestHedge(const std::string& service, const hr_address& client, uint16_t port, uint64_t) override {
    hedge_tests.push_back({service, hr_test_client(&client), port});
    return absl::OkStatus();
  }
  absl::Status SetBackendLoad(const std::string& service, size_t backend, const LearnedLoad& learned) override {
    return Of(service, [&](ServiceSnapshot& each) { each.backends.at(backend).learned = learned; });
  }
  absl::Status SetBackendP95(const std::string& service, size_t backend, uint64_t p95_ns) override {
    return Of(service, [&](ServiceSnapshot& each) { each.backends.at(backend).p95_ns = p95_ns; });
  }

  // Tells `trace_events` once, whatever is asked for.
  absl::StatusOr<std::unique_ptr<TraceSource>> OpenTrace(const hr_trace_filter& filter) override {
    struct Source final : TraceSource {
      explicit Source(FakeDataPlane& plane) : plane(plane) { ++plane.traces_open; }
      ~Source() override { --plane.traces_open; }
      void Renew(uint64_t) override {}
      size_t Drain(size_t, const OnEvent& on_event) override {
        for (const hr_trace_event& event : plane.trace_events) on_event(event);
        const size_t count = plane.trace_events.size();
        plane.trace_events.clear();
        return count;
      }
      TraceLoss Loss() const override { return {.requests = 3, .events = 4}; }
      FakeDataPlane& plane;
    };
    trace_filter = filter;
    return std::make_unique<Source>(*this);
  }

  Snapshot snapshot;
  absl::Status read_error;
  int reads = 0;
  std::map<std::string, std::vector<size_t>> unhealthy{}, failing{};  // as last set
  struct HedgeTest {
    std::string service;
    uint32_t client;
    uint16_t port;
  };
  std::vector<HedgeTest> hedge_tests{};
  std::vector<hr_trace_event> trace_events;
  hr_trace_filter trace_filter{};
  int traces_open = 0;

 private:
  template <typename Change>
  absl::Status Of(const std::string& service, const Change& change) {
    for (ServiceSnapshot& each : snapshot.services)
      if (each.name == service) change(each);
    return absl::OkStatus();
  }
};

}  // namespace hedgerow
