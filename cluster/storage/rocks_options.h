// SPDX-License-Identifier: Apache-2.0
//
// How RocksDB is set up for a log that is written at its end, read once at a start, and has one writer.

#pragma once

#include <memory>

#include <rocksdb/env.h>
#include <rocksdb/options.h>

#include "cluster/storage/storage_options.h"

namespace hedgerow::storage {

rocksdb::Options RocksOptions(const StorageOptions& options, std::shared_ptr<rocksdb::Logger> messages);

}  // namespace hedgerow::storage
