// SPDX-License-Identifier: Apache-2.0
//
// What stands in place of a node whose log cannot be opened because the disk is full: it serves status and metrics, and
// nothing else, until there is room. main.cc runs it and tries again.

#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cluster/node/config/config.h"
#include "cluster/node/status/status.h"

namespace hedgerow::node {

class WaitingNode final : public NodeControl {
 public:
  // `why`: what Node::Create said.
  WaitingNode(const NodeConfig& config, std::string why) : self_(config.self), why_(std::move(why)) {}

  void SetWhy(std::string why) {
    const absl::MutexLock lock(&mutex_);
    why_ = std::move(why);
  }

  // NodeControl: any thread.
  absl::StatusOr<NodeStatus> Status() override {
    const absl::MutexLock lock(&mutex_);
    NodeStatus status;
    status.node = self_;
    status.uptime_ns = static_cast<uint64_t>(std::chrono::nanoseconds(std::chrono::steady_clock::now() - started_).count());
    status.storage = why_;
    return status;
  }
  absl::Status Refusal() override {
    const absl::MutexLock lock(&mutex_);
    return absl::FailedPreconditionError(why_);
  }

 private:
  const raft::NodeId self_;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  absl::Mutex mutex_;
  std::string why_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hedgerow::node
