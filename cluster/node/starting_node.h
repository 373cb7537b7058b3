// SPDX-License-Identifier: Apache-2.0
//
// What an operator and a probe reach from the start of hedgerow-node on. While the node opens its log, or waits for
// what its start lacks, it answers with the role `starting`, what the node does and how far that is, and refuses the
// rest for that reason. Once the node is there, or the LOST node in its place, it passes everything on. main.cc runs
// it.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cluster/node/config/config.h"
#include "cluster/node/status/status.h"
#include "cluster/storage/load_progress.h"

namespace hedgerow::node {

class StartingNode final : public NodeControl {
 public:
  // A start that has come no further for so long is a problem.
  static constexpr uint64_t kStandsStill_ns = 10'000'000'000;

  // `now_ns`: for tests; empty: the monotonic clock.
  explicit StartingNode(const NodeConfig& config, std::function<uint64_t()> now_ns = {});

  // Where Node::Create and LostNode say how far they are.
  storage::LoadProgress& progress() { return progress_; }
  // The folder may say another id than the configuration (rejoin.h).
  void SetNode(raft::NodeId self);
  // `why` is what Node::Create said, and it is tried again: a full disk, an address that is not there yet. It is shown
  // until the next try has come to the log.
  void SetWaits(absl::Status why);
  // What the process adds to every status. Once AlsoReport({}) has returned, no call to the former one runs.
  void AlsoReport(std::function<void(NodeStatus&)> report);
  // From now on `node` answers, which must outlive all calls. Once.
  void Become(NodeControl& node) { node_.store(&node, std::memory_order_release); }

  // NodeControl: any thread.
  absl::StatusOr<NodeStatus> Status() override;
  absl::Status Refusal() override;
  NodeControl* Behind() override { return node_.load(std::memory_order_acquire); }

 private:
  absl::StatusOr<NodeStatus> StatusOfStart();
  absl::Status Waits() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Doing() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // For how long the start has come no further.
  uint64_t StandsStill_ns(uint64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string data_dir_;
  const std::function<uint64_t()> now_ns_;
  const uint64_t started_ns_;
  storage::LoadProgress progress_;
  std::atomic<NodeControl*> node_ = nullptr;
  absl::Mutex mutex_;
  raft::NodeId self_ ABSL_GUARDED_BY(mutex_);
  std::function<void(NodeStatus&)> also_report_ ABSL_GUARDED_BY(mutex_);
  absl::Status waits_ ABSL_GUARDED_BY(mutex_);  // OK: it does not wait; ask Waits()
  // As it was when it was last seen to move.
  storage::LoadProgress::Stage seen_stage_ ABSL_GUARDED_BY(mutex_) = storage::LoadProgress::Stage::kFolder;
  uint64_t seen_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t moved_ns_ ABSL_GUARDED_BY(mutex_);
};

// "reads the log in /var/lib/hedgerow-node, 512 of 2048 MiB".
std::string StartText(const storage::LoadProgress& progress, const std::string& data_dir);

}  // namespace hedgerow::node
