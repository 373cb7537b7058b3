// SPDX-License-Identifier: Apache-2.0
#include "proxy/daemon/event_log.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "proxy/page/events.h"

namespace hedgerow {
namespace {

bool IsHost(const v1::PageEvent& event) { return event.service().empty(); }
bool IsMoment(const v1::PageEvent& event) { return event.kind() == "health" && event.from() == event.to(); }

}  // namespace

std::vector<EventLog::Line> EventLog::Lines(const Snapshot& now, const DaemonFacts& facts, int64_t wall_ms) {
  std::vector<Line> lines;
  if (last_.has_value()) {
    const Moment earlier = {*last_, facts, wall_ms};
    const Moment later = {now, facts, wall_ms};
    for (const v1::PageEvent& event : EventsBetween(earlier, later)) {
      if (IsHost(event)) continue;
      std::string text = absl::StrCat(event.service(), ": ", event.text());
      if (IsMoment(event)) {
        Moments& moments = moments_[event.service()];
        const ServiceSnapshot* service = FindByName(now.services, event.service());
        if (service == nullptr || now.taken_ns < moments.told_ns + kMomentsNs) continue;
        const uint64_t before = moments.told_ns == 0
                                    ? FindByName(last_->services, event.service())->stats.counters[HR_SUSPECTED]
                                    : moments.suspected;
        const uint64_t suspected = service->stats.counters[HR_SUSPECTED];
        moments = {now.taken_ns, suspected};
        text = absl::StrCat(event.service(), ": backends were suspect for less than a second, ",
                            suspected - std::min(before, suspected), " times");
      }
      const bool unhealthy = event.kind() == "health" && event.to() != HealthWord(HR_HEALTHY);
      lines.push_back({.warning = unhealthy, .text = std::move(text)});
    }
  }
  last_ = now;
  return lines;
}

}  // namespace hedgerow
