// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/state_checks.h"

#include <algorithm>
#include <bit>

namespace hedgerow::kv {
namespace {

// During a joint configuration: of the voters of either half, counted together. More than half of them decide which
// state is right.
uint64_t VotersOf(const raft::Configuration& configuration) {
  return static_cast<uint64_t>(std::popcount(configuration.deciding()));
}

bool Decides(const raft::Configuration& configuration, raft::NodeId node) {
  const raft::Member* const member = configuration.Find(node);
  return member != nullptr && ((configuration.deciding() >> member->slot) & 1) != 0;
}

}  // namespace

StateChecks::Check& StateChecks::Of(raft::LogIndex index) {
  const auto found =
      std::find_if(checks_.begin(), checks_.end(), [index](const Check& check) { return check.index == index; });
  if (found != checks_.end()) return *found;
  Check& check = checks_[next_++ % checks_.size()];
  check = {.index = index};
  return check;
}

void StateChecks::Record(raft::LogIndex index, uint64_t fingerprint) {
  Check& check = Of(index);
  check.recorded = true;
  check.own = fingerprint;
}

void StateChecks::Count(raft::LogIndex at, raft::LogIndex index, raft::NodeId node, uint64_t fingerprint,
                        const raft::Configuration& members) {
  if (members.Find(node) == nullptr) return;
  if (fingerprint == kFault) {
    if (node != self_) outside_.try_emplace(node, at);
    return;
  }
  Check& check = Of(index);
  check.said[node] = fingerprint;  // a learner's decides nothing, and may be outside like a voter's
  Judge(at, check, members);
}

void StateChecks::KeepOnly(const raft::Configuration& members) {
  std::erase_if(outside_, [&members](const auto& known) { return members.Find(known.first) == nullptr; });
}

void StateChecks::Mended(raft::NodeId node, raft::LogIndex index) {
  const auto known = outside_.find(node);
  if (known != outside_.end() && known->second <= index) outside_.erase(known);
}

void StateChecks::Judge(raft::LogIndex at, Check& check, const raft::Configuration& voters) {
  std::map<uint64_t, uint64_t> counts;
  uint64_t counted = 0;
  for (const auto& [node, fingerprint] : check.said) {
    if (!Decides(voters, node)) continue;
    ++counts[fingerprint];
    ++counted;
  }
  if (counted == 0) return;
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (2 * most->second <= VotersOf(voters)) {
    if (counted >= VotersOf(voters)) undecided_ = check.index;
    return;
  }
  undecided_ = {};
  for (const auto& [node, fingerprint] : check.said) {
    if (node == self_) continue;
    if (fingerprint != most->first) {
      outside_.try_emplace(node, at);
    } else {
      outside_.erase(node);
    }
  }
  if (check.judged) return;
  check.judged = true;
  if (!check.recorded) {
    ++counters_.skipped;
  } else if (check.own == most->first) {
    ++counters_.equal;
    // A voter alone agrees with itself, whatever it has.
    if (check.index >= wrong_since_ && VotersOf(voters) > 1) wrong_since_ = {};
  } else {
    ++counters_.differ;
    if (wrong_since_ == raft::LogIndex()) wrong_since_ = check.index;
  }
}

void StateChecks::FoundFault(raft::LogIndex applied) {
  ++counters_.faults;
  if (wrong_since_ == raft::LogIndex()) wrong_since_ = applied;
}

void StateChecks::StateReplaced() {
  if (wrong_since_ != raft::LogIndex()) ++counters_.mended;
  wrong_since_ = {};
  for (Check& check : checks_) check.recorded = false;
}

}  // namespace hedgerow::kv
