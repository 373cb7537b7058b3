// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/proposal_queue.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace hedgerow::kv {
namespace {

// With fewer than this the queue is not searched for what is not wanted any more.
constexpr size_t kLookAt = 1024;

}  // namespace

// Sessions are drawn at random or counted, seqs are counted: neither spreads by itself.
size_t ProposalQueue::Hash::operator()(const RequestKey& key) const {
  uint64_t hash = static_cast<uint64_t>(key.kind);
  for (const uint64_t word : {key.a, key.b, key.c, key.d}) hash = KeyedHash(secret, hash) ^ word;
  return KeyedHash(secret, hash);
}

// Here and not as entries come: a follower's log may be truncated, a leader's is not (Leader Append-Only).
// After a start the log may hold a million entries that are not known to be committed: a walk over all of them
// would take longer than an election timeout.
void ProposalQueue::BeginToLead(const raft::Log& log, raft::LogIndex applied, uint64_t unapplied_max) {
  leads_ = true;
  proposed_.clear();
  const uint64_t last = log.last_index().value();
  const raft::LogIndex looked_at(std::max(applied.value(), last - std::min(last, unapplied_max)));
  for (raft::LogIndex index = looked_at.Next(); index <= log.last_index(); index = index.Next()) {
    const raft::Entry& entry = log.At(index);
    if (entry.kind != raft::EntryKind::kCommand) continue;
    if (const std::optional<RequestKey> key = KeyUsedOnceIn(entry.payload.view())) proposed_.insert(*key);
  }
}

void ProposalQueue::EndToLead() {
  leads_ = false;
  queue_.clear();
  reported_ = 0;
  proposed_.clear();
}

ProposeCommand ProposalQueue::TakeFirst() {
  const ProposeCommand first = queue_.front();
  queue_.pop_front();
  if (reported_ > 0) --reported_;
  return first;
}

void ProposalQueue::StillQueued(const std::function<void(const ProposeCommand&)>& each) {
  for (; reported_ < queue_.size(); ++reported_) {
    ++counters.queued;
    each(queue_[reported_]);
  }
}

void ProposalQueue::DropUnwanted(size_t waiting, const std::function<bool(const RequestKey&)>& wanted) {
  if (queue_.size() < kLookAt + 2 * waiting) return;
  std::deque<ProposeCommand> kept;
  size_t reported = 0;
  for (size_t i = 0; i < queue_.size(); ++i) {
    if (!wanted(queue_[i].key)) {
      ++counters.unwanted;
      continue;
    }
    reported += i < reported_;
    kept.push_back(queue_[i]);
  }
  queue_ = std::move(kept);
  reported_ = reported;
}

bool ProposalQueue::AddProposed(const RequestKey& key) {
  if (!leads_ || !PolicyOf(key).used_once) return true;
  const bool added = proposed_.insert(key).second;
  counters.known += !added;
  return added;
}

void ProposalQueue::RemoveProposed(const RequestKey& key) {
  if (!proposed_.empty()) proposed_.erase(key);
}

}  // namespace hedgerow::kv
