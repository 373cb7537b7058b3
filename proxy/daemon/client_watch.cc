// SPDX-License-Identifier: Apache-2.0
#include "proxy/daemon/client_watch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace hedgerow {

std::vector<Problem> ClientWatch::Look(const Snapshot& snapshot) {
  std::vector<Problem> problems;
  for (const ServiceSnapshot& service : snapshot.services) {
    std::deque<Counts>& counts = services_[service.name];
    counts.push_back({service.stats.reasons[HR_REASON_NOT_A_CLIENT], service.stats.counters[HR_REQUESTS],
                      service.stats.counters[HR_UNANSWERED]});
    if (counts.size() > kSeconds + 1) counts.pop_front();
    const Counts &then = counts.front(), &now = counts.back();
    const uint64_t dropped = now.dropped - then.dropped, requests = now.requests - then.requests,
                   unanswered = now.unanswered - then.unanswered;
    // Without numbers: the log has each text's begin and end.
    if (dropped >= kDropped)
      problems.push_back({ProblemCode::kClientsDropped,
                          absl::StrCat(service.name, ": packets that this host would have forwarded to the VIP are ",
                                       "dropped: none of its `clients` sent them (`not_a_client`)")});
    const bool healthy = std::all_of(service.backends.begin(), service.backends.end(),
                                     [](const BackendSnapshot& backend) { return backend.health == HR_HEALTHY; });
    if (healthy && unanswered >= kUnanswered && 10 * unanswered >= 9 * requests)  // else the backends' problem says why
      problems.push_back(
          {ProblemCode::kClientsUnanswered,
           absl::StrCat(service.name, ": hardly any request of the last minute got an answer, though its ",
                        "backends are healthy")});
  }
  return problems;
}

}  // namespace hedgerow
