// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/wal_inspector.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rocksdb/db.h>
#include <rocksdb/write_batch.h>

#include "absl/strings/str_cat.h"
#include "cluster/storage/batch_state.h"
#include "cluster/storage/errors.h"
#include "cluster/storage/log_restore.h"
#include "cluster/storage/records.h"

namespace hedgerow::storage {
namespace {

// RocksDB's own: after a torn end it begins the next log with an empty batch.
bool IsRocksDbsOwn(const rocksdb::WriteBatch& batch) { return batch.Count() == 0; }

// Sees every whole record of the logs in order, also those after a broken one, and lets none into the database.
class Inspector : public rocksdb::WalFilter {
 public:
  explicit Inspector(WalContents& contents) : contents_(contents) {}

  WalProcessingOption LogRecordFound(unsigned long long, const std::string& file,
                                     const rocksdb::WriteBatch& batch, rocksdb::WriteBatch*, bool*) override {
    if (IsRocksDbsOwn(batch)) return WalProcessingOption::kIgnoreCurrentRecord;
    const std::optional<StateRecord> found = StateOf(batch);
    if (!found.has_value()) {
      Damage(absl::StrCat("a record in ", file, " after batch ", contents_.last_batch,
                          " is no batch of this log"));
      return WalProcessingOption::kIgnoreCurrentRecord;
    }
    const uint64_t number = found->batch;
    if (contents_.batches == 0) contents_.first_batch = number;
    // The same number twice: its write failed, and it was written again.
    if (contents_.batches > 0 && number != contents_.last_batch && number != contents_.last_batch + 1) {
      Damage(absl::StrCat(file, " holds batch ", number, " right after batch ", contents_.last_batch,
                          "; what stood between them is gone"));
    }
    contents_.last_batch = number;
    contents_.log_begins = found->start.index;
    ++contents_.batches;
    return WalProcessingOption::kIgnoreCurrentRecord;
  }
  const char* Name() const override { return "hedgerow.wal_inspector"; }

 private:
  void Damage(std::string what) {
    if (contents_.damage.empty()) contents_.damage = std::move(what);
  }

  WalContents& contents_;
};

// No batch was let in, so this is what the tables say. 0: nothing that can be read.
uint32_t FormatInTables(rocksdb::DB& db) {
  std::string value;
  const rocksdb::Slice key(kIdentityKey.data(), kIdentityKey.size());
  if (!db.Get(rocksdb::ReadOptions(), key, &value).ok()) return 0;
  const std::optional<IdentityRecord> identity = ParseIdentity(kIdentityKey, value);
  return identity.has_value() ? identity->format_version : 0;
}

// `format` as FormatInTables says it, which knows the present keys only.
StateRecord StateInTables(rocksdb::DB& db, uint32_t format) {
  const absl::StatusOr<StateRecord> state = ReadState(db, "", format == 0 ? kFormatWithFormerKeys : format);
  return state.ok() ? *state : StateRecord();
}

// Opening for a look does not touch RocksDB's own log of messages.
class Silence : public rocksdb::Logger {
 public:
  using rocksdb::Logger::Logv;
  void Logv(const char*, va_list) override {}
};

}  // namespace

absl::StatusOr<WalContents> InspectWal(const std::string& folder, const rocksdb::Options& options) {
  WalContents contents;
  Inspector inspector(contents);
  rocksdb::Options inspection = options;
  inspection.create_if_missing = false;
  inspection.wal_recovery_mode = rocksdb::WALRecoveryMode::kSkipAnyCorruptedRecords;
  inspection.wal_filter = &inspector;
  inspection.info_log = std::make_shared<Silence>();

  const std::vector<rocksdb::ColumnFamilyDescriptor> families = {
      {rocksdb::kDefaultColumnFamilyName, rocksdb::ColumnFamilyOptions(inspection)}};
  std::vector<rocksdb::ColumnFamilyHandle*> handles;
  rocksdb::DB* db = nullptr;
  const rocksdb::Status status = rocksdb::DB::OpenForReadOnly(inspection, folder, families, &handles, &db);
  const std::unique_ptr<rocksdb::DB> owned(db);
  if (status.ok()) {
    contents.format = FormatInTables(*owned);
    const StateRecord state = StateInTables(*owned, contents.format);
    contents.last_batch_in_tables = state.batch;
    contents.last_in_tables = state.last_index;
  }
  for (rocksdb::ColumnFamilyHandle* handle : handles) (void)owned->DestroyColumnFamilyHandle(handle);
  if (!status.ok()) return FromRocks(folder, "read", status);
  return contents;
}

rocksdb::WalFilter::WalProcessingOption WalPrefix::LogRecordFound(unsigned long long, const std::string&,
                                                                  const rocksdb::WriteBatch& batch,
                                                                  rocksdb::WriteBatch*, bool*) {
  if (IsRocksDbsOwn(batch)) return WalProcessingOption::kContinueProcessing;
  const std::optional<StateRecord> state = StateOf(batch);
  if (!state.has_value() || state->batch > last_batch_ + 1) return WalProcessingOption::kStopReplay;
  last_batch_ = std::max(last_batch_, state->batch);
  return WalProcessingOption::kContinueProcessing;
}

}  // namespace hedgerow::storage
