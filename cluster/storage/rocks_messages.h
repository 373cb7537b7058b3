// SPDX-License-Identifier: Apache-2.0
//
// Where RocksDB's warnings and errors go: the file `messages` in the log's folder, and `messages.old` once that
// is full. RocksDB's own logger is not used: on a full disk its second failed line is a failed assertion, and
// Debian builds RocksDB with assertions (7.8.3, seen), so that the node would die of its log of messages. What
// cannot be written here is dropped.

#pragma once

#include <cstdarg>
#include <cstddef>
#include <string>

#include <rocksdb/env.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cluster/storage/descriptor.h"

namespace hedgerow::storage {

class RocksMessages : public rocksdb::Logger {
 public:
  static constexpr size_t kFileMax_bytes = 256 * 1024;

  explicit RocksMessages(const std::string& folder);

  // RocksDB's threads.
  using rocksdb::Logger::Logv;
  void Logv(const char* format, va_list arguments) override;
  void LogHeader(const char*, va_list) override {}  // all its options, at every start
  size_t GetLogFileSize() const override;

 private:
  void Open() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  mutable absl::Mutex mutex_;
  Descriptor file_ ABSL_GUARDED_BY(mutex_);
  size_t file_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace hedgerow::storage
