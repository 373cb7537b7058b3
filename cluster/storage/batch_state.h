// SPDX-License-Identifier: Apache-2.0
//
// The state record of a batch (records.h), wherever the batch was found: in RocksDB's write-ahead log or in the
// journal.

#pragma once

#include <optional>

#include <rocksdb/write_batch.h>

#include "cluster/storage/records.h"

namespace hedgerow::storage {

// Nothing: it is no batch of a log.
std::optional<StateRecord> StateOf(const rocksdb::WriteBatch& batch);

}  // namespace hedgerow::storage
