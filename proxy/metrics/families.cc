// SPDX-License-Identifier: Apache-2.0
//
// Snapshot to metric families; see the header.

#include "proxy/metrics/families.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "operate/metric_family.h"
#include "operate/version.h"
#include "proxy/data_plane/names.h"

namespace hedgerow {
namespace {

using operate::AddCounter;
using operate::AddGauge;
using operate::Labels;
using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr double kNsPerSecond = 1e9;
constexpr double kPpm = 1e6;

MetricFamily Family(absl::string_view name, absl::string_view help, MetricType type) {
  return operate::MakeFamily(absl::StrCat("hedgerow_", name), help, type);
}

void AddHistogram(MetricFamily& family, Labels labels, const Histogram& histogram) {
  operate::AddHistogram(family, std::move(labels), ToPrometheus(histogram));
}

Labels ServiceLabel(const ServiceSnapshot& service) { return {{"service", service.name}}; }
Labels BackendLabels(const ServiceSnapshot& service, const BackendSnapshot& backend) {
  return {{"backend", backend.name}, {"service", service.name}};
}

using Families = std::vector<MetricFamily>;

// One family for each counter of the kernel programs, named after it.
void Counters(const Snapshot& snapshot, Families& out) {
  for (int i = 0; i < HR_COUNTER_COUNT; ++i) {
    const absl::string_view name = CounterName(i);
    if (name.empty()) continue;
    MetricFamily family =
        Family(absl::StrCat(name, "_total"), absl::StrCat("Counter ", name, " of the kernel programs."),
               MetricType::Counter);
    for (const ServiceSnapshot& service : snapshot.services) {
      AddCounter(family, ServiceLabel(service), service.stats.counters[i]);
    }
    // What belongs to no service: pings of a VIP, which several services may share.
    AddCounter(family, {}, snapshot.host.counters[i]);
    out.push_back(std::move(family));
  }
}

void Reasons(const Snapshot& snapshot, Families& out) {
  MetricFamily family =
      Family("reasons_total",
             "Packets that were not hedged, dropped or left alone, by reason. Without a service "
             "label: packets that belong to none.",
             MetricType::Counter);
  for (int i = 1; i < HR_REASON_COUNT; ++i) {
    const absl::string_view name = ReasonName(i);
    if (name.empty()) continue;
    for (const ServiceSnapshot& service : snapshot.services) {
      AddCounter(family, {{"reason", std::string(name)}, {"service", service.name}}, service.stats.reasons[i]);
    }
    AddCounter(family, {{"reason", std::string(name)}}, snapshot.host.reasons[i]);
  }
  out.push_back(std::move(family));
}

// The reasons of announcements once more, under a name of their own: what came to the announce ports and what
// became of it. The result is the reason's name less "announce_". Which service it was for is known of those
// that were opened.
void Announcements(const Snapshot& snapshot, Families& out) {
  MetricFamily family =
      Family("announcements_total", "Announcements of leaders, by what became of them.", MetricType::Counter);
  for (int i = HR_REASON_ANNOUNCE_LENGTH; i <= HR_REASON_ANNOUNCE_STALE; ++i) {
    const std::string result(absl::StripPrefix(ReasonName(i), "announce_"));
    for (const ServiceSnapshot& service : snapshot.services) {
      AddCounter(family, {{"result", result}, {"service", service.name}}, service.stats.reasons[i]);
    }
    AddCounter(family, {{"result", result}}, snapshot.host.reasons[i]);
  }
  out.push_back(std::move(family));
}

// What the configuration allows, so that a graph can show the use beside it.
void Budgets(const v1::Config& config, Families& out) {
  MetricFamily budget = Family("budget_ratio", "Extra load that hedges may cause, as configured.", MetricType::Gauge);
  for (const v1::Service& service : config.services()) {
    AddGauge(budget, {{"service", service.name()}}, static_cast<double>(service.budget_ppm()) / kPpm);
  }
  out.push_back(std::move(budget));
}

void Services(const Snapshot& snapshot, Families& out) {
  MetricFamily in_flight = Family("in_flight", "Requests waiting for an answer.", MetricType::Gauge);
  MetricFamily tokens = Family("budget_tokens", "Hedges the budget allows now.", MetricType::Gauge);
  MetricFamily bypass = Family("bypass", "1 while hedging is switched off for the service.", MetricType::Gauge);
  MetricFamily dry_run =
      Family("dry_run", "1 while would-be hedges are counted and nothing is sent twice.", MetricType::Gauge);
  MetricFamily delay = Family(
      "hedge_delay_seconds", "How long a request that comes now waits before it is hedged.", MetricType::Gauge);
  MetricFamily pushed_back = Family(
      "pushed_back", "1 while what a backend has said about later hedges, or none, holds.", MetricType::Gauge);
  MetricFamily identity =
      Family("identity_ok", "1 when every request is accounted for (exact only at rest).", MetricType::Gauge);
  MetricFamily term =
      Family("leader_term", "The term that the leader was announced for; 0 before the first announcement.",
             MetricType::Gauge);
  MetricFamily latency =
      Family("latency_seconds", "Request seen to first answer given to the client.", MetricType::Histogram);
  MetricFamily fire =
      Family("fire_error_seconds", "How late hedges left after they fell due.", MetricType::Histogram);
  for (const ServiceSnapshot& service : snapshot.services) {
    AddGauge(in_flight, ServiceLabel(service), static_cast<double>(service.in_flight));
    AddGauge(tokens, ServiceLabel(service), service.budget_tokens);
    AddGauge(bypass, ServiceLabel(service), service.bypass ? 1 : 0);
    AddGauge(dry_run, ServiceLabel(service), service.dry_run ? 1 : 0);
    AddGauge(delay, ServiceLabel(service), static_cast<double>(service.delay_ns) / kNsPerSecond);
    AddGauge(pushed_back, ServiceLabel(service), service.pushed_back ? 1 : 0);
    AddGauge(identity, ServiceLabel(service), IdentityHolds(service) ? 1 : 0);
    AddGauge(term, ServiceLabel(service), static_cast<double>(service.leader.term));
    AddHistogram(latency, ServiceLabel(service), service.latency);
    AddHistogram(fire, ServiceLabel(service), service.fire_error);
  }
  for (MetricFamily* family :
       {&in_flight, &tokens, &bypass, &dry_run, &delay, &pushed_back, &identity, &term, &latency, &fire}) {
    out.push_back(std::move(*family));
  }
}

void Backends(const Snapshot& snapshot, Families& out) {
  MetricFamily leader = Family("leader", "1 for the backend that leads the service.", MetricType::Gauge);
  MetricFamily state = Family("backend_state", "1 for the state the backend is in.", MetricType::Gauge);
  MetricFamily drained = Family("backend_drained", "1 while the backend is being drained.", MetricType::Gauge);
  MetricFamily asked = Family("requests_to", "1 for the backend that gets the requests while nobody is silent.",
                              MetricType::Gauge);
  MetricFamily unanswered =
      Family("backend_unanswered_total",
             "First sends that the backend did not answer while they were waited for.", MetricType::Counter);
  MetricFamily sent = Family("backend_sent_total", "Datagrams sent to the backend.", MetricType::Counter);
  MetricFamily won = Family("backend_won_total", "Requests the backend answered first.", MetricType::Counter);
  MetricFamily answer =
      Family("answer_seconds", "Answer times of first sends, late losers included.", MetricType::Histogram);
  for (const ServiceSnapshot& service : snapshot.services) {
    for (size_t i = 0; i < service.backends.size(); ++i) {
      const BackendSnapshot& backend = service.backends[i];
      AddGauge(leader, BackendLabels(service, backend), i == service.leader.leader ? 1 : 0);
      for (const hr_health health : {HR_HEALTHY, HR_SUSPECT, HR_DOWN}) {
        Labels labels = BackendLabels(service, backend);
        labels.push_back({"state", HealthWord(health)});
        AddGauge(state, std::move(labels), backend.health == health ? 1 : 0);
      }
      AddGauge(drained, BackendLabels(service, backend), backend.drained ? 1 : 0);
      AddGauge(asked, BackendLabels(service, backend), i == RequestsTo(service) ? 1 : 0);
      AddCounter(unanswered, BackendLabels(service, backend), backend.unanswered);
      AddCounter(sent, BackendLabels(service, backend), backend.sends);
      AddCounter(won, BackendLabels(service, backend), backend.wins);
      AddHistogram(answer, BackendLabels(service, backend), backend.answer_times);
    }
  }
  for (MetricFamily* family : {&leader, &state, &drained, &asked, &unanswered, &sent, &won, &answer})
    out.push_back(std::move(*family));
}

// What became of changes to the configuration's file. Of the others of a fleet, whoever has another hash has
// another one.
void Reloads(const ReloadFacts& facts, Families& out) {
  MetricFamily reloads =
      Family("reloads_total", "Reloads of the configuration since the daemon started, by result.",
             MetricType::Counter);
  for (const ReloadResult result : {ReloadResult::kApplied, ReloadResult::kUnchanged, ReloadResult::kInvalid,
                                    ReloadResult::kRefused, ReloadResult::kFailed}) {
    AddCounter(reloads, {{"result", ReloadWord(result)}}, facts.counts.at(static_cast<size_t>(result)));
  }
  MetricFamily good = Family("config_last_reload_successful",
                             "0 when the last reload failed: the file says something else than what is in force.",
                             MetricType::Gauge);
  const bool failed = facts.last == ReloadResult::kInvalid || facts.last == ReloadResult::kRefused ||
                      facts.last == ReloadResult::kFailed;
  AddGauge(good, {}, failed ? 0 : 1);
  MetricFamily since =
      Family("config_last_reload_success_timestamp_seconds",
             "When the configuration in force came into force, by the machine's clock.", MetricType::Gauge);
  AddGauge(since, {}, absl::ToDoubleSeconds(facts.config_since - absl::UnixEpoch()));
  MetricFamily info =
      Family("config_info", "Always 1; the hash of the configuration in force.", MetricType::Gauge);
  AddGauge(info, {{"hash", facts.config_hash}}, 1);
  for (MetricFamily* family : {&reloads, &good, &since, &info}) out.push_back(std::move(*family));
}

void Host(const v1::Config& config, const DaemonFacts& facts, const Snapshot& snapshot, Families& out) {
  const auto counter = [&](absl::string_view name, absl::string_view help, uint64_t value) {
    MetricFamily family = Family(name, help, MetricType::Counter);
    AddCounter(family, {}, value);
    out.push_back(std::move(family));
  };
  const auto gauge = [&](absl::string_view name, absl::string_view help, double value) {
    MetricFamily family = Family(name, help, MetricType::Gauge);
    AddGauge(family, {}, value);
    out.push_back(std::move(family));
  };
  counter("clock_laps_total", "Laps of the kernel clock.", snapshot.clock.laps);
  counter("clock_starts_total", "Starts of the kernel clock from rest.", snapshot.clock.kicks);
  counter("clock_restarts_total", "Restarts of the kernel clock because a lap was overdue.",
          snapshot.clock.restarts);
  gauge("clock_running", "1 while the kernel clock runs, 0 at rest.", snapshot.clock.running ? 1 : 0);
  counter("routes_restored_total", "VIP routes put back after somebody removed them.", facts.routes_restored);
  counter("links_restored_total", "Own links set up again after somebody set them down.", facts.links_restored);
  counter("attachments_restored_total", "Programs attached again after somebody took them off their hook.",
          facts.attachments_restored);
  counter("adoptions_total", "Daemons that have taken over the kernel part since it was made.",
          facts.adoptions);
  counter("deadman_stops_total", "Times that hedging stopped because no daemon had lived for detach_after.",
          facts.deadman_stops);
  gauge("problems", "Problems that status lists; 0 is good.", static_cast<double>(facts.problems.size()));
  gauge("uptime_seconds", "Since the daemon started.",
        static_cast<double>(static_cast<int64_t>(snapshot.taken_ns) - facts.started_ns) / kNsPerSecond);
  MetricFamily used = Family(
      "map_used_entries", "Entries in use; absent where the kernel cannot count cheaply.", MetricType::Gauge);
  MetricFamily size = Family("map_size_entries", "Entries there is room for.", MetricType::Gauge);
  for (const MapUse& map : snapshot.maps) {
    if (map.exact) AddGauge(used, {{"map", map.name}}, static_cast<double>(map.used));
    AddGauge(size, {{"map", map.name}}, static_cast<double>(map.size));
  }
  out.push_back(std::move(used));
  out.push_back(std::move(size));
  MetricFamily info = Family("build_info", "Always 1; the labels say what runs.", MetricType::Gauge);
  AddGauge(info, {{"instance", config.instance()}, {"kernel", facts.kernel}, {"version", operate::kVersion}},
           1);
  out.push_back(std::move(info));
}

}  // namespace

ClientMetric::Histogram ToPrometheus(const Histogram& histogram) {
  constexpr uint32_t kStep = (1u << HR_HISTOGRAM_SUB_SHIFT) / 2;
  ClientMetric::Histogram out;
  uint64_t cumulative = 0;
  uint32_t next = 0;
  for (uint32_t edge = hr_histogram_bucket(16'384); edge < HR_HISTOGRAM_BUCKETS; edge += kStep) {
    for (; next < edge; ++next) cumulative += histogram.buckets[next];
    out.bucket.push_back({cumulative, static_cast<double>(hr_histogram_lower_ns(edge)) / kNsPerSecond});
  }
  out.sample_count = histogram.Count();
  out.bucket.push_back({out.sample_count, std::numeric_limits<double>::infinity()});
  out.sample_sum = static_cast<double>(histogram.sum_ns) / kNsPerSecond;
  return out;
}

std::vector<MetricFamily> BuildFamilies(const v1::Config& config, const DaemonFacts& facts,
                                        const Snapshot& snapshot) {
  Families out;
  Counters(snapshot, out);
  Reasons(snapshot, out);
  Announcements(snapshot, out);
  Budgets(config, out);
  Services(snapshot, out);
  Backends(snapshot, out);
  Host(config, facts, snapshot, out);
  Reloads(facts.reload, out);
  return out;
}

}  // namespace hedgerow
