// SPDX-License-Identifier: Apache-2.0
#include "steer/table.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "bpf/abi/siphash_abi.h"

namespace hedgerow::steer {
namespace {

constexpr int kBuckets = HR_STEER_BUCKETS;
constexpr int kSlots = HR_STEER_SLOTS;
using Counts = std::array<int, kSlots>;

// Not secret: it orders the slots of a bucket, while the group's own seed decides a source's bucket. Another value
// would move buckets of running groups at their next change.
constexpr hr_siphash_key kOrderKey = {0x7265676465682d72, 0x7265657473};

// How far bucket and slot are from each other for a slot of weight 1: exponentially distributed, so that
// divided by its weight a slot is the nearest one to its weight's part of the buckets.
double Distance(int bucket, int slot) {
  static const auto* distances = [] {
    auto* made = new std::array<std::array<double, kSlots>, kBuckets>();
    for (int b = 0; b < kBuckets; ++b) {
      for (int s = 0; s < kSlots; ++s) {
        const uint32_t pair[2] = {static_cast<uint32_t>(b), static_cast<uint32_t>(s)};
        const uint64_t hash = hr_siphash(&kOrderKey, pair, sizeof(pair)) >> 11;
        (*made)[static_cast<size_t>(b)][static_cast<size_t>(s)] =
            -std::log((static_cast<double>(hash) + 0.5) / 9007199254740992.0);  // 2^53
      }
    }
    return made;
  }();
  return (*distances)[static_cast<size_t>(bucket)][static_cast<size_t>(slot)];
}

double WeightOf(absl::Span<const double> weights, int slot) {
  return static_cast<size_t>(slot) < weights.size() ? weights[static_cast<size_t>(slot)] : 0;
}

// A bucket and a slot that may get it, ordered by distance, then by number.
struct Candidate {
  bool leaves_its_own = false;
  double distance = 0;
  int bucket = 0;
  int slot = 0;

  bool operator<(const Candidate& other) const {
    if (leaves_its_own != other.leaves_its_own) return other.leaves_its_own;
    if (distance != other.distance) return distance < other.distance;
    return bucket != other.bucket ? bucket < other.bucket : slot < other.slot;
  }
};

absl::StatusOr<Counts> Due(absl::Span<const double> weights) {
  const auto shares = Shares(weights);
  if (!shares.ok()) return shares.status();
  Counts due{};
  std::copy(shares->begin(), shares->end(), due.begin());
  return due;
}

}  // namespace

absl::StatusOr<std::vector<int>> Shares(absl::Span<const double> weights) {
  if (weights.size() > kSlots)
    return absl::InvalidArgumentError(absl::StrCat(weights.size(), " workers, and a group has at most ", kSlots));
  double sum = 0;
  for (size_t slot = 0; slot < weights.size(); ++slot) {
    if (!std::isfinite(weights[slot]) || weights[slot] < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("the weight of slot ", slot, " is ", weights[slot], ", not a number from 0 up"));
    }
    sum += weights[slot];
  }
  if (sum <= 0) return absl::InvalidArgumentError("no slot has a weight above 0, so none would serve");
  if (!std::isfinite(sum)) return absl::InvalidArgumentError("the weights are too large to be added");

  std::vector<int> shares(weights.size());
  std::vector<double> rest(weights.size());
  for (size_t slot = 0; slot < weights.size(); ++slot) {
    const double exact = weights[slot] / sum * kBuckets;
    if (weights[slot] > 0 && exact < 0.5) {
      return absl::InvalidArgumentError(absl::StrCat("the weight of slot ", slot, " is ", weights[slot], " of ", sum,
                                                     " in all: less than half a bucket of ", kBuckets,
                                                     "; use 0, or a larger one"));
    }
    shares[slot] = static_cast<int>(exact);
    rest[slot] = exact - shares[slot];
  }
  std::vector<size_t> order(weights.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rest[a] > rest[b]; });
  const int left = kBuckets - std::accumulate(shares.begin(), shares.end(), 0);
  for (int i = 0; i < left; ++i) ++shares[order[static_cast<size_t>(i) % order.size()]];
  return shares;
}

absl::StatusOr<Home> NewHome(absl::Span<const double> weights) {
  auto due = Due(weights);
  if (!due.ok()) return due.status();
  std::vector<Candidate> candidates;
  for (int bucket = 0; bucket < kBuckets; ++bucket) {
    for (int slot = 0; slot < kSlots; ++slot) {
      if ((*due)[static_cast<size_t>(slot)] > 0)
        candidates.push_back({false, Distance(bucket, slot) / WeightOf(weights, slot), bucket, slot});
    }
  }
  std::sort(candidates.begin(), candidates.end());
  Home home{};
  std::vector<bool> has_slot(kBuckets);
  for (const Candidate& candidate : candidates) {
    int& left = (*due)[static_cast<size_t>(candidate.slot)];
    if (left == 0 || has_slot[static_cast<size_t>(candidate.bucket)]) continue;
    --left;
    has_slot[static_cast<size_t>(candidate.bucket)] = true;
    home[static_cast<size_t>(candidate.bucket)] = static_cast<uint8_t>(candidate.slot);
  }
  return home;
}

// Each bucket moves from a slot with too many to a slot with too few, which is the fewest moves. Buckets whose
// place in NewHome's table is their goal move first: an undrained slot gets its former buckets back, and so does a
// table after `resize` up and down.
absl::StatusOr<Home> MoveHome(const Home& home, absl::Span<const double> weights) {
  const auto due = Due(weights);
  if (!due.ok()) return due.status();
  const auto own = NewHome(weights);
  if (!own.ok()) return own.status();
  Counts surplus{};
  for (const uint8_t slot : home) {
    ++surplus[slot];
  }
  for (size_t slot = 0; slot < kSlots; ++slot) surplus[slot] -= (*due)[slot];

  Home moved = home;
  const auto move = [&](size_t bucket, size_t to) {
    const size_t from = moved[bucket];
    if (surplus[from] <= 0 || surplus[to] >= 0) return;
    --surplus[from];
    ++surplus[to];
    moved[bucket] = static_cast<uint8_t>(to);
  };
  for (size_t bucket = 0; bucket < kBuckets; ++bucket) move(bucket, (*own)[bucket]);

  std::vector<Candidate> candidates;
  for (int bucket = 0; bucket < kBuckets; ++bucket) {
    const uint8_t from = moved[static_cast<size_t>(bucket)];
    if (surplus[from] <= 0) continue;
    for (int slot = 0; slot < kSlots; ++slot) {
      if (surplus[static_cast<size_t>(slot)] >= 0) continue;
      candidates.push_back({(*own)[static_cast<size_t>(bucket)] == from,
                            Distance(bucket, slot) / WeightOf(weights, slot), bucket, slot});
    }
  }
  std::sort(candidates.begin(), candidates.end());
  for (const Candidate& candidate : candidates) {
    const auto bucket = static_cast<size_t>(candidate.bucket);
    if (moved[bucket] == home[bucket]) move(bucket, static_cast<size_t>(candidate.slot));
  }
  return moved;
}

std::array<hr_steer_entry, HR_STEER_BUCKETS> Entries(const Home& home, absl::Span<const double> weights,
                                                     const std::vector<bool>& empty, hr_steer_empty policy) {
  const auto is_empty = [&](int slot) {
    return static_cast<size_t>(slot) < empty.size() && empty[static_cast<size_t>(slot)];
  };
  std::array<hr_steer_entry, HR_STEER_BUCKETS> entries{};
  for (int bucket = 0; bucket < kBuckets; ++bucket) {
    hr_steer_entry& entry = entries[static_cast<size_t>(bucket)];
    const int slot = home[static_cast<size_t>(bucket)];
    entry.slot = entry.other_slot = static_cast<uint8_t>(slot);
    entry.is_vacant = is_empty(slot);
    entry.empty = static_cast<uint8_t>(policy);
    if ((policy & HR_STEER_OTHER) == 0) continue;
    int other = -1;
    double nearest = 0;
    for (int candidate = 0; candidate < static_cast<int>(weights.size()); ++candidate) {
      if (candidate == slot || is_empty(candidate) || WeightOf(weights, candidate) <= 0) continue;
      const double distance = Distance(bucket, candidate) / WeightOf(weights, candidate);
      if (other >= 0 && distance >= nearest) continue;
      other = candidate;
      nearest = distance;
    }
    if (other >= 0) {
      entry.other_slot = static_cast<uint8_t>(other);
    } else {
      entry.empty &= HR_STEER_KERNEL;  // no slot could take it
    }
  }
  return entries;
}

}  // namespace hedgerow::steer
