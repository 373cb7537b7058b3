// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/log_restore.h"

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <rocksdb/iterator.h>
#include <rocksdb/options.h>

#include "absl/strings/str_cat.h"
#include "cluster/storage/errors.h"

namespace hedgerow::storage {
namespace {

// What is wrong with `stored` after an entry of `last` and `last_term`; empty if nothing.
std::string Misfit(const StoredEntry& stored, raft::LogIndex last, raft::Term last_term,
                   const StateRecord& state) {
  const raft::Entry& entry = stored.entry;
  const uint64_t index = entry.index.value();
  if (entry.index != last.Next())
    return absl::StrCat("entry ", last.Next().value(), " is missing before entry ", index);
  if (stored.previous_term != last_term) {
    return absl::StrCat("entry ", index, " follows an entry of term ", stored.previous_term.value(),
                        ", but entry ", last.value(), " is of term ", last_term.value());
  }
  if (entry.term < last_term || entry.term > state.hard_state.term) {
    return absl::StrCat("entry ", index, " is of term ", entry.term.value(), ", which is not between term ",
                        last_term.value(), " of the entry before and the node's term ",
                        state.hard_state.term.value());
  }
  if (entry.index > state.last_index) {
    return absl::StrCat("entry ", index, " is there, though the log ended with entry ",
                        state.last_index.value());
  }
  return "";
}

// Under the present key, or else under the former one, which is gone once a log was made the present format.
// Nothing: there is neither.
absl::StatusOr<std::optional<IdentityRecord>> ReadIdentity(rocksdb::DB& db, const std::string& path) {
  for (const std::string_view key : {kIdentityKey, kFormerIdentityKey}) {
    std::string value;
    const rocksdb::Status status = db.Get(rocksdb::ReadOptions(), SliceOf(key), &value);
    if (status.IsNotFound()) continue;
    if (!status.ok()) return FromRocks(path, "read", status);
    std::optional<IdentityRecord> found = ParseIdentity(key, value);
    if (!found.has_value())
      return DamagedError(path, "the record that says whose log it is has a wrong checksum");
    return found;
  }
  return std::nullopt;
}

absl::StatusOr<StateRecord> ReadFormerState(rocksdb::DB& db, const std::string& path) {
  std::string value;
  const rocksdb::Status status = db.Get(rocksdb::ReadOptions(), SliceOf(kFormerStateKey), &value);
  if (status.IsNotFound()) return DamagedError(path, "it has no state record");
  if (!status.ok()) return FromRocks(path, "read", status);
  const std::optional<StateRecord> state = ParseState(kFormerStateKey, value);
  if (!state.has_value()) return DamagedError(path, "the state record has a wrong checksum");
  return *state;
}

}  // namespace

absl::Status LaterFormatError(const std::string& path, uint32_t format) {
  return absl::FailedPreconditionError(absl::StrCat("the log in ", path, " has format ", format,
                                                    ", and this program reads formats up to ", kFormatVersion,
                                                    ": start the version of the program that wrote it"));
}

absl::StatusOr<IdentityRecord> CheckIdentity(rocksdb::DB& db, const std::string& path,
                                             const StoredIdentity& expected) {
  absl::StatusOr<std::optional<IdentityRecord>> found = ReadIdentity(db, path);
  if (!found.ok()) return found.status();
  if (!found->has_value()) {
    const std::unique_ptr<rocksdb::Iterator> any(db.NewIterator(rocksdb::ReadOptions()));
    any->SeekToFirst();
    if (!any->status().ok()) return FromRocks(path, "read", any->status());
    if (any->Valid()) return DamagedError(path, "it does not say whose log it is");
    return IdentityRecord{.format_version = 0};
  }
  IdentityRecord identity = *std::move(*found);
  if (identity.format_version > kFormatVersion) return LaterFormatError(path, identity.format_version);
  if (identity.identity != expected) {
    return absl::FailedPreconditionError(
        absl::StrCat("the log in ", path, " belongs to node ", identity.identity.node.value(), " of cluster ",
                     identity.identity.cluster_id, ", and this is node ", expected.node.value(), " of cluster ",
                     expected.cluster_id, ": correct data_dir, node or cluster_id in the configuration"));
  }
  return identity;
}

absl::StatusOr<Origin> ReadOrigin(rocksdb::DB& db, const std::string& path, uint32_t format) {
  const std::string_view key = format <= kFormatWithFormerKeys ? kFormerOriginKey : kOriginKey;
  std::string value;
  const rocksdb::Status status = db.Get(rocksdb::ReadOptions(), SliceOf(key), &value);
  if (status.IsNotFound()) {
    if (!HasOrigin(format)) return Origin();
    return DamagedError(path, "it does not say with which recovery its cluster began");
  }
  if (!status.ok()) return FromRocks(path, "read", status);
  const std::optional<Origin> origin = ParseOrigin(key, value);
  if (!origin.has_value()) {
    return DamagedError(path,
                        "the record that says with which recovery its cluster began has a wrong checksum");
  }
  return *origin;
}

absl::StatusOr<uint64_t> ReadLogId(rocksdb::DB& db, const std::string& path, uint32_t format) {
  if (format <= kFormatWithFormerKeys) return uint64_t{0};
  std::string value;
  const rocksdb::Status status = db.Get(rocksdb::ReadOptions(), SliceOf(kLogIdKey), &value);
  if (status.IsNotFound()) return DamagedError(path, "it does not say which log it is");
  if (!status.ok()) return FromRocks(path, "read", status);
  const std::optional<uint64_t> log_id = ParseLogId(value);
  if (!log_id.has_value())
    return DamagedError(path, "the record that says which log it is has a wrong checksum");
  return *log_id;
}

// The last state of all. If an entry stands behind it, that is found when the log is read.
absl::StatusOr<std::optional<StateRecord>> FindState(rocksdb::Iterator& records, const std::string& path) {
  for (records.SeekForPrev(SliceOf(kEntriesEnd)); records.Valid(); records.Prev()) {
    const std::string_view key(records.key().data(), records.key().size());
    if (!key.starts_with(kEntryPrefix)) break;
    if (!IsStateKey(key)) continue;
    const rocksdb::Slice value = records.value();
    const std::optional<StateRecord> state = ParseState(key, {value.data(), value.size()});
    if (!state.has_value()) return DamagedError(path, "the state record has a wrong checksum");
    return state;
  }
  if (!records.status().ok()) return FromRocks(path, "read", records.status());
  return std::nullopt;
}

absl::StatusOr<StateRecord> ReadState(rocksdb::DB& db, const std::string& path, uint32_t format) {
  if (format <= kFormatWithFormerKeys) return ReadFormerState(db, path);
  const std::unique_ptr<rocksdb::Iterator> records(db.NewIterator(rocksdb::ReadOptions()));
  absl::StatusOr<std::optional<StateRecord>> found = FindState(*records, path);
  if (!found.ok()) return found.status();
  if (!found->has_value()) return DamagedError(path, "it has no state record");
  return **found;
}

absl::StatusOr<RestoredLog> RestoreLog(rocksdb::DB& db, const std::string& path, uint32_t format) {
  absl::StatusOr<StateRecord> state = ReadState(db, path, format);
  if (!state.ok()) return state.status();
  const std::unique_ptr<rocksdb::Iterator> records(db.NewIterator(rocksdb::ReadOptions()));
  return RestoreLog(*records, path, *state);
}

absl::StatusOr<RestoredLog> RestoreLog(rocksdb::Iterator& records, const std::string& path,
                                       const StateRecord& state) {
  RestoredLog log{.state = state};
  log.raft.hard_state = state.hard_state;
  log.raft.start = state.start;

  raft::LogIndex last = state.start.index;
  raft::Term last_term = state.start.term;
  for (records.Seek(EntryKey(last.Next())); records.Valid(); records.Next()) {
    const std::string_view key(records.key().data(), records.key().size());
    if (!key.starts_with(kEntryPrefix)) break;
    if (IsStateKey(key)) continue;  // of an earlier batch, or the one that was read
    const rocksdb::Slice value = records.value();
    std::optional<StoredEntry> stored = ParseEntry(key, {value.data(), value.size()});
    if (!stored.has_value()) {
      return DamagedError(path, absl::StrCat("the entry after entry ", last.value(), " has a wrong checksum"));
    }
    const std::string misfit = Misfit(*stored, last, last_term, state);
    if (!misfit.empty()) return DamagedError(path, misfit);
    last = stored->entry.index;
    last_term = stored->entry.term;
    log.raft.entries.push_back(std::move(stored->entry));
  }
  if (!records.status().ok()) return FromRocks(path, "read", records.status());
  if (last != state.last_index || last_term != state.last_term) {
    return DamagedError(path, absl::StrCat("it ends with entry ", last.value(), " of term ", last_term.value(),
                                           " instead of entry ", state.last_index.value(), " of term ",
                                           state.last_term.value()));
  }
  return log;
}

}  // namespace hedgerow::storage
