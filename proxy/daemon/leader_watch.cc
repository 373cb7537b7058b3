// SPDX-License-Identifier: Apache-2.0
#include "proxy/daemon/leader_watch.h"

#include <algorithm>
#include <utility>

namespace hedgerow {

std::vector<std::string> LeaderWatch::Look(const Snapshot& snapshot) {
  std::vector<std::string> forgotten;
  outdated_.clear();
  std::map<std::string, Service> seen;  // a reload may have removed others
  for (const ServiceSnapshot& service : snapshot.services) {
    const auto before = services_.find(service.name);
    Service now = before != services_.end() ? before->second : Service();
    const uint64_t stale =
        service.stats.reasons[HR_REASON_ANNOUNCE_STALE] + service.stats.reasons[HR_REASON_ANNOUNCE_TERM];
    const uint64_t announced_ns = service.leader.announced_ns;
    const uint64_t silent_ns = announced_ns == 0 ? 0 : snapshot.taken_ns - std::min(announced_ns, snapshot.taken_ns);
    const bool more = stale > now.stale;
    now.stale = stale;
    now.looks = more && silent_ns > kOutdatedSilence_ns ? now.looks + 1 : 0;
    now.silent_looks = more && silent_ns > kSilence_ns ? now.silent_looks + 1 : 0;
    if (now.looks >= kOutdatedLooks) outdated_.push_back(service.name);
    if (now.silent_looks >= kLooks) {
      now.silent_looks = 0;
      forgotten.push_back(service.name);
    }
    seen.emplace(service.name, now);
  }
  services_ = std::move(seen);
  return forgotten;
}

}  // namespace hedgerow
