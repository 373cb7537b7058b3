// SPDX-License-Identifier: Apache-2.0
#include "cluster/sim/network.h"

#include <algorithm>

namespace hedgerow::sim {

void Network::Send(uint64_t from, uint64_t to, uint64_t delay_max_ns, const std::function<void()>& arrive, Kind kind) {
  Link& link = At(from, to);
  if (link.cut > 0 || random_.Chance(plan_.drop_ppm) || random_.Chance(plan_.corrupt_ppm)) {
    ++lost_;
    return;
  }
  if (kind == Kind::kAck && to == holds_for_) {
    held_.push_back(SealedFor(from, to, arrive, kind));
    return;
  }
  const int copies = random_.Chance(plan_.duplicate_ppm) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    uint64_t delay_ns = random_.Between(plan_.delay_min_ns, plan_.delay_max_ns);
    if (random_.Chance(plan_.late_ppm)) delay_ns += random_.Below(plan_.late_max_ns);
    const bool may_be_later = kind == Kind::kVote || (kind == Kind::kAck && plan_.late_acks);
    if (may_be_later && random_.Chance(plan_.late_votes_ppm)) delay_ns += random_.Below(plan_.late_votes_max_ns);
    if (link.slow_ns > 0) delay_ns += random_.Below(link.slow_ns);
    ++sent_;
    time_.After(std::min(delay_ns, delay_max_ns), SealedFor(from, to, arrive, kind));
  }
}

std::function<void()> Network::SealedFor(uint64_t from, uint64_t to, const std::function<void()>& arrive,
                                         [[maybe_unused]] Kind kind) {
  const bool peers = from < kFirstClient && to < kFirstClient;
  if (!peers) return arrive;
  return [this, epoch = epoch_, arrive] {
    if (epoch == epoch_) arrive();
  };
}

}  // namespace hedgerow::sim
