// SPDX-License-Identifier: Apache-2.0
//
// The log as the core sees it: all entries after its start, in memory. The start is index 0 until a snapshot
// stands for the log's beginning (Raft section 7). The durable copy is the storage's; the two are kept equal by
// Persist outputs.

#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "cluster/raft/types.h"

namespace hedgerow::raft {

class Log {
 public:
  Log(EntryId start, std::vector<Entry> entries);
  explicit Log(std::vector<Entry> entries) : Log(EntryId{}, std::move(entries)) {}

  // The entry before the first: it was committed, and its term is all that is left of it.
  const EntryId& start() const { return start_; }
  LogIndex first_index() const { return start_.index.Next(); }
  LogIndex last_index() const { return start_.index + size(); }
  Term last_term() const { return TermAt(last_index()); }
  EntryId last() const { return {.index = last_index(), .term = last_term()}; }
  // Its term is known: the start is always there.
  bool Has(LogIndex index) const { return index >= start_.index && index <= last_index(); }
  bool Has(const EntryId& entry) const { return Has(entry.index) && TermAt(entry.index) == entry.term; }
  Term TermAt(LogIndex index) const;
  const Entry& At(LogIndex index) const;

  void Append(Entry entry);
  void TruncateFrom(LogIndex index);
  // The entry at `index` and all before it go. Their memory is given back by later appends, a few each: to free
  // a million entries at once would stop the loop for a tenth of a second.
  void CompactTo(LogIndex index);
  // Everything goes; the log begins after another entry.
  void RestartAfter(EntryId start);

  // The first index after the start whose term is that of the entry at `index`, which comes after it, too.
  LogIndex FirstOfTermAt(LogIndex index) const;
  // The last index with an entry of this term or an earlier one; the start, if all after it are later.
  LogIndex LastUpToTerm(Term term) const;

  // Where a log that ends with `last` may begin after, at the earliest, for all that it then holds to stay
  // within both bounds (CostBytes). In a few steps, however long the log is.
  LogIndex TailBefore(LogIndex last, uint64_t max_entries, size_t max_bytes) const;

  // CostBytes of all entries after this one.
  uint64_t BytesAfter(LogIndex index) const { return BytesUpTo(last_index()) - BytesUpTo(index); }

  // Entries from `first`, at least one if there is one, then while they stay within both bounds.
  std::vector<Entry> Slice(LogIndex first, size_t max_entries, size_t max_bytes) const;

 private:
  size_t size() const { return entries_.size() - dead_; }
  std::deque<Entry>::const_iterator begin() const { return entries_.begin() + static_cast<ptrdiff_t>(dead_); }

  // CostBytes of all entries up to this one, counted from some earlier place.
  uint64_t BytesUpTo(LogIndex index) const;

  EntryId start_;
  std::deque<Entry> entries_;
  std::deque<uint64_t> bytes_;   // up to each of entries_, with it
  uint64_t bytes_at_start_ = 0;  // up to start_
  size_t dead_ = 0;              // compacted, at the front of both
};

// Beside its payload, what an entry takes in an append: term, index, kind and length (docs/WIRE_FORMAT.md).
constexpr size_t kEntryHeader_bytes = 21;

// What an entry costs in a message and in the bounds of Options.
size_t CostBytes(const Entry& entry);

}  // namespace hedgerow::raft
