// SPDX-License-Identifier: Apache-2.0
#include "proxy/kernel_part/kernel_data_plane.h"

#include <bpf/libbpf.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bpf/proxy/choose.h"
#include "proxy.skel.h"
#include "operate/event_loop.h"

namespace hedgerow {
namespace {

constexpr uint64_t kMicrosPerHedge = 1'000'000;

uint64_t NowNs() { return static_cast<uint64_t>(MonotonicNs()); }

// A backend's place in the configuration by its place in the kernel; HR_NO_BACKEND where the place holds no backend of
// the configuration.
uint8_t PositionOf(const ServiceSpec& service, uint32_t slot) {
  for (size_t i = 0; i < service.backends.size(); ++i)
    if (service.backends[i].slot == slot) return static_cast<uint8_t>(i);
  return HR_NO_BACKEND;
}

// What the kernel says a map takes, from /proc/self/fdinfo; 0 when it does not say.
uint64_t MapBytes(int fd) {
  std::ifstream info(absl::StrCat("/proc/self/fdinfo/", fd));
  std::string key;
  uint64_t value = 0;
  while (info >> key) {
    if (key == "memlock:" && info >> value) return value;
  }
  return 0;
}

}  // namespace

// What requests hold, counted from the map and not from any counter.
KernelReader::RequestUse KernelReader::CountRequests() const {
  RequestUse use{.in_flight = std::vector<uint64_t>(HR_MAX_SERVICES)};
  const uint32_t handed_out = memory_.Wheel().requests_made;
  const uint32_t made = std::min(handed_out, spec_.max_requests);
  for (uint32_t i = 1; i <= made; ++i) {
    const volatile hr_request* request = memory_.requests.At<hr_request>(i);
    const uint8_t state = HR_WORD_STATE(request->word);
    const uint32_t service = request->key.service;
    if (state == HR_STATE_PENDING && service < use.in_flight.size()) use.in_flight[service]++;
    use.requests += state != HR_STATE_FREE;
    if (state != HR_STATE_FREE && request->parked != 0) use.parked++;
  }
  return use;
}

std::vector<MapUse> KernelReader::ReadMapUse(const RequestUse& use) const {
  const auto& maps = object_.skeleton()->maps;
  std::vector<MapUse> uses = {
      {"requests", use.requests, spec_.max_requests, MapBytes(bpf_map__fd(maps.requests)), true},
      {"scoreboard", use.requests, spec_.max_requests, MapBytes(bpf_map__fd(maps.scoreboard)), false},
      {"parked", use.parked, spec_.max_parked, MapBytes(bpf_map__fd(maps.pool)), true},
      {"flows", 0, spec_.max_flows, MapBytes(bpf_map__fd(maps.flows)), false},
      {"crowded_flows", 0, bpf_map__max_entries(maps.crowded_flows), MapBytes(bpf_map__fd(maps.crowded_flows)), false},
      {"late_requests", 0, bpf_map__max_entries(maps.late_requests), MapBytes(bpf_map__fd(maps.late_requests)), false},
      {"connections", 0, spec_.max_connections, MapBytes(bpf_map__fd(maps.connections)), false},
      {"fragments", 0, spec_.max_fragments, MapBytes(bpf_map__fd(maps.fragments)), false},
  };
  return uses;
}

// A histogram is 3.5 KB for each possible CPU. It is read again where what is counted beside it has changed since, and
// once more in the look after that: a program may have counted and not yet recorded.
absl::StatusOr<std::vector<Histogram>> KernelReader::Histograms(bpf_map* map, uint32_t id, uint32_t kinds,
                                                                std::vector<uint64_t> counts) {
  Kept& kept = kept_[{map, id}];
  if (kept.settled && kept.counts == counts) return kept.histograms;
  std::vector<Histogram> read(kinds);
  // HR_HISTOGRAM_ANSWERS last: what is recorded meanwhile must not make its parts more than the whole.
  for (uint32_t kind = kinds; kind-- > 0;) {
    auto histogram = SumHistogram(map, id * kinds + kind);
    if (!histogram.ok()) return histogram.status();
    read[kind] = *histogram;
  }
  kept = {.counts = counts, .settled = kept.counts == counts, .histograms = read};
  return read;
}

absl::StatusOr<ServiceSnapshot> KernelReader::ReadService(const ServiceSpec& spec, bool histograms) {
  const auto& maps = object_.skeleton()->maps;
  ServiceSnapshot snapshot;
  snapshot.name = spec.name;
  const auto stats = SumStats(maps.stats, spec.id);
  if (!stats.ok()) return stats.status();
  snapshot.stats = *stats;
  const volatile hr_service_state* state = memory_.service_states.At<hr_service_state>(spec.id);
  snapshot.budget_tokens = static_cast<double>(state->budget_micros) / static_cast<double>(kMicrosPerHedge);
  snapshot.failovers_spent = state->owed[HR_DEBT_FAILOVERS] > (HR_FAILOVERS_MAX - 1) * HR_FAILOVER_PARTS;
  const volatile hr_service_policy& policy = memory_.Policy(spec.id);
  snapshot.bypass = (policy.switches & HR_SWITCH_BYPASS) != 0;
  snapshot.dry_run = (policy.switches & HR_SWITCH_DRY_RUN) != 0;
  snapshot.delay_ns = policy.delay_ns;
  // A shorter wait than the delay holds back copies at once only.
  snapshot.pushed_back = NowNs() < state->pushback_until_ns && state->pushback_ns > policy.delay_ns;
  const uint32_t preferred = policy.preferred;
  const uint8_t position = preferred == 0 ? uint8_t{HR_NO_BACKEND} : PositionOf(spec, preferred - 1);
  snapshot.preferred = position == HR_NO_BACKEND ? 0 : position + 1u;
  const auto leader = ReadLeader(maps.leaders, spec.id);
  if (!leader.ok()) return leader.status();
  snapshot.leader = *leader;
  snapshot.leader.leader = PositionOf(spec, leader->leader);
  snapshot.leader.published = PositionOf(spec, leader->published);
  if (histograms) {
    std::vector<uint64_t> counts(std::begin(stats->counters), std::end(stats->counters));
    counts[HR_SELF_TESTS] = counts[HR_SELF_TESTS_BACK] = 0;  // each second, and no request
    auto read = Histograms(maps.service_histograms, spec.id, HR_SERVICE_HISTOGRAMS, std::move(counts));
    if (!read.ok()) return read.status();
    snapshot.latency = (*read)[HR_HISTOGRAM_LATENCY];
    snapshot.fire_error = (*read)[HR_HISTOGRAM_FIRE_ERROR];
  }
  for (const BackendSpec& each : spec.backends) {
    auto backend = ReadBackend(spec, each, histograms);
    if (!backend.ok()) return backend.status();
    snapshot.backends.push_back(*std::move(backend));
  }
  return snapshot;
}

namespace {

uint32_t WitnessOf(bpf_map* clients, uint64_t wait) {
  const uint32_t index = HR_WAIT_CLIENT(wait);
  hr_client client{};
  return LookUpElement(clients, &index, &client).ok() ? client.witness : 0;
}

// As hr_health_of() judges for the client that waits, where that is not as for the others.
void FillOneClient(bpf_map* clients, const volatile hr_backend_state& state, const hr_service_config& config,
                   BackendSnapshot& backend) {
  const uint64_t wait = state.wait_since, attested = hr_attested(wait, state.attested_since), now_ns = NowNs();
  const uint64_t timeout_ns = hr_suspicion_timeout_ns(&config, backend.p95_ns);
  if (wait == 0 || wait > now_ns || (wait & HR_WAIT_UNPROVED) != 0) return;
  if (backend.health == HR_DOWN && (attested == 0 || WitnessOf(clients, wait) == WitnessOf(clients, attested)))
    backend.one_client_health = HR_DOWN;
  if (backend.health == HR_HEALTHY && (attested == 0 || now_ns <= attested + timeout_ns))
    backend.one_client_health =
        static_cast<hr_health>(hr_health_by_wait(wait, wait + timeout_ns, config.election_timeout_ns, now_ns));
  if (backend.one_client_health != HR_HEALTHY) backend.one_client_waits_ns = now_ns - wait;
}

}  // namespace

absl::StatusOr<BackendSnapshot> KernelReader::ReadBackend(const ServiceSpec& service, const BackendSpec& spec,
                                                          bool histograms) {
  const auto& maps = object_.skeleton()->maps;
  const hr_service_config config = memory_.Config(memory_.Published(), service.id);
  const volatile hr_backend_state* state = memory_.backend_states.At<hr_backend_state>(spec.id);
  BackendSnapshot backend;
  backend.name = spec.name;
  const auto counts = SumBackendStats(maps.backend_stats, spec.id);
  if (!counts.ok()) return counts.status();
  backend.sends = counts->counters[HR_BACKEND_SENDS];
  backend.wins = counts->counters[HR_BACKEND_WINS];
  backend.unanswered = counts->counters[HR_BACKEND_UNANSWERED];
  backend.drained = (memory_.Policy(service.id).drained & (1u << spec.slot)) != 0;
  const uint64_t unrouted = memory_.Policy(service.id).unrouted;
  backend.unrouted = unrouted > NowNs() && (unrouted & (1u << spec.slot)) != 0;
  backend.failing = unrouted > NowNs() && (unrouted >> HR_FAILING_SHIFT & (1u << spec.slot)) != 0;
  backend.health = static_cast<hr_health>(state->health);
  backend.answer_ewma_ns = state->answer_ewma_ns;
  backend.last_receive_ns = state->last_receive_ns;
  backend.health_since_ns = state->health_since_ns;
  backend.retry_due = state->health == HR_IMPAIRED || hr_is_retry_due(state, config.election_timeout_ns, NowNs()) != 0;
  const volatile hr_backend_tuning* tuning = memory_.tuning.At<hr_backend_tuning>(spec.id);
  backend.p95_ns = tuning->p95_ns;
  backend.learned = {.slow_at = tuning->slow_at, .lost = tuning->lost};
  memcpy(&backend.load_state, const_cast<const hr_backend_load*>(memory_.backend_loads.At<hr_backend_load>(spec.id)),
         sizeof(backend.load_state));
  backend.load =
      hr_load(backend.load_state.in_flight - backend.learned.lost, backend.learned.slow_at,
              NowNs() > backend.load_state.reported_ns + HR_REPORT_LASTS_NS ? 0 : backend.load_state.reported);
  // As the programs will find when something is sent to it.
  if (backend.health != HR_HEALTHY && backend.health != HR_IMPAIRED &&
      hr_has_rested(&config, state, hr_suspicion_timeout_ns(&config, backend.p95_ns), NowNs()))
    backend.health = HR_HEALTHY;
  FillOneClient(maps.clients, *state, config, backend);
  if (backend.failing && backend.health == HR_HEALTHY) backend.health = HR_IMPAIRED;
  backend.tcp_health =
      static_cast<hr_health>(memory_.backend_states.At<hr_backend_state>(HR_TCP_STATE(spec.id))->health);
  if (!histograms) return backend;
  auto read = Histograms(maps.backend_histograms, spec.id, HR_BACKEND_HISTOGRAMS,
                         {backend.sends, backend.wins, backend.unanswered, backend.last_receive_ns});
  if (!read.ok()) return read.status();
  backend.answer_times = (*read)[HR_HISTOGRAM_ANSWERS];
  backend.ordinary_times = backend.answer_times.Since((*read)[HR_HISTOGRAM_HELD_BACK]);
  backend.ordinary_times.Add((*read)[HR_HISTOGRAM_PAUSES]);
  return backend;
}

absl::StatusOr<Snapshot> KernelReader::Read(bool histograms) {
  Snapshot snapshot;
  snapshot.taken_ns = NowNs();
  const RequestUse use = CountRequests();
  for (const ServiceSpec& each : spec_.services) {
    auto service = ReadService(each, histograms);
    if (!service.ok()) return service.status();
    service->in_flight = use.in_flight[each.id];
    snapshot.services.push_back(*std::move(service));
  }
  auto host = SumStats(object_.skeleton()->maps.stats, HR_MAX_SERVICES);
  if (!host.ok()) return host.status();
  snapshot.host = *host;
  const volatile hr_wheel& wheel = memory_.Wheel();
  snapshot.clock = {
      .running = wheel.running != 0, .laps = wheel.laps, .kicks = wheel.kicks, .restarts = wheel.restarts};
  snapshot.hedge_until_ns = wheel.hedge_until_ns;
  snapshot.maps = ReadMapUse(use);
  return snapshot;
}

}  // namespace hedgerow
