// SPDX-License-Identifier: Apache-2.0
#include "cluster/sim/network.h"

#include <algorithm>

namespace hedgerow::sim {
namespace {

// UDP's payload in an Ethernet frame; nothing carries fragments.
constexpr size_t kUnfragmentedMax_bytes = 1472;
// Longer than what keeps a leader in its lead, and shorter than an append with an entry.
constexpr size_t kFiltered_bytes = 140;
constexpr uint64_t kReplayedWithin_ns = 10 * kSecond;

}  // namespace

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
  SendOn(from, to, delay_max_ns, SealedFor(from, to, arrive, kind), kind);
}

void Network::SendOn(uint64_t from, uint64_t to, uint64_t delay_max_ns, const std::function<void()>& arrive,
                     Kind kind) {
  const Link& link = At(from, to);
  const int copies = random_.Chance(plan_.duplicate_ppm) ? 2 : 1;
  for (int i = 0; i < copies; ++i) {
    uint64_t delay_ns = random_.Between(plan_.delay_min_ns, plan_.delay_max_ns);
    if (random_.Chance(plan_.late_ppm)) delay_ns += random_.Below(plan_.late_max_ns);
    const bool may_be_later = kind == Kind::kVote || (kind == Kind::kAck && plan_.late_acks);
    if (may_be_later && random_.Chance(plan_.late_votes_ppm)) delay_ns += random_.Below(plan_.late_votes_max_ns);
    if (link.slow_ns > 0) delay_ns += random_.Below(link.slow_ns);
    ++sent_;
    time_.After(std::min(delay_ns, delay_max_ns), arrive);
  }
}

void Network::SendDatagram(uint64_t from, uint64_t to, std::string bytes, Kind kind) {
  const Link& link = At(from, to);
  const size_t longest_bytes = FiltersEntriesOf(from) ? kFiltered_bytes : kUnfragmentedMax_bytes;
  // Whatever the network does with it: an attacker may have recorded it. Not what must not be late (plan.h).
  if (sealed_.replay_ppm > 0 && kind != Kind::kForward) {
    Recorded& recorded =
        recorded_.size() < kRecordedMax ? recorded_.emplace_back() : recorded_[random_.Below(recorded_.size())];
    recorded = {.from = from, .to = to, .bytes = bytes};
  }
  if (link.cut == 0 && bytes.size() <= longest_bytes && !random_.Chance(plan_.drop_ppm)) {
    if (random_.Chance(sealed_.flip_ppm)) FlipBits(bytes);
    const auto arrive = [this, from, to, bytes = std::move(bytes)] { deliver_(from, to, bytes); };
    if (kind == Kind::kAck && to == holds_for_) {
      held_.push_back(arrive);
    } else {
      SendOn(from, to, kind == Kind::kForward ? kWindowedDelayMax_ns : UINT64_MAX, arrive, kind);
    }
  } else {
    ++lost_;
  }
  if (!recorded_.empty() && random_.Chance(sealed_.replay_ppm)) {
    const Recorded& again = recorded_[random_.Below(recorded_.size())];
    time_.After(random_.Below(kReplayedWithin_ns), [this, again] { deliver_(again.from, again.to, again.bytes); });
  }
}

void Network::FlipBits(std::string& bytes) {
  for (uint64_t flips = random_.Between(1, 3); flips > 0; --flips) {
    bytes[random_.Below(bytes.size())] ^= static_cast<char>(1u << random_.Below(8));
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
