// SPDX-License-Identifier: Apache-2.0
#include "cluster/raft/log.h"

#include <algorithm>
#include <utility>

#include "cluster/raft/check.h"

namespace hedgerow::raft {
namespace {

// Term, kind and length beside the payload, as the peer protocol will carry them.
constexpr size_t kEntryHeader_bytes = 16;

}  // namespace

size_t CostBytes(const Entry& entry) { return entry.payload.size_bytes() + kEntryHeader_bytes; }

Log::Log(std::vector<Entry> entries) : entries_(std::move(entries)) {
  Term term;
  for (size_t i = 0; i < entries_.size(); ++i) {
    HEDGEROW_CHECK(entries_[i].index == LogIndex(i + 1));
    HEDGEROW_CHECK(entries_[i].term >= term);
    term = entries_[i].term;
  }
}

Term Log::TermAt(LogIndex index) const { return index == LogIndex() ? Term() : At(index).term; }

const Entry& Log::At(LogIndex index) const {
  HEDGEROW_CHECK(index > LogIndex() && Has(index));
  return entries_[index.value() - 1];
}

void Log::Append(Entry entry) {
  HEDGEROW_CHECK(entry.index == last_index().Next());
  HEDGEROW_CHECK(entry.term >= last_term());
  entries_.push_back(std::move(entry));
}

void Log::TruncateFrom(LogIndex index) {
  HEDGEROW_CHECK(index > LogIndex());
  if (Has(index)) entries_.resize(index.value() - 1);
}

LogIndex Log::FirstOfTermAt(LogIndex index) const {
  const auto end = entries_.begin() + static_cast<ptrdiff_t>(index.value());
  const Term term = TermAt(index);
  const auto first =
      std::partition_point(entries_.begin(), end, [term](const Entry& e) { return e.term < term; });
  return LogIndex(static_cast<uint64_t>(first - entries_.begin()) + 1);
}

LogIndex Log::LastUpToTerm(Term term) const {
  const auto after =
      std::partition_point(entries_.begin(), entries_.end(), [term](const Entry& e) { return e.term <= term; });
  return LogIndex(static_cast<uint64_t>(after - entries_.begin()));
}

std::vector<Entry> Log::Slice(LogIndex first, size_t max_entries, size_t max_bytes) const {
  std::vector<Entry> slice;
  size_t bytes = 0;
  for (LogIndex index = first; Has(index) && slice.size() < max_entries; index = index.Next()) {
    bytes += CostBytes(At(index));
    if (!slice.empty() && bytes > max_bytes) break;
    slice.push_back(At(index));
  }
  return slice;
}

}  // namespace hedgerow::raft
