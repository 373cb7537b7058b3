// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/log_restore.h"

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include <rocksdb/iterator.h>
#include <rocksdb/options.h>
#include <rocksdb/slice.h>

#include "absl/strings/str_cat.h"
#include "cluster/storage/errors.h"

namespace hedgerow::storage {
namespace {

rocksdb::Slice SliceOf(std::string_view bytes) { return {bytes.data(), bytes.size()}; }

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

}  // namespace

absl::StatusOr<IdentityRecord> CheckIdentity(rocksdb::DB& db, const std::string& path,
                                             const StoredIdentity& expected) {
  std::string value;
  const rocksdb::Status status = db.Get(rocksdb::ReadOptions(), SliceOf(kIdentityKey), &value);
  if (status.IsNotFound()) {
    const std::unique_ptr<rocksdb::Iterator> any(db.NewIterator(rocksdb::ReadOptions()));
    any->SeekToFirst();
    if (!any->status().ok()) return FromRocks(path, "read", any->status());
    if (any->Valid()) return DamagedError(path, "it does not say whose log it is");
    return IdentityRecord{.format_version = 0};
  }
  if (!status.ok()) return FromRocks(path, "read", status);
  std::optional<IdentityRecord> found = ParseIdentity(value);
  if (!found.has_value())
    return DamagedError(path, "the record that says whose log it is has a wrong checksum");
  if (found->format_version > kFormatVersion) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the log in ", path, " has format ", found->format_version, ", and this program reads formats up to ",
        kFormatVersion, ": start the version of the program that wrote it"));
  }
  if (found->identity != expected) {
    return absl::FailedPreconditionError(
        absl::StrCat("the log in ", path, " belongs to node ", found->identity.node.value(), " of cluster ",
                     found->identity.cluster_id, ", and this is node ", expected.node.value(), " of cluster ",
                     expected.cluster_id, ": correct data_dir, node or cluster_id in the configuration"));
  }
  return *std::move(found);
}

absl::StatusOr<Origin> ReadOrigin(rocksdb::DB& db, const std::string& path) {
  std::string value;
  const rocksdb::Status status = db.Get(rocksdb::ReadOptions(), SliceOf(kOriginKey), &value);
  if (status.IsNotFound()) {
    std::string identity;
    if (!db.Get(rocksdb::ReadOptions(), SliceOf(kIdentityKey), &identity).ok()) return Origin();
    const std::optional<IdentityRecord> found = ParseIdentity(identity);
    if (!found.has_value() || found->format_version < kFormatBegunAnew) return Origin();
    return DamagedError(path, "it does not say with which recovery its cluster began");
  }
  if (!status.ok()) return FromRocks(path, "read", status);
  const std::optional<Origin> origin = ParseOrigin(value);
  if (!origin.has_value()) {
    return DamagedError(path,
                        "the record that says with which recovery its cluster began has a wrong checksum");
  }
  return *origin;
}

absl::StatusOr<uint64_t> ReadLogId(rocksdb::DB& db, const std::string& path) {
  std::string value;
  const rocksdb::Status status = db.Get(rocksdb::ReadOptions(), SliceOf(kLogIdKey), &value);
  if (status.IsNotFound()) return uint64_t{0};
  if (!status.ok()) return FromRocks(path, "read", status);
  const std::optional<uint64_t> log_id = ParseLogId(value);
  if (!log_id.has_value())
    return DamagedError(path, "the record that says which log it is has a wrong checksum");
  return *log_id;
}

absl::StatusOr<StateRecord> ReadState(rocksdb::DB& db, const std::string& path) {
  std::string value;
  const rocksdb::Status status = db.Get(rocksdb::ReadOptions(), SliceOf(kStateKey), &value);
  if (status.IsNotFound()) return DamagedError(path, "it has no state record");
  if (!status.ok()) return FromRocks(path, "read", status);
  const std::optional<StateRecord> state = ParseState(value);
  if (!state.has_value()) return DamagedError(path, "the state record has a wrong checksum");
  return *state;
}

absl::StatusOr<RestoredLog> RestoreLog(rocksdb::DB& db, const std::string& path) {
  absl::StatusOr<StateRecord> state = ReadState(db, path);
  if (!state.ok()) return state.status();
  RestoredLog log{.state = *state};
  log.raft.hard_state = state->hard_state;
  log.raft.start = state->start;

  raft::LogIndex last = state->start.index;
  raft::Term last_term = state->start.term;
  const std::unique_ptr<rocksdb::Iterator> records(db.NewIterator(rocksdb::ReadOptions()));
  for (records->Seek(EntryKey(last.Next())); records->Valid(); records->Next()) {
    const rocksdb::Slice key = records->key();
    if (!key.starts_with(SliceOf(kEntryPrefix))) break;
    const rocksdb::Slice value = records->value();
    std::optional<StoredEntry> stored = ParseEntry({key.data(), key.size()}, {value.data(), value.size()});
    if (!stored.has_value()) {
      return DamagedError(path, absl::StrCat("the entry after entry ", last.value(), " has a wrong checksum"));
    }
    const std::string misfit = Misfit(*stored, last, last_term, *state);
    if (!misfit.empty()) return DamagedError(path, misfit);
    last = stored->entry.index;
    last_term = stored->entry.term;
    log.raft.entries.push_back(std::move(stored->entry));
  }
  if (!records->status().ok()) return FromRocks(path, "read", records->status());
  if (last != state->last_index || last_term != state->last_term) {
    return DamagedError(path, absl::StrCat("it ends with entry ", last.value(), " of term ", last_term.value(),
                                           " instead of entry ", state->last_index.value(), " of term ",
                                           state->last_term.value()));
  }
  return log;
}

}  // namespace hedgerow::storage
