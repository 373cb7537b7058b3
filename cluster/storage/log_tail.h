// SPDX-License-Identifier: Apache-2.0
//
// What must be known of a log to continue it: the state after its last batch, and at which indices its terms
// begin (a few numbers, however long the log is). It makes the record of a batch out of what the core asks to
// persist, and checks at every step what the core promises: no gap, no term that goes back, no entry of a term
// above the hard state's.

#pragma once

#include <string>
#include <vector>

#include "cluster/raft/outputs.h"
#include "cluster/raft/types.h"
#include "cluster/storage/records.h"

namespace hedgerow::storage {

class LogTail {
 public:
  // Of a log that was restored; its entries must link up.
  void Restore(const StateRecord& state, const std::vector<raft::Entry>& entries);

  // Adds to the batch: new start, truncation, entries.
  void Apply(const raft::Persist& persist);
  // Ends the batch, under the next number. The record is to be sealed, and there until the next Apply.
  std::string& Finish();

  const StateRecord& state() const { return state_; }

 private:
  struct TermStart {
    raft::Term term{};
    raft::LogIndex first{};
  };

  void Start(const raft::NewStart& start);
  void TruncateFrom(raft::LogIndex index);
  raft::Term TermAt(raft::LogIndex index) const;
  void Append(const raft::Entry& entry);

  StateRecord state_;
  std::vector<TermStart> terms_;  // after the start, in order; the last one is state_.last_term's
  RecordBuilder record_;
  bool finished_ = false;
};

}  // namespace hedgerow::storage
