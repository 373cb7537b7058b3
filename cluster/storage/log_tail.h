// SPDX-License-Identifier: Apache-2.0
//
// What must be known of a log to continue it: the state record, and at which indices its terms begin (a few
// numbers, however long the log is). It turns what the core asks to persist into the records of a batch, and
// checks at every step what the core promises: no gap, no term that goes back, no entry of a term above the
// hard state's.

#pragma once

#include <vector>

#include <rocksdb/write_batch.h>

#include "cluster/raft/outputs.h"
#include "cluster/raft/types.h"
#include "cluster/storage/records.h"

namespace hedgerow::storage {

class LogTail {
 public:
  // Of a log that was restored; its entries must link up.
  void Restore(const StateRecord& state, const std::vector<raft::Entry>& entries);

  // Appends the records of `persist` to `batch`: new start, truncation, entries. The state follows with Finish.
  void Apply(const raft::Persist& persist, rocksdb::WriteBatch& batch);
  // Ends a batch with the state as it is after it, under the next batch number.
  void Finish(rocksdb::WriteBatch& batch);

  const StateRecord& state() const { return state_; }

 private:
  struct TermStart {
    raft::Term term{};
    raft::LogIndex first{};
  };

  void Start(const raft::NewStart& start, rocksdb::WriteBatch& batch);
  void DeleteFrom(raft::LogIndex index, rocksdb::WriteBatch& batch);
  void TruncateFrom(raft::LogIndex index, rocksdb::WriteBatch& batch);
  raft::Term TermAt(raft::LogIndex index) const;
  void Append(const raft::Entry& entry);

  StateRecord state_;
  std::vector<TermStart> terms_;  // after the start, in order; the last one is state_.last_term's
};

}  // namespace hedgerow::storage
