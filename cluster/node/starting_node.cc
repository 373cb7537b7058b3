// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/starting_node.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "config/scalar.h"
#include "operate/clock.h"

namespace hedgerow::node {
namespace {

using Stage = storage::LoadProgress::Stage;

std::string DoingText(Stage stage, const std::string& data_dir) {
  switch (stage) {
    case Stage::kFolder: return absl::StrCat("opens ", data_dir);
    case Stage::kChecking: return absl::StrCat("checks the log in ", data_dir);
    case Stage::kReplaying: return absl::StrCat("reads the log in ", data_dir);
    case Stage::kSyncing: return absl::StrCat("syncs the log in ", data_dir);
    case Stage::kSnapshot: return absl::StrCat("reads the snapshot in ", data_dir);
    case Stage::kOpened: return "has read its log, and opens its sockets";
  }
  return "starts";
}

}  // namespace

std::string StartText(const storage::LoadProgress& progress, const std::string& data_dir) {
  constexpr uint64_t kMiB = 1024 * 1024;
  std::string text = DoingText(progress.stage(), data_dir);
  const uint64_t total_bytes = progress.total_bytes();
  if (total_bytes != 0) {
    // A file may have grown since it was counted.
    const uint64_t done_bytes = std::min(progress.done_bytes(), total_bytes);
    absl::StrAppend(&text, ", ", done_bytes / kMiB, " of ", (total_bytes + kMiB - 1) / kMiB, " MiB");
  }
  return text;
}

StartingNode::StartingNode(const NodeConfig& config, std::function<uint64_t()> now_ns)
    : data_dir_(config.data_dir),
      now_ns_(now_ns ? std::move(now_ns) : operate::Monotonic_ns),
      started_ns_(now_ns_()),
      self_(config.self),
      moved_ns_(started_ns_) {}

void StartingNode::SetNode(raft::NodeId self) {
  const absl::MutexLock lock(&mutex_);
  self_ = self;
}

void StartingNode::SetWaits(absl::Status why) {
  const absl::MutexLock lock(&mutex_);
  waits_ = std::move(why);
  progress_.Begin(Stage::kFolder);
}

uint64_t StartingNode::StandsStill_ns(uint64_t now_ns) {
  const Stage stage = progress_.stage();
  const uint64_t bytes = progress_.done_bytes();
  if (stage != seen_stage_ || bytes != seen_bytes_) moved_ns_ = now_ns;
  seen_stage_ = stage;
  seen_bytes_ = bytes;
  return now_ns - moved_ns_;
}

void StartingNode::AlsoReport(std::function<void(NodeStatus&)> report) {
  const absl::MutexLock lock(&mutex_);
  also_report_ = std::move(report);
}

absl::StatusOr<NodeStatus> StartingNode::Status() {
  NodeControl* const node = Behind();
  absl::StatusOr<NodeStatus> status = node != nullptr ? node->Status() : StatusOfStart();
  const absl::MutexLock lock(&mutex_);
  if (status.ok() && also_report_) also_report_(*status);
  return status;
}

absl::Status StartingNode::Waits() {
  if (progress_.stage() != Stage::kFolder) waits_ = absl::OkStatus();
  return waits_;
}

std::string StartingNode::Doing() {
  if (Waits().ok()) return StartText(progress_, data_dir_);
  return absl::IsResourceExhausted(waits_) ? "waits for room on the disk" : "waits, and tries again every second";
}

absl::StatusOr<NodeStatus> StartingNode::StatusOfStart() {
  const uint64_t now_ns = now_ns_();
  NodeStatus status;
  status.uptime_ns = now_ns - started_ns_;
  const absl::MutexLock lock(&mutex_);
  status.node = self_;
  const uint64_t stands_still_ns = StandsStill_ns(now_ns);
  status.starting = Doing();
  if (const absl::Status waits = Waits(); absl::IsResourceExhausted(waits)) {
    status.storage = std::string(waits.message());
  } else if (!waits.ok()) {
    status.start_stalled = std::string(waits.message());
  } else if (stands_still_ns >= kStandsStill_ns) {
    status.start_stalled = absl::StrCat(
        "the start has stood still for ", config::RoundedDurationNs(static_cast<int64_t>(stands_still_ns)),
        ": the node ", status.starting, ". A disk that hangs, or a file system whose server does not answer (dmesg)?");
  }
  return status;
}

absl::Status StartingNode::Refusal() {
  if (NodeControl* const node = Behind()) return node->Refusal();
  const absl::MutexLock lock(&mutex_);
  return StartingError(Waits().ok() ? Doing() : absl::StrCat(Doing(), " (", waits_.message(), ")"));
}

}  // namespace hedgerow::node
