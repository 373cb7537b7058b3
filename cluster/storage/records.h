// SPDX-License-Identifier: Apache-2.0
//
// What stands in the log's database, as bytes. Five kinds of record, each under a CRC-32 of its own that
// covers key and value, so that a record in the wrong place is as recognisable as a flipped bit:
//
//   "I"            whose log this is, the format's version, and the configuration that it began with
//   "L"            which log it is: a number drawn when it began, that its node's peers remember
//   "O"            which beginning of its cluster it is of; only where the cluster has begun anew
//   "e" index      an entry, with the term of the entry before it
//   "e" index "s"  the state after a batch that left `index` as the log's end: hard state, the log's start and
//                  last entry, the number of the batch
//
// Every batch writes a state, and the last one of them in the order of the keys holds: a truncation deletes
// those behind it. (index, term) names an entry in a cluster once and for all (Raft's Log Matching), so a log
// whose terms link up to the state's last term is the log that the batch left: a batch that is missing in the
// middle shows.
//
// What a batch writes comes after everything that was written before, but for truncations and votes, so
// RocksDB's tables do not overlap, and compaction has nothing to rewrite (docs/adr/0020). Up to format 4
// identity and origin were "i" and "o", and there was one state, "s": all behind the entries, in every table's
// range.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cluster/raft/types.h"
#include "cluster/storage/storage_options.h"

namespace hedgerow::storage {

// Raised when an older program could misread what a newer one writes. 1: no start, the log begins with entry 1.
// 2: no entries are configurations, and what it began with is the configuration file's to say. 4 and 6: the log
// is of a cluster that has begun anew, and has an origin; else they are as 3 and 5, and no log of a first
// beginning is of these formats. Up to 4: the former keys, and no id. 1 to 3 are read and made 5 when they are
// opened, 4 is made 6.
inline constexpr uint32_t kFormatVersion = 6;
inline constexpr uint32_t kFormatOfFirstBeginning = 5;
inline constexpr uint32_t kFormatBegunAnew = 6;
inline constexpr uint32_t kFormatWithFormerKeys = 4;  // the last one
constexpr bool HasOrigin(uint32_t format) { return format == 4 || format == kFormatBegunAnew; }

inline constexpr std::string_view kIdentityKey = "I";
inline constexpr std::string_view kLogIdKey = "L";
inline constexpr std::string_view kOriginKey = "O";
inline constexpr std::string_view kEntryPrefix = "e";
inline constexpr std::string_view kEntriesEnd = "f";  // sorts after all entries and states
inline constexpr std::string_view kStateSuffix = "s";
inline constexpr std::string_view kFormerIdentityKey = "i";
inline constexpr std::string_view kFormerOriginKey = "o";
inline constexpr std::string_view kFormerStateKey = "s";

struct StateRecord {
  uint64_t batch = 0;  // counts from 1, without gaps
  raft::HardState hard_state{};
  raft::LogIndex last_index{};
  raft::Term last_term{};
  // The log begins after this entry. Records of earlier ones may be there, and mean nothing.
  raft::EntryId start{};

  bool operator==(const StateRecord&) const = default;
};

struct StoredEntry {
  raft::Entry entry{};
  raft::Term previous_term{};
};

struct IdentityRecord {
  uint32_t format_version = kFormatVersion;
  StoredIdentity identity{};
  // Without members: the node joined a cluster that was there. Nothing: the format is an earlier one.
  std::optional<raft::Configuration> began_with{};
};

std::string EntryKey(raft::LogIndex index);
// Of the state after a batch whose last entry this is.
std::string StateKey(raft::LogIndex last);
bool IsStateKey(std::string_view key);  // of the present format
std::string EncodeEntry(const raft::Entry& entry, raft::Term previous_term);
// The same in the place of what `record` holds, whose memory is used again. `key` is the entry's.
void EncodeEntryInto(std::string& record, std::string_view key, const raft::Entry& entry,
                     raft::Term previous_term);
// What they are sealed with is the key under which they will stand.
std::string EncodeState(std::string_view key, const StateRecord& state);
std::string EncodeIdentity(std::string_view key, const IdentityRecord& identity);
std::string EncodeOrigin(std::string_view key, const Origin& origin);
std::string EncodeLogId(uint64_t log_id);

// Nothing where the checksum or the length is wrong, or a state stands under another's key. Of an identity of a
// later version, only the version is set.
std::optional<StoredEntry> ParseEntry(std::string_view key, std::string_view value);
std::optional<StateRecord> ParseState(std::string_view key, std::string_view value);
std::optional<IdentityRecord> ParseIdentity(std::string_view key, std::string_view value);
std::optional<Origin> ParseOrigin(std::string_view key, std::string_view value);
std::optional<uint64_t> ParseLogId(std::string_view value);  // never 0

// CRC-32 (zlib's) of `key`, then `body`.
uint32_t Checksum(std::string_view key, std::string_view body);

}  // namespace hedgerow::storage
