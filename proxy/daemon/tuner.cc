// SPDX-License-Identifier: Apache-2.0
#include "proxy/daemon/tuner.h"

#include <algorithm>

namespace hedgerow {
namespace {

constexpr double kMillion = 1e6;

// First attempts that were never answered were waited for until the deadline: for the delay, though not for
// SUSPECT, they are answers that took that long.
Histogram WithUnanswered(const BackendSnapshot& backend, uint64_t deadline_ns) {
  Histogram all = backend.answer_times;
  if (backend.unanswered == 0) return all;
  all.buckets[hr_histogram_bucket(deadline_ns)] += backend.unanswered;
  all.max_ns = std::max(all.max_ns, deadline_ns);
  return all;
}

// The lower one of the learned number and the operator's; 0: there is none.
uint32_t SlowFrom(uint32_t learned, uint32_t max_in_flight) {
  if (learned == 0 || max_in_flight == 0) return std::max(learned, max_in_flight);
  return std::min(learned, max_in_flight);
}

}  // namespace

uint64_t AdaptiveDelayNs(const v1::Service& service, const Histogram& recent) {
  const auto fixed_ns = static_cast<uint64_t>(service.delay_ns());
  if (!service.has_adaptive() || recent.Count() < kAnswersMin) return fixed_ns;
  const double quantile = 1.0 - static_cast<double>(service.budget_ppm()) / kMillion;
  return std::clamp(recent.QuantileNs(quantile), static_cast<uint64_t>(service.adaptive().floor_ns()),
                    static_cast<uint64_t>(service.adaptive().cap_ns()));
}

std::optional<size_t> FastestChoice::Look(const ServiceSnapshot& service) {
  const size_t leader = service.leader.leader;
  const auto& backends = service.backends;
  // An earlier daemon's choice holds until there is a reason against it.
  if (looks_ == 0 && service.preferred != 0) chosen_ = wanted_ = service.preferred - 1;
  if (service.leader.pinned != 0) {
    looks_ = 1;
    return chosen_ = wanted_ = std::nullopt;
  }
  const auto usable = [&](size_t i) {
    return i < backends.size() && backends[i].health == HR_HEALTHY && !backends[i].drained &&
           backends[i].answer_ewma_ns > 0;
  };
  const size_t present = chosen_.value_or(leader);
  size_t best = present;
  for (size_t i = 0; i < backends.size(); ++i) {
    if (usable(i) && (!usable(best) || backends[i].answer_ewma_ns < backends[best].answer_ewma_ns)) best = i;
  }
  std::optional<size_t> wanted = chosen_;
  if (!usable(best)) {
    wanted = std::nullopt;  // no backend is healthy, undrained and measured
  } else if (present != leader && usable(leader) &&
             static_cast<double>(backends[leader].answer_ewma_ns) <=
                 kNearly * static_cast<double>(backends[best].answer_ewma_ns)) {
    wanted = std::nullopt;
  } else if (!usable(present) || backends[present].answer_ewma_ns > kSlowerBy * backends[best].answer_ewma_ns) {
    // While no backend is preferred, the kernel programs alone handle a leader that is not healthy or not measured.
    if (chosen_.has_value() || usable(leader)) wanted = best;
    if (wanted == leader) wanted = std::nullopt;
  }
  looks_ = wanted == wanted_ ? looks_ + 1 : 1;
  wanted_ = wanted;
  if (looks_ >= kLooks) chosen_ = wanted_;
  return chosen_;
}

Tuner::Tuner(const v1::Config& config) {
  for (const v1::Service& service : config.services()) {
    services_.push_back({.config = &service,
                         .backends = std::vector<Backend>(static_cast<size_t>(service.backends_size())),
                         .asked = 0,
                         .fastest = {}});
  }
}

absl::Status Tuner::Tune(const Snapshot& snapshot, LivePolicy& policy) {
  absl::Status first;
  for (size_t i = 0; i < snapshot.services.size() && i < services_.size(); ++i) {
    first.Update(TuneService(snapshot.taken_ns, snapshot.services[i], services_[i], policy));
  }
  return first;
}

void Tuner::Recall(const Snapshot& past) {
  for (size_t i = 0; i < past.services.size() && i < services_.size(); ++i) {
    const auto deadline_ns = static_cast<uint64_t>(services_[i].config->deadline_ns());
    const auto& seen = past.services[i].backends;
    for (size_t j = 0; j < seen.size() && j < services_[i].backends.size(); ++j) {
      Backend& backend = services_[i].backends[j];
      const Histogram all = WithUnanswered(seen[j], deadline_ns);
      backend.ordinary.P95Ns(past.taken_ns, seen[j].ordinary_times);
      backend.windows.Recent(past.taken_ns, all);
      backend.samples = all.Count();
    }
  }
}

absl::Status Tuner::TuneService(uint64_t now_ns, const ServiceSnapshot& snapshot, Service& service,
                                LivePolicy& policy) {
  absl::Status first;
  const auto deadline_ns = static_cast<uint64_t>(service.config->deadline_ns());
  std::vector<Histogram> recent(service.backends.size());
  uint64_t most = 0;
  for (size_t i = 0; i < service.backends.size() && i < snapshot.backends.size(); ++i) {
    Backend& backend = service.backends[i];
    const BackendSnapshot& seen = snapshot.backends[i];
    first.Update(policy.SetBackendP95(snapshot.name, i, backend.ordinary.P95Ns(now_ns, seen.ordinary_times)));
    const hr_backend_load& load = seen.load_state;
    first.Update(
        policy.SetBackendLoad(snapshot.name, i,
                              {.slow_at = SlowFrom(backend.slow_at.Look(now_ns, load), service.config->max_in_flight()),
                               .lost = backend.lost.Look(now_ns, load.lost_ns, load.in_flight)}));
    const Histogram all = WithUnanswered(seen, deadline_ns);
    recent[i] = backend.windows.Recent(now_ns, all);
    const uint64_t samples = all.Count();
    if (samples - backend.samples > most) {
      most = samples - backend.samples;
      service.asked = i;
    }
    backend.samples = samples;
  }
  // Requests are to show whether a standby answers before the first one needs it.
  const bool untested = ++service.looks > kLooksBeforeTests;
  std::vector<size_t> unhealthy;
  for (size_t i = 0; i < snapshot.backends.size(); ++i)
    if (snapshot.backends[i].health != HR_HEALTHY || (untested && snapshot.backends[i].last_receive_ns == 0))
      unhealthy.push_back(i);
  first.Update(policy.SetUnhealthy(snapshot.name, unhealthy));
  // Of the backend that gets the requests now: another one's answers say little about when a request to this
  // one is late, and after a change of leaders nothing. With shares all get them.
  if (service.config->has_adaptive() && service.asked < recent.size()) {
    Histogram& of = recent[service.asked];
    const bool shares = service.config->prefer() == v1::PREFER_EACH || service.config->prefer() == v1::PREFER_SOURCE;
    for (size_t i = 0; shares && i < recent.size(); ++i)
      if (i != service.asked) of.Add(recent[i]);
    first.Update(policy.SetDelay(snapshot.name, AdaptiveDelayNs(*service.config, of)));
  }
  if (service.config->prefer() == v1::PREFER_FASTEST) {
    first.Update(policy.SetPreferred(snapshot.name, service.fastest.Look(snapshot)));
  }
  return first;
}

}  // namespace hedgerow
