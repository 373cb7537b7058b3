// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/rocks_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

#include <rocksdb/convenience.h>
#include <rocksdb/metadata.h>

#include "absl/strings/str_cat.h"
#include "cluster/raft/check.h"
#include "cluster/raft/configuration.h"
#include "cluster/storage/errors.h"
#include "cluster/storage/folder.h"
#include "cluster/storage/journal.h"
#include "cluster/storage/journal_reader.h"
#include "cluster/storage/log_restore.h"
#include "cluster/storage/records.h"
#include "cluster/storage/rocks_messages.h"
#include "cluster/storage/rocks_options.h"
#include "cluster/storage/wal_inspector.h"

namespace hedgerow::storage {
namespace {

constexpr uint64_t kReserve_bytes = 1024 * 1024;

std::string KernelBootId() {
  std::string boot_id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot_id);
  return boot_id;
}

// The highest two bits stay free for those who have to say other things in its place (wire/peer.h).
uint64_t DrawLogId() {
  std::random_device device;
  uint64_t drawn = 0;
  while (drawn == 0) drawn = (static_cast<uint64_t>(device()) << 32 | device()) >> 2;
  return drawn;
}

}  // namespace

RocksLog::RocksLog(StorageOptions options, Watermark watermark)
    : options_(std::move(options)),
      watermark_(std::move(watermark)),
      database_options_(RocksOptions(options_, std::make_shared<RocksMessages>(options_.path))) {}

absl::StatusOr<std::unique_ptr<RocksLog>> RocksLog::Open(const StorageOptions& given,
                                                         const StoredIdentity& identity) {
  StorageOptions options = given;
  if (options.boot_id.empty()) options.boot_id = KernelBootId();
  if (absl::Status status = MakeFolder(options.path); !status.ok()) return status;

  const std::string database = options.path + "/rocksdb";
  const bool exists = access((database + "/CURRENT").c_str(), F_OK) == 0;
  absl::StatusOr<Watermark> watermark = Watermark::Open(options.path, /*must_exist=*/exists);
  if (!watermark.ok()) return watermark.status();
  const Watermark::Value mark = watermark->value();
  if (!exists && mark.batch > 0) {
    return DamagedError(options.path,
                        absl::StrCat("the folder `rocksdb` is missing or has no file CURRENT, though ",
                                     mark.batch, " batches were durable in it"));
  }
  if (mark.unsynced && mark.boot_id != options.boot_id) {
    return AsLost(absl::FailedPreconditionError(absl::StrCat(
        "the log in ", options.path,
        " was written in memory mode and this host has restarted since: votes and entries that "
        "were acknowledged may be "
        "gone. This node must not go on under its identity; the others go on while they are a "
        "majority. Do not empty the folder: once a majority is lost, `hedgerow cluster recover` begins anew "
        "with the member that has the most")));
  }

  std::unique_ptr<RocksLog> log(new RocksLog(std::move(options), *std::move(watermark)));
  uint64_t last_batch_in_wal = 0;
  if (exists) {
    const absl::StatusOr<WalContents> wal = InspectWal(database, log->database_options_);
    if (!wal.ok()) return wal.status();
    if (wal->format > kFormatVersion) return LaterFormatError(given.path, wal->format);
    if (!wal->damage.empty()) return DamagedError(given.path, wal->damage);
    last_batch_in_wal = wal->last_batch;
  }
  if (absl::Status status = MakeFolder(database); !status.ok()) return status;
  log->database_options_.create_if_missing = !exists;
  if (absl::Status status = log->OpenDatabase(); !status.ok()) return status;
  log->database_options_.create_if_missing = false;
  if (absl::Status status = log->Restore(identity, last_batch_in_wal); !status.ok()) return status;
  if (absl::Status status = log->MakeDurable(); !status.ok()) return status;
  log->committed_batch_ = log->tail_.state().batch;
  for (const absl::Status& status : {log->WriteWatermark(), log->watermark_.Sync()}) {
    if (!status.ok()) return status;
  }
  if (absl::Status status = log->BeginJournal(); !status.ok()) return status;
  return log;
}

RocksLog::~RocksLog() {
  if (db_ == nullptr || !final_error_.ok()) return;
  // An error here costs the log's validity after a restart of the host in memory mode, which nobody was
  // promised.
  if (!options_.sync && committed_batch_ > 0 && (journal_ == nullptr || journal_->Sync())) {
    (void)watermark_.Write({.batch = committed_batch_, .unsynced = false, .boot_id = options_.boot_id});
  }
  (void)watermark_.Sync();
}

absl::Status RocksLog::OpenDatabase() {
  rocksdb::DB* db = nullptr;
  const rocksdb::Status status = rocksdb::DB::Open(database_options_, database_path(), &db);
  const absl::MutexLock lock(&db_mutex_);
  db_.reset(db);
  return FromRocks(options_.path, "open", status);
}

void RocksLog::CloseDatabase() {
  const absl::MutexLock lock(&db_mutex_);
  db_.reset();
}

bool RocksLog::StartIsDurable(raft::LogIndex start) { return options_.sync || journal_->Sync(start); }

// Whole tables, without reading them: keys grow, so a table holds a part of the log. What is in a table with
// live entries, in the first level or in memory stays until a later time; that is a few times the write buffer.
// The log's last state stands behind the entry that the log begins after, at the least, and so behind what may
// go; the identity stands before. The last state *in tables* may go, with everything it was of: then what comes
// after them, in the write-ahead log or in the journal, says where the log begins.
void RocksLog::DropUpTo(raft::LogIndex index) {
  if (journal_ != nullptr) journal_->DropUpTo(index);
  const absl::MutexLock lock(&db_mutex_);
  if (db_ == nullptr || index == raft::LogIndex()) return;
  const std::string end = EntryKey(index);
  const rocksdb::Slice first(kEntryPrefix.data(), kEntryPrefix.size());
  const rocksdb::Slice last(end);
  // An error shows at the next write, if it matters.
  (void)rocksdb::DeleteFilesInRange(db_.get(), db_->DefaultColumnFamily(), &first, &last);
}

absl::Status RocksLog::Restore(const StoredIdentity& identity, uint64_t last_batch_in_wal) {
  const absl::StatusOr<IdentityRecord> found_identity = CheckIdentity(*db_, options_.path, identity);
  if (!found_identity.ok()) return found_identity.status();
  began_with_ = raft::BeginsWith(found_identity->began_with, options_.begins_with);
  if (found_identity->format_version == 0) {
    origin_ = options_.origin;
    if (watermark_.value().batch == 0) return WriteIdentity(identity, /*converting=*/false);
    return DamagedError(options_.path, absl::StrCat("nothing is in it, though ", watermark_.value().batch,
                                                    " batches were durable"));
  }
  const uint32_t format = found_identity->format_version;
  const absl::StatusOr<uint64_t> log_id = ReadLogId(*db_, options_.path, format);
  if (!log_id.ok()) return log_id.status();
  log_id_ = *log_id;
  if (format > kFormatWithFormerKeys) {
    if (absl::Status status = TakeOverJournal(); !status.ok()) return status;
  }
  absl::StatusOr<RestoredLog> log = RestoreLog(*db_, options_.path, format);
  if (!log.ok()) return log.status();
  const uint64_t found = log->state.batch;
  if (found < watermark_.value().batch || found < last_batch_in_wal) {
    return DamagedError(options_.path,
                        absl::StrCat("it ends with batch ", found, ", though batch ",
                                     std::max(watermark_.value().batch, last_batch_in_wal), " was durable"));
  }
  const absl::StatusOr<Origin> origin = ReadOrigin(*db_, options_.path, format);
  if (!origin.ok()) return origin.status();
  origin_ = *origin;
  tail_.Restore(log->state, log->raft.entries);
  restored_ = std::move(log->raft);
  if (format <= kFormatWithFormerKeys) {
    // The batch is synced, and in another log file than what it follows, which may be in the page cache only:
    // that goes first, or a power cut could leave this one alone.
    if (absl::Status status = MakeDurable(); !status.ok()) return status;
    if (absl::Status status = WriteIdentity(identity, /*converting=*/true); !status.ok()) return status;
  }
  return HoldsFormerKeys() ? ForgetFormerKeys() : absl::OkStatus();
}

// What a life in memory mode has left in the journal goes into tables. RocksDB need not log it meanwhile: the
// journal stays until it is there, and whoever is killed in between begins where the tables end.
absl::Status RocksLog::TakeOverJournal() {
  const std::unique_ptr<rocksdb::Iterator> records(db_->NewIterator(rocksdb::ReadOptions()));
  const absl::StatusOr<std::optional<StateRecord>> state = FindState(*records, options_.path);
  if (!state.ok()) return state.status();
  const uint64_t in_tables = state->has_value() ? (*state)->batch : 0;
  const absl::StatusOr<JournalReader> journal = JournalReader::Open(options_.path, log_id_, in_tables);
  if (!journal.ok()) return journal.status();
  if (!journal->damage().empty()) return DamagedError(options_.path, journal->damage());
  if (journal->empty()) return absl::OkStatus();
  rocksdb::WriteOptions write;
  write.disableWAL = true;
  absl::Status status = journal->ForEach([this, &write](rocksdb::WriteBatch batch) {
    return FromRocks(options_.path, "write", db_->Write(write, &batch));
  });
  return status.ok() ? MakeDurable() : status;
}

// Of a log whose tables have everything.
absl::Status RocksLog::BeginJournal() {
  if (options_.sync) return Journal::Remove(options_.path);
  absl::StatusOr<std::unique_ptr<Journal>> journal =
      Journal::Create(options_.path, log_id_, tail_.state().last_index, options_.write_buffer_bytes);
  if (!journal.ok()) return journal.status();
  journal_ = *std::move(journal);
  return absl::OkStatus();
}

// A new log, or one of an earlier format: a batch says whose it is, that it is of this format from now on, what
// it began with, and which log it is. Synced in either mode: before the first vote that counts by it.
absl::Status RocksLog::WriteIdentity(const StoredIdentity& identity, bool converting) {
  rocksdb::WriteBatch batch;
  const bool anew = origin_ != Origin();
  const rocksdb::Status put = batch.Put(
      SliceOf(kIdentityKey),
      EncodeIdentity(kIdentityKey, {.format_version = anew ? kFormatBegunAnew : kFormatOfFirstBeginning,
                                    .identity = identity,
                                    .began_with = began_with_}));
  HEDGEROW_CHECK(put.ok());
  if (anew) {
    HEDGEROW_CHECK(batch.Put(SliceOf(kOriginKey), EncodeOrigin(kOriginKey, origin_)).ok());
  }
  if (converting) {
    for (const std::string_view former : {kFormerIdentityKey, kFormerOriginKey, kFormerStateKey}) {
      HEDGEROW_CHECK(batch.Delete(SliceOf(former)).ok());
    }
  }
  if (log_id_ == 0) log_id_ = DrawLogId();
  HEDGEROW_CHECK(batch.Put(SliceOf(kLogIdKey), EncodeLogId(log_id_)).ok());
  tail_.Finish(batch);
  rocksdb::WriteOptions write;
  write.sync = true;
  return FromRocks(options_.path, "write", db_->Write(write, &batch));
}

// Or their deletions, which are in a table as long as what they delete. A log that was converted just now has
// them, and one whose conversion was cut short.
bool RocksLog::HoldsFormerKeys() const {
  std::vector<rocksdb::LiveFileMetaData> tables;
  db_->GetLiveFilesMetaData(&tables);
  return std::any_of(tables.begin(), tables.end(),
                     [](const rocksdb::LiveFileMetaData& table) { return table.largestkey > kEntriesEnd; });
}

// The former keys stand in the range of every table of a log that was converted. Without them the tables that
// are written from now on overlap none, which is what the format is for. Only speed depends on it: where there
// is no room for it, the next start tries again, and a handle that has failed is opened anew.
absl::Status RocksLog::ForgetFormerKeys() {
  if (absl::Status status = MakeDurable(); !status.ok()) return status;
  const rocksdb::Slice first = SliceOf(kFormerIdentityKey);
  const rocksdb::Slice last = SliceOf(kFormerStateKey);
  rocksdb::CompactRangeOptions compaction;  // a table that need only be moved is written anew all the same
  compaction.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForceOptimized;
  const absl::Status status = FromRocks(options_.path, "compact", db_->CompactRange(compaction, &first, &last));
  if (!absl::IsResourceExhausted(status)) return status;
  CloseDatabase();
  return OpenDatabase();
}

// What was found may be in the page cache only: the process died between a write and its sync, or memory mode.
// And a log file with a torn end must not be followed by another. A flush ends both: everything is in a synced
// table.
absl::Status RocksLog::MakeDurable() {
  return FromRocks(options_.path, "flush", db_->Flush(rocksdb::FlushOptions()));
}

void RocksLog::Gather(const raft::Persist& persist) {
  HEDGEROW_CHECK(!finished_);
  tail_.Apply(persist, batch_);
}

absl::Status RocksLog::Commit() {
  if (!final_error_.ok()) return final_error_;
  absl::Status status = TryCommit();
  if (!status.ok() && !absl::IsResourceExhausted(status)) final_error_ = status;
  return status;
}

absl::Status RocksLog::TryCommit() {
  if (!finished_) tail_.Finish(batch_);
  finished_ = true;
  const StateRecord& state = tail_.state();
  if (committed_batch_ < state.batch) {
    const absl::Status written =
        journal_ != nullptr ? journal_->Append(state.batch, state.last_index, batch_.Data()) : WriteToRocks();
    if (!written.ok()) return written;
    committed_batch_ = state.batch;
  }
  // Full here and not there: the next try does only this.
  if (absl::Status status = WriteWatermark(); !status.ok()) return status;
  batch_.Clear();
  finished_ = false;
  return absl::OkStatus();
}

absl::Status RocksLog::WriteToRocks() {
  if (db_ == nullptr) {
    if (absl::Status status = Reopen(); !status.ok()) return status;
  }
  rocksdb::WriteOptions write;
  write.sync = options_.sync;
  const rocksdb::Status written = db_->Write(write, &batch_);
  if (!written.ok()) {
    const absl::Status status = FromRocks(options_.path, "write", written);
    if (absl::IsResourceExhausted(status)) CloseDatabase();
    return status;
  }
  return absl::OkStatus();
}

absl::Status RocksLog::WriteWatermark() {
  return watermark_.Write({.batch = committed_batch_, .unsynced = !options_.sync, .boot_id = options_.boot_id});
}

absl::Status RocksLog::Reopen() {
  if (absl::Status status = ProbeSpace(); !status.ok()) return status;
  ++reopened_;
  absl::Status status = OpenDatabase();
  if (status.ok()) status = MakeDurable();
  if (status.ok()) {
    const absl::StatusOr<StateRecord> state = ReadState(*db_, options_.path, kFormatVersion);
    if (!state.ok()) {
      status = state.status();
    } else if (state->batch != committed_batch_ && state->batch != committed_batch_ + 1) {
      status = DamagedError(options_.path, absl::StrCat("opened again it ends with batch ", state->batch,
                                                        ", though batch ", committed_batch_, " was durable"));
    }
  }
  if (!status.ok()) CloseDatabase();
  return status;
}

// Room for the batch, for what recovery moves into a table, and for a new manifest. To open the database on a
// disk that is still full leaves one more empty file behind each time (7.8.3, seen). The file that is asked for
// has no name, so a crash leaves nothing.
absl::Status RocksLog::ProbeSpace() const {
  const Descriptor file(open(options_.path.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  const uint64_t needed = 2 * options_.write_buffer_bytes + 2 * batch_.GetDataSize() + kReserve_bytes;
  if (file.ok() && fallocate(file.get(), 0, 0, static_cast<off_t>(needed)) == 0) return absl::OkStatus();
  if (errno != ENOSPC && errno != EDQUOT) return absl::OkStatus();  // the file system cannot say
  return FullDiskError(options_.path, absl::StrCat("writing goes on once ", needed / 1024, " KiB are free"));
}

}  // namespace hedgerow::storage
