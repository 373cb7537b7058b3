// SPDX-License-Identifier: Apache-2.0
#include "proxy/admin/status.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "bpf/proxy/choose.h"
#include "config/scalar.h"
#include "operate/version.h"
#include "proxy/data_plane/names.h"

namespace hedgerow {
namespace {

double Share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

// Of a request that neither explores nor probes.
hr_choice_view ViewOf(const ServiceSnapshot& snapshot) {
  hr_choice_view view{};
  view.explore_tick = HR_EXPLORE_NEVER;
  view.probe_tick = 1;
  const size_t backends = std::min<size_t>(snapshot.backends.size(), HR_MAX_BACKENDS_PER_SERVICE);
  view.leader = snapshot.leader.leader;
  view.preferred = static_cast<uint8_t>(snapshot.preferred);
  uint32_t routed = 0;
  for (size_t i = 0; i < backends; ++i) routed |= snapshot.dry_run || !snapshot.backends[i].unrouted ? 1u << i : 0u;
  view.present = static_cast<uint8_t>(hr_choice_narrow((1u << backends) - 1, routed));
  view.spent = snapshot.failovers_spent ? 1 : 0;
  for (size_t i = 0; i < backends; ++i) {
    const BackendSnapshot& backend = snapshot.backends[i];
    const auto set_if = [i](bool is, __u8& mask) { mask = static_cast<uint8_t>(mask | (is ? 1u << i : 0u)); };
    view.answer_us[i] = hr_choice_by_load(backend.load, backend.answer_ewma_ns);
    set_if(backend.drained, view.drained);
    set_if(backend.health == HR_HEALTHY, view.healthy);
    set_if(backend.health == HR_SUSPECT, view.suspect);
    set_if(backend.health == HR_IMPAIRED, view.impaired);
    set_if(backend.retry_due, view.retry_due);
  }
  return view;
}

// Those that new requests go to, as hr_choose_first() narrows them.
uint32_t ServingPlaces(const ServiceSnapshot& snapshot) {
  const hr_choice_view view = ViewOf(snapshot);
  const uint32_t healthy = hr_choice_narrow(view.present, snapshot.dry_run ? ~0u : view.healthy);
  return hr_choice_narrow(healthy, ~uint32_t{view.drained});
}

// A pinned backend that is gone around leaves the shares to the others.
bool HasShares(const v1::Service& service, const ServiceSnapshot& snapshot) {
  const size_t pinned = snapshot.leader.leader;
  const bool alone =
      snapshot.leader.pinned != 0 && pinned < snapshot.backends.size() && (ServingPlaces(snapshot) >> pinned & 1) != 0;
  return (service.prefer() == v1::PREFER_EACH || service.prefer() == v1::PREFER_SOURCE) && !alone;
}

// Where no backend gets the requests alone: which ones do.
std::string SharesOr(const v1::Service& service, const ServiceSnapshot& snapshot, const std::string& backend) {
  if (!HasShares(service, snapshot)) return backend;
  const std::vector<double> shares = RequestShares(service, snapshot);
  std::vector<std::string> words;
  for (size_t i = 0; i < shares.size(); ++i)
    words.push_back(absl::StrFormat("%s %.0f%%", snapshot.backends[i].name, 100 * shares[i]));
  return absl::StrCat(service.prefer() == v1::PREFER_EACH ? "each" : "one for each client",
                      ", by weight: ", absl::StrJoin(words, ", "));
}

// 0 for what never happened.
int64_t AgeNs(uint64_t then_ns, uint64_t now_ns) {
  return then_ns == 0 || then_ns > now_ns ? 0 : static_cast<int64_t>(now_ns - then_ns);
}

template <typename Map>
void NonZeroReasons(const hr_stats& stats, Map& reasons) {
  for (const ReasonRow& reason : kReasons) {
    if (stats.reasons[reason.number] > 0) reasons[std::string(reason.name)] = stats.reasons[reason.number];
  }
}

template <typename Map>
void AllCounters(const hr_stats& stats, Map& counters) {
  for (const CounterRow& counter : kCounters) counters[std::string(counter.name)] = stats.counters[counter.number];
}

// The counters that have a field of their own, `requests` and others, besides their place in `counters`.
void FillCounterFields(const hr_stats& stats, v1::ServiceStatus& out) {
  for (const CounterRow& counter : kCounters) {
    const auto* field = v1::ServiceStatus::descriptor()->FindFieldByName(std::string(counter.name));
    if (field != nullptr) v1::ServiceStatus::GetReflection()->SetUInt64(&out, field, stats.counters[counter.number]);
  }
}

// By which names a reader of the status may check the books itself.
v1::Accounting BuildAccounting() {
  v1::Accounting out;
  for (const CounterRow& counter : kCounters) {
    if (counter.family == "outcome") out.add_outcomes(std::string(counter.name));
  }
  for (const ReasonRow& reason : kReasons) {
    if (reason.kind == "forwarded") out.add_forwarded_reasons(std::string(reason.name));
  }
  return out;
}

v1::BackendStatus BuildBackend(const v1::Service& service, const v1::Backend& config, const BackendSnapshot& snapshot,
                               bool leads, uint64_t now_ns) {
  v1::BackendStatus out;
  out.set_name(config.name());
  out.set_address(config.address());
  out.set_port(config.port());
  out.set_role(leads ? "leader" : "standby");
  out.set_health(HealthWord(snapshot.health));
  if (snapshot.one_client_health != HR_HEALTHY) out.set_one_client_health(HealthWord(snapshot.one_client_health));
  out.set_one_client_waits_ns(static_cast<int64_t>(snapshot.one_client_waits_ns));
  out.set_sent(snapshot.sends);
  out.set_won(snapshot.wins);
  *out.mutable_answer_ns() = ToQuantiles(snapshot.answer_times);
  // Before there are enough samples the fixed delay stands in for the p95, as in the kernel
  // (bpf/proxy/steer.bpf.h).
  const int64_t p95_ns = snapshot.p95_ns > 0 ? static_cast<int64_t>(snapshot.p95_ns) : service.delay_ns();
  out.set_suspect_after_ns(std::clamp<int64_t>(3 * p95_ns, service.suspect_min_ns(),
                                               std::max(service.suspect_max_ns(), service.suspect_min_ns())));
  out.set_drained(snapshot.drained);
  out.set_unanswered(snapshot.unanswered);
  out.set_in_flight(std::max(snapshot.load_state.in_flight, 0));
  out.set_lost_in_flight(snapshot.learned.lost);
  out.set_slow_at(snapshot.learned.slow_at);
  out.set_load(LoadShare(snapshot));
  out.set_last_answer_age_ns(AgeNs(snapshot.last_receive_ns, now_ns));
  return out;
}

void FillReloads(const ReloadFacts& facts, uint64_t now_ns, v1::Reloads& out) {
  const auto count = [&facts](ReloadResult result) { return facts.counts.at(static_cast<size_t>(result)); };
  out.set_applied(count(ReloadResult::kApplied));
  out.set_unchanged(count(ReloadResult::kUnchanged));
  out.set_invalid(count(ReloadResult::kInvalid));
  out.set_refused(count(ReloadResult::kRefused));
  out.set_failed(count(ReloadResult::kFailed));
  out.set_last_result(ReloadWord(facts.last));
  out.set_last_age_ns(AgeNs(static_cast<uint64_t>(facts.last_ns), now_ns));
  for (const std::string& problem : facts.last_problems) out.add_last_problems(problem);
  out.set_config_hash(facts.config_hash);
  out.set_config_age_ns(AgeNs(static_cast<uint64_t>(facts.config_since_ns), now_ns));
}

// What a person should know of the health of a service's backends.
std::vector<Problem> Troubles(const ServiceSnapshot& service, uint64_t now_ns) {
  size_t down = 0;
  std::vector<Problem> troubles;
  for (size_t i = 0; i < service.backends.size(); ++i) {
    const BackendSnapshot& backend = service.backends[i];
    if (backend.health == HR_HEALTHY && backend.tcp_health != HR_HEALTHY)
      troubles.push_back({backend.tcp_health == HR_SUSPECT ? ProblemCode::kBackendSuspect : ProblemCode::kBackendDown,
                          absl::StrCat(service.name, ": ", i == service.leader.leader ? "leader " : "standby ",
                                       backend.name, " refuses TCP connections, or does not answer them",
                                       service.dry_run ? "" : "; new ones go to another backend")});
    if (backend.health == HR_HEALTHY) continue;
    down += backend.health == HR_DOWN;
    const bool leads = i == service.leader.leader;
    if (backend.health == HR_IMPAIRED) {
      troubles.push_back({ProblemCode::kBackendImpaired,
                          absl::StrCat(service.name, ": ", leads ? "leader " : "standby ", backend.name,
                                       backend.failing ? " fails its check, which another backend passes"
                                                       : absl::StrCat(" leaves unanswered, or refuses, ",
                                                                      100 * backend.load_state.failing / 65536,
                                                                      "% of what another backend answers"),
                                       service.dry_run ? "" : "; requests go to that one")});
      continue;
    }
    const std::string silent =
        backend.last_receive_ns == 0
            ? absl::StrCat(" and was never heard (`hedgerow check ", service.name,
                           "` says why: it refuses, or answers from another address)")
            : absl::StrCat(", silent for ", config::RoundedDurationNs(AgeNs(backend.last_receive_ns, now_ns)));
    const char* requests = !leads                         ? ""
                           : service.dry_run              ? "; a dry run: no other backend is asked"
                           : backend.health == HR_SUSPECT ? "; requests go to it and to a standby"
                                                          : "; requests go to a standby";
    troubles.push_back({backend.health == HR_SUSPECT ? ProblemCode::kBackendSuspect : ProblemCode::kBackendDown,
                        absl::StrCat(service.name, ": ", leads ? "leader " : "standby ", backend.name, " ",
                                     HealthWord(backend.health), silent, requests)});
  }
  if (down > 0 && down == service.backends.size())
    return {{ProblemCode::kServiceDown, absl::StrCat(service.name, ": every backend is down")}};
  return troubles;
}

void AddPaths(const ServicePathFacts& path, v1::ServiceStatus& out) {
  out.set_source(path.source);
  out.set_vip_route(path.vip_route);
  for (size_t i = 0; i < path.backends.size() && static_cast<int>(i) < out.backends_size(); ++i) {
    v1::BackendStatus& backend = *out.mutable_backends(static_cast<int>(i));
    backend.set_uplink(path.backends[i].uplink);
    backend.set_next_hop(path.backends[i].next_hop);
  }
}

v1::ServiceStatus BuildService(const v1::Service& service, const ServiceSnapshot& snapshot, uint64_t now_ns) {
  v1::ServiceStatus out;
  out.set_name(service.name());
  out.set_vip(service.vip());
  *out.mutable_also_at() = service.also_at();
  out.set_port(service.port());
  out.set_profile(service.profile());
  out.set_delay_ns(static_cast<int64_t>(snapshot.delay_ns));
  out.set_adaptive(service.has_adaptive());
  const auto asked = static_cast<int>(RequestsTo(snapshot));
  if (asked < service.backends_size()) out.set_requests_to(SharesOr(service, snapshot, service.backends(asked).name()));
  const v1::Leader leader = BuildLeader(service, snapshot, now_ns);
  out.set_leader(leader.leader());
  out.set_state(leader.state());
  out.set_pinned(leader.pinned());
  out.set_leader_source(leader.source());
  out.set_bypass(snapshot.bypass);
  out.set_dry_run(snapshot.dry_run);
  out.set_pushed_back(snapshot.pushed_back);
  FillCounterFields(snapshot.stats, out);
  out.set_in_flight(snapshot.in_flight);
  out.set_identity_ok(IdentityHolds(snapshot));
  out.set_extra_load(Share(out.hedges(), out.requests()));
  out.set_extra_sends(snapshot.stats.counters[HR_EXTRA_SENDS]);
  out.set_extra_sends_share(Share(out.extra_sends(), out.requests()));
  out.set_idle_share(service.idle_copies_ppm() / 1e6);
  out.set_suspect_min_ns(service.suspect_min_ns());
  out.set_suspect_max_ns(service.suspect_max_ns());
  out.set_budget_tokens(snapshot.budget_tokens);
  *out.mutable_fire_error_ns() = ToQuantiles(snapshot.fire_error);
  *out.mutable_latency_ns() = ToQuantiles(snapshot.latency);
  NonZeroReasons(snapshot.stats, *out.mutable_reasons());
  AllCounters(snapshot.stats, *out.mutable_counters());
  const int backends = std::min<int>(service.backends_size(), static_cast<int>(snapshot.backends.size()));
  for (int i = 0; i < backends; ++i) {
    *out.add_backends() =
        BuildBackend(service, service.backends(i), snapshot.backends[i], i == snapshot.leader.leader, now_ns);
  }
  return out;
}

}  // namespace

double LoadShare(const BackendSnapshot& snapshot) { return static_cast<double>(snapshot.load) / HR_LOAD_FULL; }

std::string HealthWord(hr_health health) {
  constexpr std::array kWords = {"healthy", "suspect", "down", "impaired"};
  return static_cast<size_t>(health) < kWords.size() ? kWords.at(health) : "unknown";
}

bool IdentityHolds(const ServiceSnapshot& snapshot) {
  return snapshot.stats.counters[HR_REQUESTS] == Outcomes(snapshot.stats) + snapshot.in_flight;
}

size_t RequestsTo(const ServiceSnapshot& snapshot) {
  if (snapshot.leader.leader >= snapshot.backends.size()) return snapshot.leader.leader;
  const hr_choice_view view = ViewOf(snapshot);
  const hr_choice choice = hr_choose(&view);
  // A dry run steers around a drained backend alone (hr_choose_steered).
  const uint32_t target = hr_choice_target(hr_choice_leader(view.leader, view.present, view.drained), view.preferred,
                                           view.present, HR_EXPLORE_NEVER);
  if (snapshot.dry_run && !hr_choice_is_fair(&choice) && !(view.drained >> target & 1)) return target;
  return choice.first;
}

std::vector<double> RequestShares(const v1::Service& service, const ServiceSnapshot& snapshot) {
  std::vector<double> shares(snapshot.backends.size());
  const uint32_t places = ServingPlaces(snapshot);
  double whole = 0;
  for (size_t i = 0; i < shares.size() && HasShares(service, snapshot); ++i)
    if (places >> i & 1) whole += shares[i] = service.backends(static_cast<int>(i)).weight();
  for (double& share : shares) share = whole > 0 ? share / whole : 0;
  const size_t alone = HasShares(service, snapshot) ? hr_choice_lowest(places) : RequestsTo(snapshot);
  if (whole == 0 && alone < shares.size()) shares[alone] = 1;
  return shares;
}

v1::Drained BuildDrained(const v1::Service& service, const ServiceSnapshot& snapshot, const std::string& backend) {
  v1::Drained out;
  out.set_service(service.name());
  out.set_backend(backend);
  const size_t asked = RequestsTo(snapshot);
  if (asked < snapshot.backends.size()) {
    out.set_requests_to(SharesOr(service, snapshot, snapshot.backends[asked].name));
    out.set_without_effect(snapshot.backends[asked].drained);
  }
  for (size_t i = 0; i < snapshot.backends.size(); ++i) {
    if (snapshot.backends[i].name != backend) continue;
    out.set_drained(snapshot.backends[i].drained);
    out.set_leads(service.has_cluster() && snapshot.leader.published == i);
  }
  return out;
}

v1::Quantiles ToQuantiles(const Histogram& histogram) {
  v1::Quantiles out;
  out.set_count(histogram.Count());
  if (out.count() == 0) return out;
  out.set_p50(static_cast<int64_t>(histogram.QuantileNs(0.50)));
  out.set_p99(static_cast<int64_t>(histogram.QuantileNs(0.99)));
  out.set_max(static_cast<int64_t>(histogram.max_ns));
  return out;
}

v1::Leader BuildLeader(const v1::Service& service, const ServiceSnapshot& snapshot, uint64_t now_ns) {
  v1::Leader out;
  out.set_service(service.name());
  const size_t index = snapshot.leader.leader;
  if (static_cast<int>(index) < service.backends_size()) {
    out.set_leader(service.backends(static_cast<int>(index)).name());
  }
  if (index < snapshot.backends.size()) out.set_state(HealthWord(snapshot.backends[index].health));
  out.set_pinned(snapshot.leader.pinned != 0);
  out.set_cluster_epoch(snapshot.leader.cluster_epoch);
  out.set_term(snapshot.leader.term);
  out.set_sequence(snapshot.leader.sequence);
  out.set_age_ns(AgeNs(snapshot.leader.updated_ns, now_ns));
  const bool announced = snapshot.leader.announced_ns != 0;
  out.set_source(out.pinned() ? "pinned" : announced ? "announced" : "configured");
  if (!announced) return out;
  const int published = snapshot.leader.published;
  if (published < service.backends_size()) out.set_announced(service.backends(published).name());
  out.set_announced_age_ns(AgeNs(snapshot.leader.announced_ns, now_ns));
  out.set_resigning(snapshot.leader.resigning != 0);
  return out;
}

std::vector<Problem> AllProblems(const DaemonFacts& facts, const Snapshot& snapshot) {
  std::vector<Problem> all = facts.problems;
  all.insert(all.end(), facts.not_served.begin(), facts.not_served.end());
  for (const ServiceSnapshot& service : snapshot.services) {
    for (Problem& trouble : Troubles(service, snapshot.taken_ns)) all.push_back(std::move(trouble));
  }
  return all;
}

v1::Status BuildStatus(const v1::Config& config, const DaemonFacts& facts, const Snapshot& snapshot) {
  v1::Status out;
  out.set_version(operate::kVersion);
  out.set_instance(config.instance());
  out.set_pid(getpid());
  out.set_uptime_ns(static_cast<int64_t>(snapshot.taken_ns) - facts.started_ns);
  out.set_kernel(facts.kernel);
  out.set_interface(config.interface());
  out.set_config_file(facts.config_file);
  out.set_metrics(facts.metrics_address);
  out.set_page(facts.page_address);
  const std::vector<Problem> problems = AllProblems(facts, snapshot);
  for (const Problem& problem : problems) out.add_problems(problem.ToString());
  v1::Clock& clock = *out.mutable_clock();
  clock.set_running(snapshot.clock.running);
  clock.set_kind(facts.clock_kind);
  clock.set_laps(snapshot.clock.laps);
  clock.set_restarts(snapshot.clock.restarts);
  clock.set_starts_from_rest(snapshot.clock.kicks);
  clock.set_measured_error_ns(facts.clock_measured_error_ns);
  clock.set_tolerance_ns(config.clock().tolerance_ns());
  for (const MapUse& map : snapshot.maps) {
    v1::MapUse& use = (*out.mutable_maps())[map.name];
    use.set_used(map.used);
    use.set_size(map.size);
    use.set_bytes(map.bytes);
    use.set_exact(map.exact);
  }
  out.mutable_uplinks()->Assign(facts.uplinks.begin(), facts.uplinks.end());
  Histogram fire_error;
  uint64_t requests = 0;
  bool identity_ok = true;
  const int services = std::min<int>(config.services_size(), static_cast<int>(snapshot.services.size()));
  for (int i = 0; i < services; ++i) {
    const ServiceSnapshot& service = snapshot.services[i];
    v1::ServiceStatus& built = *out.add_services();
    built = BuildService(config.services(i), service, snapshot.taken_ns);
    if (static_cast<size_t>(i) < facts.paths.size()) AddPaths(facts.paths[static_cast<size_t>(i)], built);
    fire_error.Add(service.fire_error);
    requests += service.stats.counters[HR_REQUESTS];
    out.set_hedges(out.hedges() + service.stats.counters[HR_HEDGES]);
    identity_ok = identity_ok && IdentityHolds(service);
  }
  const bool any_down = std::any_of(problems.begin(), problems.end(),
                                    [](const Problem& each) { return each.code == ProblemCode::kServiceDown; });
  out.set_state(any_down ? "down" : problems.empty() ? "running" : "degraded");
  *out.mutable_fire_error_ns() = ToQuantiles(fire_error);
  out.set_extra_load(Share(out.hedges(), requests));
  out.set_identity_ok(identity_ok);
  out.set_routes_restored(facts.routes_restored);
  out.set_links_restored(facts.links_restored);
  *out.mutable_network() = facts.network;
  FillReloads(facts.reload, snapshot.taken_ns, *out.mutable_reloads());
  v1::Adoption& adoption = *out.mutable_adoption();
  adoption = facts.adoption;
  adoption.set_kernel_uptime_ns(AgeNs(static_cast<uint64_t>(facts.kernel_since_ns), snapshot.taken_ns));
  adoption.set_unattended_timeout_ns(config.unattended_timeout_ns());
  *out.mutable_accounting() = BuildAccounting();
  NonZeroReasons(snapshot.host, *out.mutable_reasons());
  AllCounters(snapshot.host, *out.mutable_counters());
  return out;
}

}  // namespace hedgerow
