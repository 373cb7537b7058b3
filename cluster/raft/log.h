// SPDX-License-Identifier: Apache-2.0
//
// The log as the core sees it: all entries from index 1, in memory. The durable copy is the storage's; the two
// are kept equal by Persist outputs.

#ifndef HEDGEROW_CLUSTER_RAFT_LOG_H_
#define HEDGEROW_CLUSTER_RAFT_LOG_H_

#include <cstddef>
#include <vector>

#include "cluster/raft/types.h"

namespace hedgerow::raft {

class Log {
 public:
  explicit Log(std::vector<Entry> entries);

  LogIndex last_index() const { return LogIndex(entries_.size()); }
  Term last_term() const { return TermAt(last_index()); }
  bool Has(LogIndex index) const { return index <= last_index(); }  // index 0 is always there, with term 0
  Term TermAt(LogIndex index) const;
  const Entry& At(LogIndex index) const;

  void Append(Entry entry);
  void TruncateFrom(LogIndex index);

  // The first index whose term is that of the entry at `index`.
  LogIndex FirstOfTermAt(LogIndex index) const;
  // The last index with an entry of this term or an earlier one.
  LogIndex LastUpToTerm(Term term) const;

  // Entries from `first`, at least one if there is one, then while they stay within both bounds.
  std::vector<Entry> Slice(LogIndex first, size_t max_entries, size_t max_bytes) const;

 private:
  std::vector<Entry> entries_;
};

// What an entry costs in a message and in the bounds of Options.
size_t CostBytes(const Entry& entry);

}  // namespace hedgerow::raft

#endif  // HEDGEROW_CLUSTER_RAFT_LOG_H_
