// SPDX-License-Identifier: Apache-2.0
#include "proxy/daemon/leader_watch.h"

#include <utility>

namespace hedgerow {

std::vector<std::string> LeaderWatch::Look(const Snapshot& snapshot) {
  std::vector<std::string> forgotten;
  std::map<std::string, Service> seen;  // a reload may have removed others
  for (const ServiceSnapshot& service : snapshot.services) {
    const auto before = services_.find(service.name);
    Service now = before != services_.end() ? before->second : Service();
    const uint64_t stale =
        service.stats.reasons[HR_REASON_ANNOUNCE_STALE] + service.stats.reasons[HR_REASON_ANNOUNCE_TERM];
    const uint64_t announced_ns = service.leader.announced_ns;
    const bool silent = announced_ns != 0 && snapshot.taken_ns > announced_ns + kSilence_ns;
    now.looks = silent && stale > now.stale ? now.looks + 1 : 0;
    now.stale = stale;
    if (now.looks >= kLooks) {
      now.looks = 0;
      forgotten.push_back(service.name);
    }
    seen.emplace(service.name, now);
  }
  services_ = std::move(seen);
  return forgotten;
}

}  // namespace hedgerow
