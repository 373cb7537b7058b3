// SPDX-License-Identifier: Apache-2.0
//
// What stands in a log's folder, as bytes: the header of the log, and the records of its batches.
// Little-endian, each under a CRC-32 of its own.
//
// A record holds one batch: the state after it, whole (hard state, the log's start and last entry), and its
// entries, which end with the last one. The log after a batch is the log before it up to the first of its
// entries, and these. So a truncation needs no word of its own, and the last record says what the node must
// know without those before it; they are read for their entries. (index, term) names an entry in a cluster once
// and for all (Raft's Log Matching), and a record says the term before its first entry: a log whose terms link
// up to the last record's last term is the log that this record left.
//
// What seals a record is its segment's salt (segment_file.h), its batch's number, and all its bytes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/raft/types.h"
#include "cluster/storage/storage_options.h"

namespace hedgerow::storage {

// Raised when another program could misread what is written. 1 to 6 were in RocksDB, 7 had sessions without tokens
// (commands of versions 1 and 2): all are refused.
inline constexpr uint32_t kFormatVersion = 8;

struct LogHeader {
  uint32_t format_version = kFormatVersion;
  StoredIdentity identity{};
  // Which log it is: drawn when it began, never 0. Its node's peers remember it.
  uint64_t copy_id = 0;
  RecoveryGeneration generation{};
  raft::Configuration began_with{};  // without members: the node joined a cluster that was there
};

struct StateRecord {
  uint64_t batch = 0;  // counts from 1, without gaps
  raft::HardState hard_state{};
  raft::LogIndex last_index{};
  raft::Term last_term{};
  raft::EntryId start{};  // the log begins after this entry; what records hold of earlier ones means nothing

  bool operator==(const StateRecord&) const = default;
};

struct BatchRecord {
  StateRecord state{};
  raft::Term term_before{};  // of the entry before the first one; 0: the log begins later
  std::vector<raft::Entry> entries{};

  raft::LogIndex first() const { return raft::LogIndex(state.last_index.value() - entries.size() + 1); }
};

// A record that is being made: entries are appended, and taken back again by a truncation in the same batch.
class RecordBuilder {
 public:
  void Clear();
  void Append(const raft::Entry& entry);
  size_t entries() const { return places_.size(); }
  void TakeBack(size_t entries);  // the last ones
  // To be sealed before it is written.
  std::string& Finish(const StateRecord& state, raft::Term term_before);

 private:
  std::string bytes_;
  std::vector<size_t> places_;  // of the entries in bytes_
};

// Records stand one behind the other at multiples of this.
inline constexpr size_t kRecordAlign_bytes = 8;
inline constexpr size_t kRecordMin_bytes = 80;
void SealRecord(std::string& record, uint64_t salt);
// How long the record of `batch` at the front of `bytes` is. 0: none is there that is whole.
size_t RecordSize(std::string_view bytes, uint64_t salt, uint64_t batch);
uint64_t BatchNumber(std::string_view record);  // of what has at least kRecordMin_bytes
// Of a record that is whole. Nothing: it was written by no program that follows records.cc.
std::optional<StateRecord> ParseState(std::string_view record);
std::optional<BatchRecord> ParseBatch(std::string_view record);

std::string EncodeLogHeader(const LogHeader& header);
// Nothing: it is not what was written. Of a later format only the version is set.
std::optional<LogHeader> ParseLogHeader(std::string_view bytes);

// CRC-32 (zlib's) of `key`, then `body`.
uint32_t Checksum(std::string_view key, std::string_view body);

}  // namespace hedgerow::storage
