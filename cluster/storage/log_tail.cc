// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/log_tail.h"

#include <string>

#include "cluster/raft/check.h"

namespace hedgerow::storage {
namespace {

void Check(const rocksdb::Status& status) { HEDGEROW_CHECK(status.ok()); }  // a batch in memory cannot fail

}  // namespace

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

void LogTail::Apply(const raft::Persist& persist, rocksdb::WriteBatch& batch) {
  if (persist.hard_state.has_value()) {
    HEDGEROW_CHECK(persist.hard_state->term >= state_.hard_state.term);
    state_.hard_state = *persist.hard_state;
  }
  if (persist.new_start.has_value()) Start(*persist.new_start, batch);
  if (persist.truncate_from.has_value()) TruncateFrom(*persist.truncate_from, batch);
  std::string record;
  for (const raft::Entry& entry : persist.entries) {
    const raft::Term previous_term = state_.last_term;
    Append(entry);
    const std::string key = EntryKey(entry.index);
    EncodeEntryInto(record, key, entry, previous_term);
    Check(batch.Put(key, record));
  }
}

void LogTail::Finish(rocksdb::WriteBatch& batch) {
  ++state_.batch;
  Check(batch.Put(rocksdb::Slice(kStateKey.data(), kStateKey.size()), EncodeState(state_)));
}

// One deletion for each entry: only what is not committed is ever truncated, and that is bounded. RocksDB's
// range deletions would make every later reading of the log depend on a much rarer piece of its code.
void LogTail::TruncateFrom(raft::LogIndex index, rocksdb::WriteBatch& batch) {
  HEDGEROW_CHECK(index > state_.start.index);
  for (raft::LogIndex gone = index; gone <= state_.last_index; gone = gone.Next()) {
    Check(batch.Delete(EntryKey(gone)));
  }
  if (index > state_.last_index) return;
  while (!terms_.empty() && terms_.back().first >= index) terms_.pop_back();
  state_.last_index = index.Previous();
  state_.last_term = terms_.empty() ? state_.start.term : terms_.back().term;
}

// Entries up to the new start stay where they are: nothing reads them any more, and RocksLog::DropUpTo removes
// whole files of them. What comes after it in a log that is emptied is really deleted, since it would be read.
void LogTail::Start(const raft::NewStart& start, rocksdb::WriteBatch& batch) {
  const raft::LogIndex index = start.after.index;
  HEDGEROW_CHECK(index >= state_.start.index && start.after.term <= state_.hard_state.term);
  if (start.empties) {
    for (raft::LogIndex gone = index.Next(); gone <= state_.last_index; gone = gone.Next()) {
      Check(batch.Delete(EntryKey(gone)));
    }
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
  if (terms_.empty() || entry.term > state_.last_term)
    terms_.push_back({.term = entry.term, .first = entry.index});
  state_.last_index = entry.index;
  state_.last_term = entry.term;
}

}  // namespace hedgerow::storage
