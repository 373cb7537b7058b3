// SPDX-License-Identifier: Apache-2.0
#include "cluster/memcached/rate.h"

#include <algorithm>

namespace hedgerow::memcached {

Rate::Verdict Rate::Take(const Client& client, uint64_t now_ns) {
  Forget(now_ns);
  const auto known = paid_until_ns_.find(client);
  if (known == paid_until_ns_.end()) {
    if (paid_until_ns_.size() >= clients_max_) return Verdict::kTooManyClients;
    paid_until_ns_.emplace(client, now_ns + cost_ns_);
    order_.push_back(client);
    return Verdict::kTaken;
  }
  uint64_t& paid_until_ns = known->second;
  if (paid_until_ns > now_ns + kBurst_ns) return Verdict::kTooFast;
  paid_until_ns = std::max(paid_until_ns, now_ns) + cost_ns_;
  return Verdict::kTaken;
}

// Two for each that comes: the queue is gone through before it can double.
void Rate::Forget(uint64_t now_ns) {
  for (int i = 0; i < 2 && !order_.empty(); ++i) {
    const Client oldest = order_.front();
    order_.pop_front();
    const auto known = paid_until_ns_.find(oldest);
    if (known->second <= now_ns) {
      paid_until_ns_.erase(known);
    } else {
      order_.push_back(oldest);
    }
  }
}

}  // namespace hedgerow::memcached
