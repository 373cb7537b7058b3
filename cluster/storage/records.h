// SPDX-License-Identifier: Apache-2.0
//
// What stands in the log's database, as bytes. Five kinds of record, each under a CRC-32 of its own that
// covers key and value, so that a record in the wrong place is as recognisable as a flipped bit:
//
//   "e" index  an entry, with the term of the entry before it
//   "i"        whose log this is, the format's version, and the configuration that it began with
//   "l"        which log it is: a number drawn when it began, that its node's peers remember. An older program
//   does
//              not see it, and a log of such a one gets it when it is opened
//   "o"        which beginning of its cluster it is of; only where the cluster has begun anew
//   "s"        the state: hard state, the log's start and last entry, the number of the batch that wrote it;
//              the reserved term of rule R9 follows as long as there is one
//
// Every batch writes the state anew. (index, term) names an entry in a cluster once and for all (Raft's Log
// Matching), so a log whose terms link up to the state's last term is the log that the batch left: a batch that
// is missing in the middle shows. "e" sorts before the others: otherwise every table would overlap every other,
// and compaction would rewrite the whole log each time.

#ifndef HEDGEROW_CLUSTER_STORAGE_RECORDS_H_
#define HEDGEROW_CLUSTER_STORAGE_RECORDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cluster/raft/types.h"
#include "cluster/storage/storage_options.h"

namespace hedgerow::storage {

// Raised when an older program could misread what a newer one writes. 1: no start, the log begins with entry 1.
// 2: no entries are configurations, and what it began with is the configuration file's to say. Both are read,
// and made 3 when they are opened. 4: the log is of a cluster that has begun anew, and has an origin; else it
// is as 3, and no log of a first beginning is of this format.
inline constexpr uint32_t kFormatVersion = 4;
inline constexpr uint32_t kFormatOfFirstBeginning = 3;
inline constexpr uint32_t kFormatBegunAnew = 4;

inline constexpr std::string_view kEntryPrefix = "e";
inline constexpr std::string_view kIdentityKey = "i";
inline constexpr std::string_view kLogIdKey = "l";
inline constexpr std::string_view kOriginKey = "o";
inline constexpr std::string_view kStateKey = "s";

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
std::string EncodeEntry(const raft::Entry& entry, raft::Term previous_term);
// The same in the place of what `record` holds, whose memory is used again. `key` is the entry's.
void EncodeEntryInto(std::string& record, std::string_view key, const raft::Entry& entry,
                     raft::Term previous_term);
std::string EncodeState(const StateRecord& state);
std::string EncodeIdentity(const IdentityRecord& identity);
std::string EncodeOrigin(const Origin& origin);
std::string EncodeLogId(uint64_t log_id);

// Nothing where the checksum or the length is wrong. Of an identity of a later version, only the version is
// set.
std::optional<StoredEntry> ParseEntry(std::string_view key, std::string_view value);
std::optional<StateRecord> ParseState(std::string_view value);
std::optional<IdentityRecord> ParseIdentity(std::string_view value);
std::optional<Origin> ParseOrigin(std::string_view value);
std::optional<uint64_t> ParseLogId(std::string_view value);  // never 0

// CRC-32 (zlib's) of `key`, then `body`.
uint32_t Checksum(std::string_view key, std::string_view body);

}  // namespace hedgerow::storage

#endif  // HEDGEROW_CLUSTER_STORAGE_RECORDS_H_
