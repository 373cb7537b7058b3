// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/stopped_log.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <utility>

#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <rocksdb/utilities/write_batch_with_index.h>

#include "absl/strings/str_cat.h"
#include "cluster/storage/beginning.h"
#include "cluster/storage/errors.h"
#include "cluster/storage/journal_reader.h"
#include "cluster/storage/log_restore.h"
#include "cluster/storage/rocks_messages.h"
#include "cluster/storage/rocks_options.h"
#include "cluster/storage/snapshot_folder.h"
#include "cluster/storage/wal_inspector.h"

namespace hedgerow::storage {
namespace {

std::string BootIdOf(const StorageOptions& options) {
  if (!options.boot_id.empty()) return options.boot_id;
  std::string boot_id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot_id);
  return boot_id;
}

// Of the log that was found, what had been written and is not there.
void AddMissing(uint64_t found, uint64_t written, std::vector<std::string>& doubts) {
  if (found >= written) return;
  doubts.push_back(absl::StrCat("the log ends with batch ", found, ", though batch ", written,
                                " had been written: what came in between is gone"));
}

// The batch that the write-ahead log follows. Where the log begins after all that the tables had reached, the
// last state in them may be gone, and with it the number of that batch; what was synced batch by batch lacks
// none.
uint64_t BatchBefore(const WalContents& wal, const Watermark::Value& mark) {
  const bool tables_gone = !mark.unsynced && wal.batches > 0 && wal.damage.empty() &&
                           wal.log_begins != raft::LogIndex() && wal.log_begins >= wal.last_in_tables;
  return tables_gone ? wal.first_batch - 1 : wal.last_batch_in_tables;
}

// As far as no batch is missing.
absl::StatusOr<std::unique_ptr<rocksdb::DB>> OpenToRead(const StorageOptions& options,
                                                        const StoredIdentity& expected, uint64_t batch_before,
                                                        uint32_t& format) {
  rocksdb::Options opened = RocksOptions(options, std::make_shared<RocksMessages>(options.path));
  WalPrefix prefix(batch_before);
  opened.wal_filter = &prefix;  // asked while it is opened, and not afterwards
  rocksdb::DB* raw = nullptr;
  const rocksdb::Status status = rocksdb::DB::OpenForReadOnly(opened, options.path + "/rocksdb", &raw);
  if (!status.ok()) return FromRocks(options.path, "open", status);
  std::unique_ptr<rocksdb::DB> db(raw);
  const absl::StatusOr<IdentityRecord> identity = CheckIdentity(*db, options.path, expected);
  if (!identity.ok()) return identity.status();
  if (identity->format_version == 0) return DamagedError(options.path, "nothing is in it");
  format = identity->format_version;
  return db;
}

absl::StatusOr<WalContents> InspectStopped(const StorageOptions& options) {
  return InspectWal(options.path + "/rocksdb",
                    RocksOptions(options, std::make_shared<RocksMessages>(options.path)));
}

// Puts and deletions of a batch into what is laid over the tables.
class Overlay : public rocksdb::WriteBatch::Handler {
 public:
  explicit Overlay(rocksdb::WriteBatchWithIndex& changes) : changes_(changes) {}
  rocksdb::Status PutCF(uint32_t, const rocksdb::Slice& key, const rocksdb::Slice& value) override {
    return changes_.Put(key, value);
  }
  rocksdb::Status DeleteCF(uint32_t, const rocksdb::Slice& key) override { return changes_.Delete(key); }

 private:
  rocksdb::WriteBatchWithIndex& changes_;
};

// As it would be once RocksDB had taken the journal over.
absl::StatusOr<RestoredLog> RestoreWithJournal(rocksdb::DB& db, const StorageOptions& options,
                                               StoppedLog& log) {
  std::unique_ptr<rocksdb::Iterator> tables(db.NewIterator(rocksdb::ReadOptions()));
  absl::StatusOr<std::optional<StateRecord>> state = FindState(*tables, options.path);
  if (!state.ok()) return state.status();
  const uint64_t in_tables = state->has_value() ? (*state)->batch : 0;
  const absl::StatusOr<JournalReader> journal = JournalReader::Open(options.path, log.log_id, in_tables);
  if (!journal.ok()) return journal.status();
  if (!journal->damage().empty())
    log.doubts.push_back(absl::StrCat("its newest part is damaged: ", journal->damage()));
  rocksdb::WriteBatchWithIndex changes(rocksdb::BytewiseComparator(), journal->bytes(), /*overwrite_key=*/true);
  const absl::Status read = journal->ForEach([&changes, &options](const rocksdb::WriteBatch& batch) {
    Overlay overlay(changes);
    return FromRocks(options.path, "read", batch.Iterate(&overlay));
  });
  if (!read.ok()) return read;
  const std::unique_ptr<rocksdb::Iterator> records(changes.NewIteratorWithBase(tables.release()));
  state = FindState(*records, options.path);
  if (!state.ok()) return state.status();
  if (!state->has_value()) return DamagedError(options.path, "it has no state record");
  return RestoreLog(*records, options.path, **state);
}

absl::StatusOr<RestoredLog> ReadDatabase(const StorageOptions& options, const StoredIdentity& expected,
                                         const WalContents& wal, StoppedLog& log) {
  uint32_t format = 0;
  const absl::StatusOr<std::unique_ptr<rocksdb::DB>> db =
      OpenToRead(options, expected, BatchBefore(wal, log.lock.value()), format);
  if (!db.ok()) return db.status();
  const absl::StatusOr<Origin> origin = ReadOrigin(**db, options.path, format);
  if (!origin.ok()) return origin.status();
  log.origin = *origin;
  const absl::StatusOr<uint64_t> log_id = ReadLogId(**db, options.path, format);
  if (!log_id.ok()) return log_id.status();
  log.log_id = *log_id;
  if (format <= kFormatWithFormerKeys) return RestoreLog(**db, options.path, format);
  return RestoreWithJournal(**db, options, log);
}

// As ChooseSnapshot does, but none is removed, and one that goes further than the log is taken as well: it is
// synced by itself, while the log that goes on from it may have been in the page cache alone (memory mode).
// What the log holds and it does not was never committed. True: the log goes on from the one that was loaded.
bool LoadPart(const SnapshotFolder& folder, const raft::EntryId& last, const StoredIdentity& expected,
              const LoadSnapshot& load, StoppedLog& log) {
  const raft::RestoredState& raft = log.raft;
  const uint64_t place = last.index.value() - std::min(last.index, raft.start.index).value();
  const bool part = last == raft.start || (last.index > raft.start.index && place <= raft.entries.size() &&
                                           raft.entries[place - 1].term == last.term);
  const bool further = last.index > log.last.index && last.term >= log.last.term;
  if (!part && !further) return false;
  absl::StatusOr<std::unique_ptr<SnapshotReader>> reader = SnapshotReader::Open(folder.PathOf(last));
  absl::Status status = reader.status();
  if (status.ok() && (*reader)->header().snapshot.last != last) {
    status = absl::DataLossError("it is not of the entry that its name says");
  }
  if (status.ok() && (*reader)->header().cluster_id != expected.cluster_id) {
    status = absl::DataLossError("it is of another cluster");
  }
  if (status.ok()) status = load(**reader);
  if (!status.ok()) {
    log.doubts.push_back(absl::StrCat("a snapshot cannot be used: ", status.message()));
    return false;
  }
  log.raft.snapshot = (*reader)->header().snapshot;
  if (further) {
    log.doubts.push_back(absl::StrCat("its newest snapshot, of entry ", last.index.value(),
                                      ", goes further than its log, which ends with entry ",
                                      log.last.index.value(),
                                      ": the log's end is gone, or the snapshot had just been received"));
    log.raft.start = last;
    log.raft.entries.clear();
    log.last = last;
  }
  return true;
}

}  // namespace

absl::StatusOr<StoppedLog> ReadStoppedLog(const StorageOptions& options, const StoredIdentity& expected,
                                          const LoadSnapshot& load) {
  const std::string database = options.path + "/rocksdb";
  if (access((database + "/CURRENT").c_str(), F_OK) != 0) {
    return absl::NotFoundError(absl::StrCat("there is no log in ", options.path));
  }
  if (absl::Status status = CheckFinished(options.path); !status.ok()) return status;
  absl::StatusOr<Watermark> lock = Watermark::Open(options.path, /*must_exist=*/true);
  if (!lock.ok()) return lock.status();
  StoppedLog log{.lock = *std::move(lock)};
  const Watermark::Value mark = log.lock.value();
  if (mark.unsynced && mark.boot_id != BootIdOf(options)) {
    log.doubts.push_back(
        "it was written in memory mode and this host has restarted since: what was not on its disk by then is "
        "gone");
  }
  const absl::StatusOr<WalContents> wal = InspectStopped(options);
  if (!wal.ok()) return wal.status();
  if (!wal->damage.empty()) log.doubts.push_back(absl::StrCat("its newest part is damaged: ", wal->damage));

  absl::StatusOr<RestoredLog> found = ReadDatabase(options, expected, *wal, log);
  if (!found.ok()) return found.status();
  log.raft = std::move(found->raft);
  log.last = {.index = found->state.last_index, .term = found->state.last_term};
  AddMissing(found->state.batch, std::max(mark.batch, wal->last_batch), log.doubts);

  const absl::StatusOr<SnapshotFolder> folder = SnapshotFolder::Open(options.path);
  if (!folder.ok()) return folder.status();
  for (const raft::EntryId& last : folder->List()) {
    if (LoadPart(*folder, last, expected, load, log)) break;
  }
  if (log.raft.snapshot.last.index < log.raft.start.index) {
    return DamagedError(options.path, absl::StrCat("it begins after entry ", log.raft.start.index.value(),
                                                   ", and there is no whole snapshot of what came before"));
  }
  return log;
}

absl::StatusOr<Origin> ReadOriginOfStopped(const StorageOptions& options, const StoredIdentity& expected) {
  const absl::StatusOr<WalContents> wal = InspectStopped(options);
  if (!wal.ok()) return wal.status();
  uint32_t format = 0;
  const absl::StatusOr<std::unique_ptr<rocksdb::DB>> db =
      OpenToRead(options, expected, wal->last_batch_in_tables, format);
  if (!db.ok()) return db.status();
  return ReadOrigin(**db, options.path, format);
}

}  // namespace hedgerow::storage
