// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/log_tail.h"

#include <algorithm>
#include <utility>

#include "cluster/raft/check.h"

namespace hedgerow::storage {

void LogTail::Restore(const StateRecord& state, const std::vector<raft::Entry>& entries) {
  state_ = StateRecord{.batch = state.batch,
                       .hard_state = state.hard_state,
                       .last_index = state.start.index,
                       .last_term = state.start.term,
                       .start = state.start};
  terms_.clear();
  for (const raft::Entry& entry : entries) Append(entry);
  HEDGEROW_CHECK(state_ == state);
}

void LogTail::Apply(const raft::Persist& persist) {
  if (std::exchange(finished_, false)) record_.Clear();
  if (persist.hard_state.has_value()) {
    HEDGEROW_CHECK(persist.hard_state->term >= state_.hard_state.term);
    state_.hard_state = *persist.hard_state;
  }
  if (persist.new_start.has_value()) Start(*persist.new_start);
  if (persist.truncate_from.has_value()) TruncateFrom(*persist.truncate_from);
  for (const raft::Entry& entry : persist.entries) {
    Append(entry);
    record_.Append(entry);
  }
}

std::string& LogTail::Finish() {
  if (std::exchange(finished_, true)) record_.Clear();
  ++state_.batch;
  const raft::LogIndex before(state_.last_index.value() - record_.entries());
  return record_.Finish(state_, before < state_.start.index ? raft::Term() : TermAt(before));
}

// The batch's own entries are taken back; those of earlier batches go by this one's last index.
void LogTail::TruncateFrom(raft::LogIndex index) {
  HEDGEROW_CHECK(index > state_.start.index);
  if (index > state_.last_index) return;
  const uint64_t gone = state_.last_index.value() - index.value() + 1;
  record_.TakeBack(std::min<uint64_t>(gone, record_.entries()));
  while (!terms_.empty() && terms_.back().first >= index) terms_.pop_back();
  state_.last_index = index.Previous();
  state_.last_term = terms_.empty() ? state_.start.term : terms_.back().term;
}

void LogTail::Start(const raft::NewStart& start) {
  const raft::LogIndex index = start.after.index;
  HEDGEROW_CHECK(index >= state_.start.index && start.after.term <= state_.hard_state.term);
  if (start.empties) {
    record_.TakeBack(record_.entries());
    terms_.clear();
    state_.last_index = index;
    state_.last_term = start.after.term;
  } else {
    HEDGEROW_CHECK(index <= state_.last_index && TermAt(index) == start.after.term);
    while (!terms_.empty() && terms_.front().first <= index) {
      if (terms_.size() > 1 ? terms_[1].first > index.Next() : state_.last_index > index) {
        terms_.front().first = index.Next();
        break;
      }
      terms_.erase(terms_.begin());
    }
  }
  state_.start = start.after;
}

raft::Term LogTail::TermAt(raft::LogIndex index) const {
  raft::Term term = state_.start.term;
  for (const TermStart& begun : terms_) {
    if (begun.first <= index) term = begun.term;
  }
  return term;
}

void LogTail::Append(const raft::Entry& entry) {
  HEDGEROW_CHECK(entry.index == state_.last_index.Next());
  HEDGEROW_CHECK(entry.term >= state_.last_term && entry.term <= state_.hard_state.term);
  if (terms_.empty() || entry.term > state_.last_term) terms_.push_back({.term = entry.term, .first = entry.index});
  state_.last_index = entry.index;
  state_.last_term = entry.term;
}

}  // namespace hedgerow::storage
