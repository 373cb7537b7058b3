// SPDX-License-Identifier: Apache-2.0
#include "proxy/cli/top_report.h"

#include <algorithm>

#include "proxy/admin/counts.h"

namespace hedgerow::cli {
namespace {

constexpr double kPartsPerMillion = 1e6;

class Rates {
 public:
  explicit Rates(int64_t interval_ns) : seconds_(static_cast<double>(std::max<int64_t>(interval_ns, 1)) / 1e9) {}

  static uint64_t Added(uint64_t before, uint64_t now) { return now >= before ? now - before : now; }
  double PerSecond(uint64_t before, uint64_t now) const { return static_cast<double>(Added(before, now)) / seconds_; }

  // Those that are not zero.
  template <typename Map, typename Out>
  void NonZero(const Map& before, const Map& now, Out& out) const {
    for (const auto& [name, count] : now) {
      const auto known = before.find(name);
      const double rate = PerSecond(known == before.end() ? 0 : known->second, count);
      if (rate > 0) out[name] = rate;
    }
  }

 private:
  double seconds_;
};

template <typename List>
auto FindNamed(const List& list, const std::string& name) -> decltype(&*list.begin()) {
  for (const auto& each : list) {
    if (each.name() == name) return &each;
  }
  return nullptr;
}

// Of what was added; a histogram that was emptied meanwhile is taken as it is.
Histogram Added(const v1::Durations& before, const v1::Durations& now) {
  const Histogram from = FromDurations(before), to = FromDurations(now);
  for (uint32_t i = 0; i < HR_HISTOGRAM_BUCKETS; ++i) {
    if (to.buckets[i] < from.buckets[i]) return to;
  }
  return to.Since(from);
}

// The longest ever is no bound for the buckets of this second.
int64_t Quantile(const Histogram& histogram, double q) { return static_cast<int64_t>(histogram.QuantileNs(q)); }

void FillBackends(const v1::ServiceStatus& before, const v1::ServiceStatus& now, const v1::ServiceCounts& counts_before,
                  const v1::ServiceCounts& counts_now, const Rates& rates, v1::TopService& out) {
  const v1::Durations none;
  for (int i = 0; i < now.backends_size(); ++i) {
    const v1::BackendStatus& backend = now.backends(i);
    const v1::BackendStatus* known = FindNamed(before.backends(), backend.name());
    v1::TopBackend& top = *out.add_backends();
    top.set_name(backend.name());
    top.set_role(backend.role());
    top.set_health(backend.health());
    top.set_one_client_health(backend.one_client_health());
    top.set_sent_per_s(rates.PerSecond(known == nullptr ? 0 : known->sent(), backend.sent()));
    top.set_won_per_s(rates.PerSecond(known == nullptr ? 0 : known->won(), backend.won()));
    if (i >= counts_now.answers_size()) continue;
    const Histogram answers =
        Added(i < counts_before.answers_size() ? counts_before.answers(i) : none, counts_now.answers(i));
    top.set_p50_ns(Quantile(answers, 0.50));
    top.set_p99_ns(Quantile(answers, 0.99));
  }
}

void FillService(const v1::ServiceStatus& before, const v1::ServiceStatus& now, const v1::ServiceCounts& counts_before,
                 const v1::ServiceCounts& counts_now, const Rates& rates, v1::TopService& out) {
  const auto counter = [&](const std::string& name) {
    const auto from = before.counters().find(name), to = now.counters().find(name);
    if (to == now.counters().end()) return 0.0;
    return rates.PerSecond(from == before.counters().end() ? 0 : from->second, to->second);
  };
  out.set_name(now.name());
  out.set_vip(now.vip());
  out.set_port(now.port());
  out.set_leader(now.leader());
  out.set_leader_source(now.leader_source());
  out.set_state(now.state());
  out.set_requests_to(now.requests_to());
  out.set_bypass(now.bypass());
  out.set_requests_per_s(rates.PerSecond(before.requests(), now.requests()));
  const Histogram latency = Added(counts_before.latency(), counts_now.latency());
  out.set_p50_ns(Quantile(latency, 0.50));
  out.set_p99_ns(Quantile(latency, 0.99));
  out.set_hedges_per_s(rates.PerSecond(before.hedges(), now.hedges()));
  if (out.requests_per_s() > 0) out.set_hedge_share(out.hedges_per_s() / out.requests_per_s());
  out.set_extra_sends_per_s(counter("extra_sends"));
  if (out.requests_per_s() > 0) out.set_extra_sends_share(out.extra_sends_per_s() / out.requests_per_s());
  out.set_budget(counts_now.budget_ppm() / kPartsPerMillion);
  out.set_budget_tokens(now.budget_tokens());
  out.set_hedges_won_per_s(rates.PerSecond(before.won_by_hedge(), now.won_by_hedge()));
  out.set_failovers_won_per_s(rates.PerSecond(before.won_by_failover(), now.won_by_failover()));
  out.set_losers_dropped_per_s(counter("losers_dropped"));
  out.set_nacks_swallowed_per_s(counter("nacks_swallowed"));
  out.set_nacked_per_s(rates.PerSecond(before.nacked(), now.nacked()));
  out.set_unanswered_per_s(rates.PerSecond(before.unanswered(), now.unanswered()));
  out.set_passed_through_per_s(rates.PerSecond(before.passed_through(), now.passed_through()));
  out.set_in_flight(now.in_flight());
  rates.NonZero(before.reasons(), now.reasons(), *out.mutable_reasons_per_s());
  FillBackends(before, now, counts_before, counts_now, rates, out);
}

void FillPrograms(const v1::Counts& before, const v1::Counts& now, const Rates& rates, v1::TopReport& out) {
  for (const v1::ProgramCounts& program : now.programs()) {
    const v1::ProgramCounts* known = FindNamed(before.programs(), program.name());
    const uint64_t runs = Rates::Added(known == nullptr ? 0 : known->runs(), program.runs());
    const uint64_t ns = Rates::Added(known == nullptr ? 0 : known->run_time_ns(), program.run_time_ns());
    v1::TopProgram& top = *out.add_programs();
    top.set_name(program.name());
    top.set_runs_per_s(rates.PerSecond(0, runs));
    if (runs > 0) top.set_ns_per_run(static_cast<double>(ns) / static_cast<double>(runs));
    top.set_cpu_share(rates.PerSecond(0, ns) / 1e9);
  }
}

}  // namespace

v1::TopReport BuildTopReport(const v1::Counts& before, const v1::Counts& now, const std::vector<std::string>& only) {
  const v1::ServiceStatus no_status;
  const v1::ServiceCounts no_counts;
  v1::TopReport out;
  out.set_interval_ns(std::max<int64_t>(now.taken_ns() - before.taken_ns(), 0));
  const Rates rates(out.interval_ns());
  out.set_instance(now.status().instance());
  out.set_state(now.status().state());
  *out.mutable_problems() = now.status().problems();
  for (const v1::ServiceStatus& service : now.status().services()) {
    if (!only.empty() && std::find(only.begin(), only.end(), service.name()) == only.end()) continue;
    const v1::ServiceStatus* known = FindNamed(before.status().services(), service.name());
    const v1::ServiceCounts* counts = FindNamed(now.services(), service.name());
    const v1::ServiceCounts* counts_known = FindNamed(before.services(), service.name());
    FillService(known == nullptr ? no_status : *known, service, counts_known == nullptr ? no_counts : *counts_known,
                counts == nullptr ? no_counts : *counts, rates, *out.add_services());
  }
  FillPrograms(before, now, rates, out);
  rates.NonZero(before.status().reasons(), now.status().reasons(), *out.mutable_host_reasons_per_s());
  return out;
}

}  // namespace hedgerow::cli
