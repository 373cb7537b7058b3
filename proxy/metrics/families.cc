// SPDX-License-Identifier: Apache-2.0
#include "proxy/metrics/families.h"

#include <limits>
#include <set>
#include <type_traits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "operate/admin_socket.h"
#include "operate/metric_family.h"
#include "operate/commit.h"
#include "operate/version.h"
#include "proxy/data_plane/names.h"

namespace hedgerow {
namespace {

using operate::Labels;
using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Fill = decltype(Metric::fill);

constexpr auto kCounter = MetricType::Counter;
constexpr auto kGauge = MetricType::Gauge;
constexpr auto kHistogram = MetricType::Histogram;
constexpr double kNsPerSecond = 1e9;
constexpr double kPpm = 1e6;
constexpr absl::string_view kAnnounce = "announce_";

// A number or a histogram, as the family's type has it.
template <typename Value>
void Add(MetricFamily& family, Labels labels, const Value& value) {
  if constexpr (std::is_same_v<Value, Histogram>) {
    operate::AddHistogram(family, std::move(labels), ToPrometheus(value));
  } else if (family.type == kCounter) {
    operate::AddCounter(family, std::move(labels), static_cast<uint64_t>(value));
  } else {
    operate::AddGauge(family, std::move(labels), static_cast<double>(value));
  }
}

// What belongs to no service or backend.
template <typename Value>
Fill Once(Value value) {
  return [value](const Scrape& scrape, MetricFamily& family) { Add(family, {}, value(scrape)); };
}
template <typename Member>
Fill OfFacts(Member member) {
  return Once([member](const Scrape& scrape) { return scrape.facts.*member; });
}
template <typename Member>
Fill OfAdoption(Member member) {
  return Once([member](const Scrape& scrape) { return (scrape.facts.adoption.*member)(); });
}
template <typename Member>
Fill OfNetwork(Member member) {
  return Once([member](const Scrape& scrape) { return (scrape.facts.network.*member)(); });
}
template <typename Member>
Fill OfClock(Member member) {
  return Once([member](const Scrape& scrape) { return scrape.snapshot.clock.*member; });
}

// One sample a service: of a member of its snapshot, or of what a function makes of it.
template <typename Value>
Fill OfServices(Value value) {
  return [value](const Scrape& scrape, MetricFamily& family) {
    for (const ServiceSnapshot& service : scrape.snapshot.services)
      Add(family, {{"service", service.name}}, std::invoke(value, service));
  };
}

Labels BackendLabels(const ServiceSnapshot& service, size_t backend) {
  return {{"backend", service.backends[backend].name}, {"service", service.name}};
}

template <typename Each>
Fill EachBackend(Each each) {
  return [each](const Scrape& scrape, MetricFamily& family) {
    for (const ServiceSnapshot& service : scrape.snapshot.services)
      for (size_t i = 0; i < service.backends.size(); ++i) each(family, service, i);
  };
}
template <typename Member>
Fill OfBackends(Member member) {
  return EachBackend([member](MetricFamily& family, const ServiceSnapshot& service, size_t i) {
    Add(family, BackendLabels(service, i), service.backends[i].*member);
  });
}
void FillShares(const Scrape& scrape, MetricFamily& family) {
  const int services = std::min<int>(scrape.config.services_size(), static_cast<int>(scrape.snapshot.services.size()));
  for (int i = 0; i < services; ++i) {
    const ServiceSnapshot& service = scrape.snapshot.services[static_cast<size_t>(i)];
    const std::vector<double> shares = RequestShares(scrape.config.services(i), service);
    for (size_t j = 0; j < shares.size(); ++j) Add(family, BackendLabels(service, j), shares[j]);
  }
}

void FillHealth(MetricFamily& family, const ServiceSnapshot& service, size_t i) {
  for (const hr_health health : {HR_HEALTHY, HR_SUSPECT, HR_DOWN, HR_IMPAIRED}) {
    Labels labels = BackendLabels(service, i);
    labels.push_back({"state", HealthWord(health)});
    Add(family, std::move(labels), service.backends[i].health == health);
  }
}

// By service, and once more without: what belongs to none, such as pings of a VIP that several services share.
Fill OfCounter(int number) {
  return [number](const Scrape& scrape, MetricFamily& family) {
    for (const ServiceSnapshot& service : scrape.snapshot.services)
      Add(family, {{"service", service.name}}, service.stats.counters[number]);
    Add(family, {}, scrape.snapshot.host.counters[number]);
  };
}

// By reason, and service where there is one. `label` gets the reason's name less `prefix`, which it must have.
Fill OfReasons(const char* label, absl::string_view prefix) {
  return [label, prefix](const Scrape& scrape, MetricFamily& family) {
    for (const ReasonRow& reason : kReasons) {
      if (!absl::StartsWith(reason.name, prefix)) continue;
      const std::string name(absl::StripPrefix(reason.name, prefix));
      for (const ServiceSnapshot& service : scrape.snapshot.services)
        Add(family, {{label, name}, {"service", service.name}}, service.stats.reasons[reason.number]);
      Add(family, {{label, name}}, scrape.snapshot.host.reasons[reason.number]);
    }
  };
}

// What the configuration allows, so that a graph can show the use beside it.
void FillBudget(const Scrape& scrape, MetricFamily& family) {
  for (const v1::Service& service : scrape.config.services())
    Add(family, {{"service", service.name()}}, static_cast<double>(service.budget_ppm()) / kPpm);
}

void FillReloads(const Scrape& scrape, MetricFamily& family) {
  for (size_t i = 1; i < kReloadWords.size(); ++i)  // 0: there was none
    Add(family, {{"result", kReloadWords[i]}}, scrape.facts.reload.counts[i]);
}

bool LastReloadFailed(const Scrape& scrape) {
  const ReloadResult last = scrape.facts.reload.last;
  return last == ReloadResult::kInvalid || last == ReloadResult::kRefused || last == ReloadResult::kFailed;
}

void FillMapUsed(const Scrape& scrape, MetricFamily& family) {
  for (const MapUse& map : scrape.snapshot.maps)
    if (map.exact) Add(family, {{"map", map.name}}, map.used);
}
void FillMapSize(const Scrape& scrape, MetricFamily& family) {
  for (const MapUse& map : scrape.snapshot.maps) Add(family, {{"map", map.name}}, map.size);
}

constexpr char kRequests[] = "Requests, per service";
constexpr char kLeaders[] = "Leaders, per service";
constexpr char kHedging[] = "Hedging";
constexpr char kPackets[] = "Other packets";
constexpr char kBackends[] = "Backends";
constexpr char kMachine[] = "The machine";

const char* SectionOf(const CounterRow& counter) {
  if (counter.family == "leaders") return kLeaders;
  if (counter.family == "hedging") return kHedging;
  return counter.family == "packets" ? kPackets : kRequests;
}

// All but the kernel programs' counters.
std::vector<Metric> OtherMetrics() {
  using Service = const ServiceSnapshot&;
  return {
      {kRequests, kGauge, "in_flight", "requests waiting for an answer", OfServices(&ServiceSnapshot::in_flight)},
      {kRequests, kGauge, "identity_ok", "1 when the identity holds; alert on 0 for minutes, not for one scrape",
       OfServices(&IdentityHolds)},
      {kRequests, kHistogram, "latency_seconds",
       "from the first sight of a request to the first answer given to the client",
       OfServices(&ServiceSnapshot::latency)},
      {kLeaders, kGauge, "leader_term", "the term that the leader was announced for; 0 before the first announcement",
       OfServices([](Service service) { return service.leader.term; })},
      {kLeaders, kCounter, "announcements_total",
       "announcements, by `result` ([reasons.md](reasons.md)). Alert on no `accepted` for seconds, and on any `tag` or `epoch`",
       OfReasons("result", kAnnounce)},
      {kHedging, kGauge, "budget_ratio", "extra load that hedges may cause, as configured: 0.05 is 5 %", FillBudget},
      {kHedging, kGauge, "budget_tokens", "hedges the budget allows now", OfServices(&ServiceSnapshot::budget_tokens)},
      {kHedging, kGauge, "dry_run", "1 while would-be hedges are counted and nothing is sent twice",
       OfServices(&ServiceSnapshot::dry_run)},
      {kHedging, kGauge, "hedge_delay_seconds", "how long a request that arrives now waits before it is hedged",
       OfServices([](Service service) { return static_cast<double>(service.delay_ns) / kNsPerSecond; })},
      {kHedging, kGauge, "pushed_back",
       "1 while a backend's request for hedges later than the delay, or none, holds (a second at most)",
       OfServices(&ServiceSnapshot::pushed_back)},
      {kHedging, kGauge, "bypass", "1 while hedging is switched off", OfServices(&ServiceSnapshot::bypass)},
      {kHedging, kHistogram, "fire_error_seconds", "how late hedges left after they fell due",
       OfServices(&ServiceSnapshot::fire_error)},
      {kPackets, kCounter, "reasons_total",
       "packets forwarded unhedged, dropped or left alone, by `reason` ([reasons.md](reasons.md))",
       OfReasons("reason", "")},
      {kBackends, kGauge, "leader", "1 for the backend that leads the service",
       EachBackend([](MetricFamily& family, Service service, size_t i) {
         Add(family, BackendLabels(service, i), i == service.leader.leader);
       })},
      {kBackends, kGauge, "backend_state", "1 for the state it is in: `healthy`, `suspect`, `down` or `impaired`",
       EachBackend(FillHealth)},
      {kBackends, kCounter, "backend_sent_total", "datagrams sent to it", OfBackends(&BackendSnapshot::sends)},
      {kBackends, kCounter, "backend_unanswered_total",
       "first sends that it left unanswered while they were waited for", OfBackends(&BackendSnapshot::unanswered)},
      {kBackends, kCounter, "checks_total", "questions of the service's `check`, by `result`: `answered`, `failed`",
       [](const Scrape& scrape, MetricFamily& family) {
         for (const auto& [at, counts] : scrape.facts.checks) {
           Add(family, {{"backend", at.second}, {"result", "answered"}, {"service", at.first}}, counts[0]);
           Add(family, {{"backend", at.second}, {"result", "failed"}, {"service", at.first}}, counts[1]);
         }
       }},
      {kBackends, kGauge, "backend_in_flight", "requests that it was sent, copies at once apart, and has not answered",
       EachBackend([](MetricFamily& family, const ServiceSnapshot& service, size_t i) {
         Add(family, BackendLabels(service, i), std::max(service.backends[i].load_state.in_flight, 0));
       })},
      {kBackends, kGauge, "backend_load_ratio",
       "its load: requests in flight, of how many are when its answers are slow, or what it reports. 1 is full",
       EachBackend([](MetricFamily& family, const ServiceSnapshot& service, size_t i) {
         Add(family, BackendLabels(service, i), LoadShare(service.backends[i]));
       })},
      {kBackends, kGauge, "backend_drained", "1 while it is being drained", OfBackends(&BackendSnapshot::drained)},
      {kBackends, kGauge, "requests_to",
       "the part of new requests that it gets: 1 for the one backend that gets them, or by weight with `prefer: each` and `source`",
       FillShares},
      {kBackends, kCounter, "backend_won_total", "requests that it answered first", OfBackends(&BackendSnapshot::wins)},
      {kBackends, kHistogram, "answer_seconds", "answer times of first sends, late losers included",
       OfBackends(&BackendSnapshot::answer_times)},
      {kMachine, kCounter, "clock_laps_total", "laps of the kernel clock; none while it rests",
       OfClock(&ClockSnapshot::laps)},
      {kMachine, kCounter, "clock_starts_total", "starts from rest", OfClock(&ClockSnapshot::kicks)},
      {kMachine, kCounter, "clock_restarts_total", "starts because a lap was overdue",
       OfClock(&ClockSnapshot::restarts)},
      {kMachine, kGauge, "clock_running", "1 while the kernel clock runs, 0 at rest", OfClock(&ClockSnapshot::running)},
      {kMachine, kGauge, "map_used_entries", "entries in use, by `map`; absent where the kernel cannot count cheaply",
       FillMapUsed},
      {kMachine, kGauge, "map_size_entries", "entries there is room for, by `map`", FillMapSize},
      {kMachine, kCounter, "routes_restored_total", "VIP routes put back after their removal",
       OfFacts(&DaemonFacts::routes_restored)},
      {kMachine, kCounter, "links_restored_total", "own links set up or made again after they were set down or removed",
       OfFacts(&DaemonFacts::links_restored)},
      {kMachine, kCounter, "attachments_restored_total", "programs attached again after they were taken off their hook",
       OfAdoption(&v1::Adoption::attachments_restored)},
      {kMachine, kCounter, "adoptions_total", "daemons that have taken over the kernel part since it was made",
       OfAdoption(&v1::Adoption::adoptions)},
      {kMachine, kCounter, "unattended_stops_total",
       "times that hedging stopped because no daemon had lived for `unattended_timeout`",
       OfAdoption(&v1::Adoption::unattended_stops)},
      {kMachine, kCounter, "reloads_total",
       "reloads since the daemon started, by `result`: `applied`, `unchanged`, `invalid` (errors in the file), `refused`, "
       "`failed` (all was undone)",
       FillReloads},
      {kMachine, kGauge, "config_last_reload_successful",
       "0 when the last reload was `invalid`, `refused` or `failed`; alert on 0 for minutes",
       Once([](const Scrape& scrape) { return !LastReloadFailed(scrape); })},
      {kMachine, kGauge, "config_last_reload_success_timestamp_seconds",
       "when the configuration in force came into force, in seconds since 1970", Once([](const Scrape& scrape) {
         return absl::ToDoubleSeconds(scrape.facts.reload.config_since - absl::UnixEpoch());
       })},
      {kMachine, kGauge, "config_info",
       "always 1; label `hash`: of the configuration in force, with its defaults and keys",
       [](const Scrape& scrape, MetricFamily& family) {
         Add(family, {{"hash", scrape.facts.reload.config_hash}}, 1);
       }},
      {kMachine, kCounter, "network_events_total",
       "messages about interfaces, addresses, routes and rules that the kernel sent", OfNetwork(&v1::Network::events)},
      {kMachine, kCounter, "network_looks_total",
       "times that the ways to all backends and VIPs were compared with what is in force",
       OfNetwork(&v1::Network::looks)},
      {kMachine, kCounter, "network_looks_deferred_total",
       "looks that waited, because all looks take a tenth of a processor at most", OfNetwork(&v1::Network::deferred)},
      {kMachine, kCounter, "network_events_lost_total",
       "times that the kernel dropped messages because too many came; everything was compared then",
       OfNetwork(&v1::Network::events_lost)},
      {kMachine, kCounter, "network_moves_total", "times that another uplink or source address was followed",
       OfNetwork(&v1::Network::moves)},
      {kMachine, kCounter, "loop_turns_total", operate::kLoopTurnsHelp,
       [](const Scrape& scrape, MetricFamily& family) { operate::AddLoopTurns(family, {}, scrape.facts.loop_turns); }},
      {kMachine, kGauge, "problems", "the number of problems that `hedgerow status` lists; alert on > 0",
       Once([](const Scrape& scrape) { return AllProblems(scrape.facts, scrape.snapshot).size(); })},
      {kMachine, kCounter, "admin_refused_total",
       "connections that an administration socket closed, because it had as many as it may, by `socket`: `admin`, `monitor`",
       [](const Scrape&, MetricFamily& family) {
         using operate::AdminSocket;
         Add(family, {{"socket", "admin"}}, AdminSocket::Refused(AdminSocket::For::kOwner));
         Add(family, {{"socket", "monitor"}}, AdminSocket::Refused(AdminSocket::For::kGroup));
       }},
      {kMachine, kGauge, "problem_active",
       "1 while `hedgerow status` lists a problem of this `code` ([problems.md](problems.md)); absent otherwise",
       [](const Scrape& scrape, MetricFamily& family) {
         std::set<absl::string_view> codes;
         for (const Problem& problem : AllProblems(scrape.facts, scrape.snapshot)) codes.insert(CodeText(problem.code));
         for (const absl::string_view code : codes) Add(family, {{"code", std::string(code)}}, 1);
       }},
      {kMachine, kGauge, "uptime_seconds", "since the daemon started", Once([](const Scrape& scrape) {
         const int64_t uptime_ns = static_cast<int64_t>(scrape.snapshot.taken_ns) - scrape.facts.started_ns;
         return static_cast<double>(uptime_ns) / kNsPerSecond;
       })},
      {kMachine, kGauge, "build_info", "always 1; labels `version`, `commit`, `instance`, `kernel`",
       [](const Scrape& scrape, MetricFamily& family) {
         Add(family,
             {{"commit", operate::kCommit},
              {"instance", scrape.config.instance()},
              {"kernel", scrape.facts.kernel},
              {"version", operate::kVersion}},
             1);
       }},
  };
}

}  // namespace

const std::vector<Metric>& Metrics() {
  static const auto& metrics = *new std::vector<Metric>([] {
    std::vector<Metric> all;
    for (const CounterRow& row : kCounters)
      all.push_back(
          {SectionOf(row), kCounter, absl::StrCat(row.name, "_total"), std::string(row.help), OfCounter(row.number)});
    for (Metric& metric : OtherMetrics()) all.push_back(std::move(metric));
    for (Metric& metric : all) metric.name.insert(0, "hedgerow_");
    return all;
  }());
  return metrics;
}

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

std::vector<MetricFamily> BuildFamilies(const v1::Config& config, const DaemonFacts& facts, const Snapshot& snapshot) {
  std::vector<MetricFamily> out;
  for (const Metric& metric : Metrics()) {
    out.push_back(operate::MakeFamily(metric.name, metric.help, metric.type));
    metric.fill({config, facts, snapshot}, out.back());
  }
  return out;
}

}  // namespace hedgerow
