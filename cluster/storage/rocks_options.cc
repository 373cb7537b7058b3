// SPDX-License-Identifier: Apache-2.0
#include "cluster/storage/rocks_options.h"

#include <utility>

#include <rocksdb/listener.h>
#include <rocksdb/table.h>

namespace hedgerow::storage {
namespace {

class NoRecovery : public rocksdb::EventListener {
 public:
  void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason, rocksdb::Status, bool* auto_recovery) override {
    *auto_recovery = false;
  }
};

}  // namespace

rocksdb::Options RocksOptions(const StorageOptions& storage, std::shared_ptr<rocksdb::Logger> messages) {
  rocksdb::Options options;

  // After a power cut the last batch may be torn in any shape: cut short, but also zeros where ext4 had grown
  // the file before the pages were written. kTolerateCorruptedTailRecords accepts the first only and would keep
  // a healthy node down, and still drops synced records when a length in the last block is damaged. So RocksDB
  // takes the log up to the first bad record, and whether anything durable is missing is decided by us
  // (WalInspector, Watermark, RocksLog).
  options.wal_recovery_mode = rocksdb::WALRecoveryMode::kPointInTimeRecovery;
  // Nothing is rewritten before it is checked.
  options.avoid_flush_during_recovery = true;
  options.paranoid_checks = true;
  // Going on after an error is RocksLog's business. One setting is for full disks, the other for what else may
  // pass.
  options.listeners.push_back(std::make_shared<NoRecovery>());
  options.max_bgerror_resume_count = 0;

  // A log file belongs to one memtable, so the write-ahead log is bounded by their sizes and needs no bound of
  // its own.
  options.write_buffer_size = storage.write_buffer_bytes;
  options.max_write_buffer_number = 3;
  options.max_background_jobs = 2;
  options.allow_concurrent_memtable_write = false;
  options.max_open_files = 64;
  // Tables are written back as they grow, so that a log's fdatasync does not wait behind a whole one.
  options.bytes_per_sync = 1024 * 1024;

  // Keys grow (records.h), so that tables do not overlap: they are moved from the first level to the next and
  // not written again.
  options.level_compaction_dynamic_level_bytes = false;
  // Small tables: the log's beginning is removed by the table.
  options.target_file_size_base = storage.write_buffer_bytes;
  options.max_bytes_for_level_base = 16 * storage.write_buffer_bytes;
  // Nothing is dropped from the first level, so its length bounds what a log that was cut still takes.
  options.level0_file_num_compaction_trigger = 4;
  options.level0_slowdown_writes_trigger = 12;
  options.level0_stop_writes_trigger = 16;
  // Commands are small and may be encrypted or compressed by the client; no codec need be there.
  options.compression = rocksdb::kNoCompression;

  // Stated, because the defaults differ between RocksDB 7.8, 8.9 and 9.10, and one version's files shall be
  // readable by the others.
  rocksdb::BlockBasedTableOptions table;
  table.format_version = 5;
  table.checksum = rocksdb::kCRC32c;
  table.no_block_cache = true;  // the log is read once, at the start
  options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));

  options.max_manifest_file_size = 1024 * 1024;
  options.manifest_preallocation_size = 64 * 1024;
  options.info_log = std::move(messages);
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  return options;
}

}  // namespace hedgerow::storage
