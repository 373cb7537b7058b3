// SPDX-License-Identifier: Apache-2.0
#include "proxy/page/history.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "operate/version.h"
#include "proxy/data_plane/names.h"
#include "proxy/page/events.h"

namespace hedgerow {
namespace {

constexpr int64_t kMinuteMs = 60'000;

// What a counter grew by. One that shrank belongs to a kernel part that was started anew.
uint32_t Growth(uint64_t before, uint64_t now) {
  return static_cast<uint32_t>(std::min<uint64_t>(now < before ? now : now - before, UINT32_MAX));
}

int64_t QuantileOrNone(const Histogram& histogram, double q) {
  return histogram.Count() == 0 ? -1 : static_cast<int64_t>(histogram.QuantileNs(q));
}

v1::PageMinute ToMinute(const Histogram& recent) {
  v1::PageMinute out;
  out.set_p50_ns(QuantileOrNone(recent, 0.5));
  out.set_p99_ns(QuantileOrNone(recent, 0.99));
  out.set_p999_ns(QuantileOrNone(recent, 0.999));
  out.set_count(recent.Count());
  return out;
}

}  // namespace

History::ServiceSample History::Difference(const ServiceSnapshot* before, const ServiceSnapshot& now, uint64_t now_ns) {
  Minutes& minutes = minutes_[now.name];
  const Histogram answers = minutes.latency.Add(now_ns, now.latency);
  ServiceSample sample;
  sample.p50_ns = QuantileOrNone(answers, 0.5);
  sample.p99_ns = QuantileOrNone(answers, 0.99);
  sample.p999_ns = QuantileOrNone(answers, 0.999);
  sample.delay_ns = static_cast<int64_t>(now.delay_ns);
  for (const BackendSnapshot& backend : now.backends) {
    minutes.backends[backend.name].Add(now_ns, backend.answer_times);
    const BackendSnapshot* old = before == nullptr ? nullptr : FindByName(before->backends, backend.name);
    std::array<uint32_t, 2> counts{};
    if (old != nullptr) counts = {Growth(old->sends, backend.sends), Growth(old->wins, backend.wins)};
    sample.backends.push_back(counts);
  }
  if (before == nullptr) return sample;
  for (size_t i = 0; i < kSeries.size(); ++i) {
    sample.counts[i] = Growth(before->stats.counters[kSeries[i]], now.stats.counters[kSeries[i]]);
  }
  for (int i = 1; i < HR_REASON_COUNT; ++i) {
    const uint32_t count = Growth(before->stats.reasons[i], now.stats.reasons[i]);
    if (count > 0) sample.reasons.emplace_back(static_cast<uint8_t>(i), count);
  }
  return sample;
}

// After a reload that has changed the backends or their order: puts the earlier samples into the new order, in which a
// new backend has none.
void History::FollowBackends(const ServiceSnapshot& before, const ServiceSnapshot& now) {
  std::vector<size_t> places;
  bool same = before.backends.size() == now.backends.size();
  for (size_t i = 0; i < now.backends.size(); ++i) {
    const BackendSnapshot* old = FindByName(before.backends, now.backends[i].name);
    places.push_back(old == nullptr ? before.backends.size() : static_cast<size_t>(old - before.backends.data()));
    same = same && places.back() == i;
  }
  if (same) return;
  for (Sample& sample : samples_) {
    const auto service = sample.services.find(now.name);
    if (service == sample.services.end()) continue;
    std::vector<std::array<uint32_t, 2>> moved;
    for (const size_t place : places) {
      const auto& counts = service->second.backends;
      moved.push_back(place < counts.size() ? counts[place] : std::array<uint32_t, 2>{});
    }
    service->second.backends = std::move(moved);
  }
}

void History::Keep(v1::PageEvent event) {
  event.set_sample(last_number_);
  events_.push_back(std::move(event));
  if (events_.size() > kMaxEvents) events_.pop_front();
}

void History::Record(const v1::Config& config, const DaemonFacts& facts, const Snapshot& snapshot, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  const int64_t wall_ms = absl::ToUnixMillis(now);
  Sample sample;
  for (const ServiceSnapshot& service : snapshot.services) {
    const ServiceSnapshot* before = last_.has_value() ? FindByName(last_->snapshot.services, service.name) : nullptr;
    if (before != nullptr) FollowBackends(*before, service);
    sample.services.emplace(service.name, Difference(before, service, snapshot.taken_ns));
  }
  if (!last_.has_value()) {
    // The first snapshot holds what happened before this daemon: nothing of a second.
    v1::PageEvent event;
    event.set_at_ms(wall_ms);
    event.set_kind("start");
    event.set_text(absl::StrCat("hedgerowd ", operate::kVersion, " began to watch"));
    Keep(std::move(event));
  } else {
    sample.number = ++last_number_;
    sample.at_ms = wall_ms;
    sample.interval_ns = static_cast<int64_t>(snapshot.taken_ns - last_->snapshot.taken_ns);
    samples_.push_back(std::move(sample));
    if (samples_.size() > seconds_) samples_.pop_front();
    for (v1::PageEvent& event :
         EventsBetween({last_->snapshot, last_->facts, last_->wall_ms}, {snapshot, facts, wall_ms})) {
      Keep(std::move(event));
    }
  }
  std::erase_if(minutes_, [&](const auto& entry) { return FindByName(snapshot.services, entry.first) == nullptr; });
  last_.emplace(Last{snapshot, facts, config, wall_ms});
}

void History::FillBackends(const ServiceSnapshot& now, uint64_t after, v1::PageService& out) const {
  const auto minutes = minutes_.find(now.name);
  for (size_t i = 0; i < now.backends.size(); ++i) {
    v1::PageBackend& backend = *out.add_backends();
    backend.set_name(now.backends[i].name);
    for (const Sample& sample : samples_) {
      if (sample.number <= after) continue;
      const auto service = sample.services.find(now.name);
      const bool known = service != sample.services.end() && i < service->second.backends.size();
      backend.add_sent(known ? service->second.backends[i][0] : 0);
      backend.add_won(known ? service->second.backends[i][1] : 0);
    }
    if (minutes == minutes_.end()) continue;
    const auto recent = minutes->second.backends.find(now.backends[i].name);
    if (recent != minutes->second.backends.end()) *backend.mutable_minute() = ToMinute(recent->second.Recent());
  }
}

void History::FillReasons(const ServiceSnapshot& now, v1::PageService& out) const {
  std::array<uint64_t, HR_REASON_COUNT> minute{};
  for (auto sample = samples_.rbegin(); sample != samples_.rend(); ++sample) {
    if (sample->at_ms + kMinuteMs <= samples_.back().at_ms) break;
    const auto service = sample->services.find(now.name);
    if (service == sample->services.end()) continue;
    for (const auto& [reason, count] : service->second.reasons) minute[reason] += count;
  }
  for (const ReasonRow& row : kReasons) {
    if (now.stats.reasons[row.number] == 0) continue;
    v1::PageReason& reason = *out.add_reasons();
    reason.set_name(std::string(row.name));
    reason.set_kind(std::string(row.kind));
    reason.set_minute(minute[row.number]);
    reason.set_total(now.stats.reasons[row.number]);
  }
}

void History::FillService(const v1::Service& config, const ServiceSnapshot& now, uint64_t after,
                          v1::PageService& out) const {
  out.set_name(now.name);
  out.set_budget_ppm(config.budget_ppm());
  out.set_deadline_ns(config.deadline_ns());
  out.set_attempts(config.attempts());
  const std::array<google::protobuf::RepeatedField<uint64_t>*, kSeries.size()> series = {
      out.mutable_requests(),        out.mutable_hedges(),         out.mutable_won_by_hedge(),
      out.mutable_won_by_failover(), out.mutable_failover_sends(), out.mutable_losers_dropped(),
      out.mutable_unanswered(),      out.mutable_nacked(),         out.mutable_passed_through(),
      out.mutable_extra_sends()};
  const ServiceSample none;
  for (const Sample& sample : samples_) {
    if (sample.number <= after) continue;
    const auto found = sample.services.find(now.name);
    const ServiceSample& service = found == sample.services.end() ? none : found->second;
    out.add_p50_ns(service.p50_ns);
    out.add_p99_ns(service.p99_ns);
    out.add_p999_ns(service.p999_ns);
    out.add_delay_ns(service.delay_ns);
    for (size_t i = 0; i < kSeries.size(); ++i) series[i]->Add(service.counts[i]);
  }
  const auto minutes = minutes_.find(now.name);
  if (minutes != minutes_.end()) *out.mutable_minute() = ToMinute(minutes->second.latency.Recent());
  FillBackends(now, after, out);
  FillReasons(now, out);
}

v1::PageData History::Since(uint64_t after, absl::Time now) const {
  v1::PageData data;
  data.set_version(1);
  data.set_kind("proxy");
  data.set_boot(boot_);
  data.set_now_ms(absl::ToUnixMillis(now));
  data.set_history_seconds(static_cast<uint32_t>(seconds_));
  absl::MutexLock lock(&mutex_);
  data.set_next(last_number_);
  for (const Sample& sample : samples_) {
    if (sample.number <= after) continue;
    data.add_at_ms(sample.at_ms);
    data.add_interval_ns(sample.interval_ns);
  }
  for (const v1::PageEvent& event : events_) {
    // A client that asks for everything also gets the events of the first snapshot.
    if (event.sample() > after || after == 0) *data.add_events() = event;
  }
  if (!last_.has_value()) return data;
  for (const v1::Service& service : last_->config.services()) {
    const ServiceSnapshot* snapshot = FindByName(last_->snapshot.services, service.name());
    if (snapshot != nullptr) FillService(service, *snapshot, after, *data.add_services());
  }
  *data.mutable_status() = BuildStatus(last_->config, last_->facts, last_->snapshot);
  return data;
}

}  // namespace hedgerow
