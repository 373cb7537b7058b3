// SPDX-License-Identifier: Apache-2.0
#include "cluster/raft/log.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "cluster/raft/check.h"

namespace hedgerow::raft {
namespace {

// More than one, so that memory shrinks while the log grows.
constexpr size_t kFreedPerAppend = 8;

}  // namespace

size_t CostBytes(const Entry& entry) { return entry.payload.size_bytes() + kEntryHeader_bytes; }

Log::Log(EntryId start, std::vector<Entry> entries)
    : start_(start), entries_(std::make_move_iterator(entries.begin()), std::make_move_iterator(entries.end())) {
  EntryId last = start_;
  for (const Entry& entry : entries_) {
    HEDGEROW_CHECK(entry.index == last.index.Next());
    HEDGEROW_CHECK(entry.term >= last.term);
    last = {.index = entry.index, .term = entry.term};
    bytes_.push_back((bytes_.empty() ? 0 : bytes_.back()) + CostBytes(entry));
  }
}

Term Log::TermAt(LogIndex index) const { return index == start_.index ? start_.term : At(index).term; }

const Entry& Log::At(LogIndex index) const {
  HEDGEROW_CHECK(index > start_.index && index <= last_index());
  return begin()[static_cast<ptrdiff_t>(index.value() - start_.index.value() - 1)];
}

void Log::Append(Entry entry) {
  HEDGEROW_CHECK(entry.index == last_index().Next());
  HEDGEROW_CHECK(entry.term >= last_term());
  bytes_.push_back(BytesUpTo(last_index()) + CostBytes(entry));
  entries_.push_back(std::move(entry));
  for (size_t i = 0; i < kFreedPerAppend && dead_ > 0; ++i, --dead_) {
    entries_.pop_front();
    bytes_.pop_front();
  }
}

void Log::TruncateFrom(LogIndex index) {
  HEDGEROW_CHECK(index > start_.index);
  if (index > last_index()) return;
  const size_t kept = dead_ + (index.value() - start_.index.value() - 1);
  entries_.resize(kept);
  bytes_.resize(kept);
}

void Log::CompactTo(LogIndex index) {
  const EntryId start{.index = index, .term = TermAt(index)};
  bytes_at_start_ = BytesUpTo(index);
  dead_ += index.value() - start_.index.value();
  start_ = start;
}

void Log::RestartAfter(EntryId start) {
  bytes_at_start_ = BytesUpTo(last_index());
  dead_ = entries_.size();
  start_ = start;
}

uint64_t Log::BytesUpTo(LogIndex index) const {
  if (index == start_.index) return bytes_at_start_;
  return bytes_[dead_ + static_cast<size_t>(index.value() - start_.index.value() - 1)];
}

LogIndex Log::TailBefore(LogIndex last, uint64_t max_entries, size_t max_bytes) const {
  HEDGEROW_CHECK(Has(last));
  const uint64_t last_bytes = BytesUpTo(last);
  uint64_t first = last.value() - std::min(last.value() - start_.index.value(), max_entries);
  for (uint64_t end = last.value(); first < end;) {
    const uint64_t middle = first + (end - first) / 2;
    if (last_bytes - BytesUpTo(LogIndex(middle)) <= max_bytes) {
      end = middle;
    } else {
      first = middle + 1;
    }
  }
  return LogIndex(first);
}

LogIndex Log::FirstOfTermAt(LogIndex index) const {
  const auto end = begin() + static_cast<ptrdiff_t>(index.value() - start_.index.value());
  const Term term = TermAt(index);
  const auto first = std::partition_point(begin(), end, [term](const Entry& e) { return e.term < term; });
  return start_.index + static_cast<uint64_t>(first - begin()) + 1;
}

LogIndex Log::LastUpToTerm(Term term) const {
  const auto after = std::partition_point(begin(), entries_.end(), [term](const Entry& e) { return e.term <= term; });
  return start_.index + static_cast<uint64_t>(after - begin());
}

std::vector<Entry> Log::Slice(LogIndex first, size_t max_entries, size_t max_bytes) const {
  std::vector<Entry> slice;
  size_t bytes = 0;
  for (LogIndex index = first; index <= last_index() && slice.size() < max_entries; index = index.Next()) {
    bytes += CostBytes(At(index));
    if (!slice.empty() && bytes > max_bytes) break;
    slice.push_back(At(index));
  }
  return slice;
}

}  // namespace hedgerow::raft
