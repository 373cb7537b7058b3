// SPDX-License-Identifier: Apache-2.0
//
// Takes a node's own snapshots: begins one when the replica wants it, writes it down in slices between the
// turns' other work, and tells the core once it is durable (ADR 0012). A slice is followed by a pause of
// several times its length, so that requests lose no more than a small part of the loop. One that would hold more
// memory than it may (SnapshotCopiesMax_bytes), because the disk takes less than what clients change, is given up.
// On the loop's thread; files are the writer's. Used by Snapshots.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "cluster/kv/replica.h"
#include "cluster/storage/log_storage.h"
#include "cluster/storage/snapshot_writer.h"

namespace hedgerow::node {

struct SnapshotTakerStatus {
  uint64_t taken = 0;
  uint64_t failed = 0;
  uint64_t gave_up = 0;     // of those: more was to be held in memory than may be
  uint64_t held_bytes = 0;  // in memory, by the one that is taken, at the last turn
  uint64_t longest_slice_ns = 0;
  uint64_t last_took_ns = 0;     // from its beginning until it was durable
  uint64_t last_size_bytes = 0;  // of the file
  std::string error{};           // of the last one, if it failed
};

class SnapshotTaker {
 public:
  using Clock = std::function<uint64_t()>;

  // `wake` makes the loop turn, from any thread.
  SnapshotTaker(storage::SnapshotFolder folder, uint64_t cluster_id, Clock clock, std::function<void()> wake)
      : folder_(std::move(folder)), cluster_id_(cluster_id), clock_(std::move(clock)), wake_(std::move(wake)) {}

  // Every turn, when the replica has settled; feeds it, and does not settle it. `wanted`: it is time for one.
  // True: one has become durable.
  bool Turn(uint64_t now_ns, bool wanted, kv::Replica& replica);
  // One is taken as soon as may be, whatever the policy says.
  void Ask() { asked_ = true; }
  // The same, even if nothing was applied since the last one: its file is damaged or gone.
  void Replace() { asked_ = replace_ = true; }
  bool taking() const { return writer_ != nullptr; }
  // When it wants a turn; UINT64_MAX: it does not.
  uint64_t next_deadline_ns() const { return next_slice_ns_; }
  const SnapshotTakerStatus& status() const { return status_; }

 private:
  void Begin(uint64_t now_ns, kv::Replica& replica);
  bool HoldsTooMuch(uint64_t now_ns, kv::Replica& replica);
  void Slice(kv::Replica& replica);
  bool End(uint64_t now_ns, const absl::Status& result, kv::Replica& replica);
  void Abandon();
  void Failed(uint64_t now_ns, std::string why);

  const storage::SnapshotFolder folder_;
  const uint64_t cluster_id_;
  const Clock clock_;
  const std::function<void()> wake_;
  std::unique_ptr<storage::SnapshotWriter> writer_;     // while one is taken
  std::unique_ptr<storage::SnapshotWriter> abandoned_;  // until its thread has ended
  bool asked_ = false;
  bool replace_ = false;
  bool writing_ = false;  // all chunks are the writer's
  uint64_t begun_ns_ = 0;
  uint64_t next_slice_ns_ = UINT64_MAX;
  uint64_t not_before_ns_ = 0;  // after a failure
  SnapshotTakerStatus status_;
};

}  // namespace hedgerow::node
