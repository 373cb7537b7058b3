// SPDX-License-Identifier: Apache-2.0
//
// Reads a log out of its files and checks that it is one: every record whole, batches without a gap, indices
// from its start without gaps, each entry linked to the term of the one before, no term above the hard state's.
// A torn end is what a crash leaves. Files at the beginning may be gone, with all that stood in them: the log
// begins later then. Anything else that is missing is damage. Changes nothing. For DurableLog when it opens,
// and for ReadStoppedLog.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/raft/types.h"
#include "cluster/storage/load_progress.h"
#include "cluster/storage/records.h"
#include "cluster/storage/segment_file.h"
#include "cluster/storage/storage_options.h"

namespace hedgerow::storage {

struct FoundSegment {
  std::string path;
  size_t bytes = 0;
  uint64_t salt = 0;
  RecordRange records{};
};

struct ReadLog {
  StateRecord state{};  // batch 0: nothing was ever written to it
  raft::RestoredState raft{};
  std::vector<FoundSegment> files{};  // that it stands in, in the order of their batches
  std::vector<std::string> others{};  // with nothing that is needed, if there is no damage
  uint64_t last_batch_seen = 0;       // of any whole record
  // What is missing before records that are there; the log is what comes before it. Empty: nothing.
  std::string damage{};
};

std::string LogHeaderOf(const std::string& log_path);
// Nothing: there is none in the folder. FailedPrecondition: another's log, or of another format.
absl::StatusOr<std::optional<LogHeader>> ReadLogHeader(const std::string& log_path, const StoredIdentity& expected);
// Of the log with this id. Batch 0 in `state`: not even a beginning can be read. Internal: a file cannot be read.
absl::StatusOr<ReadLog> ReadSegments(const std::string& log_path, uint64_t copy_id, LoadProgress* progress = nullptr);

}  // namespace hedgerow::storage
