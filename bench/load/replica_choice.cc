// SPDX-License-Identifier: Apache-2.0
#include "bench/load/replica_choice.h"

namespace hedgerow::bench {

ReplicaChoice::ReplicaChoice(size_t replicas, bool spread, CopyRule rule)
    : replicas_(replicas), spread_(spread), rule_(rule) {}

size_t ReplicaChoice::First() { return spread_ ? FewestInFlight(std::nullopt).value_or(0) : 0; }

std::optional<size_t> ReplicaChoice::Other(size_t than) { return FewestInFlight(than); }

bool ReplicaChoice::AtOnce(size_t first, size_t second) const {
  if (rule_.at_once != CopyAtOnce::kIdle) return rule_.at_once == CopyAtOnce::kAlways;
  return IsIdle(replicas_[first]) && IsIdle(replicas_[second]);
}

void ReplicaChoice::OnAnswered(size_t replica) {
  if (replicas_[replica].in_flight > 0) --replicas_[replica].in_flight;
}

void ReplicaChoice::OnForgotten(uint8_t replicas) {
  for (size_t i = 0; i < replicas_.size(); ++i) {
    if ((replicas >> i & 1) != 0) OnAnswered(i);
  }
}

bool ReplicaChoice::IsIdle(const Replica& replica) const {
  const double taken = static_cast<double>(replica.in_flight) / static_cast<double>(rule_.workers);
  const double reported = static_cast<double>(replica.reported) / 255;
  return taken < rule_.idle_below && reported < rule_.idle_below;
}

std::optional<size_t> ReplicaChoice::FewestInFlight(std::optional<size_t> except) {
  const size_t count = replicas_.size();
  std::optional<size_t> found;
  for (size_t step = 0; step < count; ++step) {
    const size_t i = (turn_ + step) % count;
    if (i == except) continue;
    if (!found.has_value() || replicas_[i].in_flight < replicas_[*found].in_flight) found = i;
  }
  turn_ = (turn_ + 1) % count;
  return found;
}

}  // namespace hedgerow::bench
