// SPDX-License-Identifier: Apache-2.0
//
// Reads a log out of its database and checks that it is one: whose it is, every record's checksum, indices from
// its start without gaps, each entry linked to the term of the one before, no term above the hard state's, and
// the end where the state record says. Called by RocksLog when it opens, and by ReadStoppedLog.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <rocksdb/db.h>
#include <rocksdb/iterator.h>
#include <rocksdb/slice.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/raft/types.h"
#include "cluster/storage/records.h"

namespace hedgerow::storage {

struct RestoredLog {
  StateRecord state{};
  raft::RestoredState raft{};
};

inline rocksdb::Slice SliceOf(std::string_view bytes) { return {bytes.data(), bytes.size()}; }

// `path` is for the errors.
absl::Status LaterFormatError(const std::string& path, uint32_t format);
// Format 0: the database holds nothing yet. FailedPrecondition: another's log or a later format.
absl::StatusOr<IdentityRecord> CheckIdentity(rocksdb::DB& db, const std::string& path,
                                             const StoredIdentity& expected);
// `format` is the log's. All 0: its cluster has never begun anew.
absl::StatusOr<Origin> ReadOrigin(rocksdb::DB& db, const std::string& path, uint32_t format);
// 0: the log is of a format that gave them none.
absl::StatusOr<uint64_t> ReadLogId(rocksdb::DB& db, const std::string& path, uint32_t format);
absl::StatusOr<StateRecord> ReadState(rocksdb::DB& db, const std::string& path, uint32_t format);
absl::StatusOr<RestoredLog> RestoreLog(rocksdb::DB& db, const std::string& path, uint32_t format);
// The same of any records in the order of their keys, of a present format. No state: they do not say.
absl::StatusOr<std::optional<StateRecord>> FindState(rocksdb::Iterator& records, const std::string& path);
absl::StatusOr<RestoredLog> RestoreLog(rocksdb::Iterator& records, const std::string& path,
                                       const StateRecord& state);

}  // namespace hedgerow::storage
