// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/snapshots/snapshot_taker.h"

#include <algorithm>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/node/host/node_memory.h"

namespace hedgerow::node {
namespace {

// About 10 us of work; the clock is read after each.
constexpr size_t kStep_bytes = 8 * 1024;
constexpr uint64_t kSlice_ns = 200'000;
// The pause is so many times the slice: a fifth of the loop, at most.
constexpr uint64_t kPauses = 4;
// More waits for the disk: chunks are made faster than it takes them.
constexpr uint64_t kBacklogMax_bytes = 8 * 1024 * 1024;
constexpr uint64_t kBacklogPause_ns = 2'000'000;
// A disk that was full may have room again.
constexpr uint64_t kRetry_ns = 10'000'000'000;

}  // namespace

bool SnapshotTaker::Turn(uint64_t now_ns, bool wanted, kv::Replica& replica) {
  if (abandoned_ != nullptr && abandoned_->result().has_value()) abandoned_.reset();
  if (writer_ == nullptr) {
    if (abandoned_ == nullptr && (asked_ || wanted) && now_ns >= not_before_ns_) Begin(now_ns, replica);
    return false;
  }
  if (const std::optional<absl::Status> result = writer_->result()) return End(now_ns, *result, replica);
  if (HoldsTooMuch(now_ns, replica)) return false;
  if (writing_ || now_ns < next_slice_ns_) return false;
  if (!replica.taking_snapshot()) {
    Abandon();  // a leader's snapshot has replaced the state
  } else if (writer_->backlog_bytes() > kBacklogMax_bytes) {
    next_slice_ns_ = now_ns + kBacklogPause_ns;
  } else {
    Slice(replica);
  }
  return false;
}

// Each change of what is not written down yet copies its record, whether a slice may be made or not.
bool SnapshotTaker::HoldsTooMuch(uint64_t now_ns, kv::Replica& replica) {
  status_.held_bytes = writer_->backlog_bytes() + replica.snapshot_held_bytes();
  const uint64_t held_bytes = status_.held_bytes;
  const uint64_t most_bytes = SnapshotCopiesMax_bytes(replica.state().settings().memory_bytes);
  if (writing_ || held_bytes <= most_bytes) return false;
  if (replica.taking_snapshot()) replica.AbandonSnapshot();
  Abandon();
  ++status_.gave_up;
  Failed(now_ns,
         absl::StrCat("clients change more than the disk takes: ", held_bytes >> 20, " MiB wait for it, of the ",
                      most_bytes >> 20,
                      " that may (an eighth of memory.limit_mib). Give the node a faster disk, or a higher limit"));
  return true;
}

void SnapshotTaker::Begin(uint64_t now_ns, kv::Replica& replica) {
  asked_ = false;
  if (!replace_ && replica.applied() == replica.raft().snapshot().last) return;  // there is nothing new
  writing_ = false;
  begun_ns_ = next_slice_ns_ = now_ns;
  const storage::SnapshotHeader header{.cluster_id = cluster_id_, .snapshot = replica.BeginSnapshot()};
  try {
    writer_ = std::make_unique<storage::SnapshotWriter>(folder_, header, wake_);
  } catch (const std::system_error& error) {  // a bound on threads is reached
    replica.AbandonSnapshot();
    next_slice_ns_ = UINT64_MAX;
    Failed(now_ns, absl::StrCat("no thread to write the snapshot: ", error.what()));
  }
}

void SnapshotTaker::Failed(uint64_t now_ns, std::string why) {
  ++status_.failed;
  status_.error = std::move(why);
  asked_ = true;
  not_before_ns_ = now_ns + kRetry_ns;
}

void SnapshotTaker::Slice(kv::Replica& replica) {
  const uint64_t begin_ns = clock_();
  uint64_t now_ns = begin_ns;
  do {
    for (std::string& chunk : replica.ContinueSnapshot(kStep_bytes)) writer_->Append(std::move(chunk));
    now_ns = clock_();
  } while (replica.taking_snapshot() && now_ns < begin_ns + kSlice_ns);
  status_.longest_slice_ns = std::max(status_.longest_slice_ns, now_ns - begin_ns);
  next_slice_ns_ = now_ns + kPauses * (now_ns - begin_ns);
  if (replica.taking_snapshot()) return;
  if (!replica.snapshot_is_sound()) {
    Abandon();
    ++status_.failed;
    status_.error = "what is in memory is not what was put there";
    return;
  }
  writer_->Finish();
  writing_ = true;
  next_slice_ns_ = UINT64_MAX;
}

bool SnapshotTaker::End(uint64_t now_ns, const absl::Status& result, kv::Replica& replica) {
  const raft::Snapshot snapshot = writer_->header().snapshot;
  const uint64_t size_bytes = writer_->size_bytes();
  status_.held_bytes = 0;
  if (!writing_ && replica.taking_snapshot()) replica.AbandonSnapshot();
  writer_.reset();
  next_slice_ns_ = UINT64_MAX;
  if (!result.ok()) {
    Failed(now_ns, std::string(result.message()));
    return false;
  }
  replace_ = false;
  ++status_.taken;
  status_.error.clear();
  status_.last_took_ns = now_ns - begun_ns_;
  status_.last_size_bytes = size_bytes;
  replica.Feed(raft::SnapshotTaken{.snapshot = snapshot});
  return true;
}

void SnapshotTaker::Abandon() {
  writer_->Abandon();
  abandoned_ = std::move(writer_);
  status_.held_bytes = 0;
  replace_ = false;
  next_slice_ns_ = UINT64_MAX;
}

}  // namespace hedgerow::node
