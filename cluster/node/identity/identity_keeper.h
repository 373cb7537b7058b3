// SPDX-License-Identifier: Apache-2.0
//
// The node's identity file while the node runs (storage/identity.h): what it says is read here, and every change of it
// is written here. What the loop changes (which copies of the log the other members have) is written on a thread of its
// own, because a sync may wait for the disk; until it is durable it does not count. What changes at a start or an end
// is written at once. Used by Node, Peers and Offloads, on the loop's thread; docs/SAFETY.md argues for what it
// records.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cluster/node/config/config.h"
#include "cluster/node/peers/copy_register.h"
#include "cluster/raft/types.h"
#include "cluster/storage/identity.h"
#include "net/steady_wait.h"

namespace hedgerow::node {

class IdentityKeeper final : public CopyRegister {
 public:
  // Of the folder that `config` names; a folder that is new gets one. To be called before anything else is
  // opened there. Errors: the folder is another node's, or holds a log and no identity, or one that cannot be
  // read; an error that storage::IsLost knows: the node was found out before. `boot_id` empty: it cannot be
  // known.
  static absl::StatusOr<std::unique_ptr<IdentityKeeper>> Open(const NodeConfig& config,
                                                              std::string boot_id = storage::KernelBootId());
  ~IdentityKeeper() override;
  IdentityKeeper(const IdentityKeeper&) = delete;
  IdentityKeeper& operator=(const IdentityKeeper&) = delete;

  const std::string& path() const { return path_; }
  uint64_t copy_id() const override { return wanted_.copy_id; }
  uint64_t log_uuid() const { return wanted_.log_uuid; }
  uint64_t starts() const override { return wanted_.starts; }

  // The log is open, and this is its copy's id: a copy that was never opened gets its name, and its first start. LOST:
  // it is not the one that the folder had. Then counts this start, in the folder and on the host (host_memory.h); LOST:
  // the host remembers a later one. To be called before anything is promised.
  absl::Status CountStart(uint64_t copy_id, const std::string& admin_socket);
  // Another member does not believe this copy, or not in this state. From now on the node is LOST, at every start.
  // Returns the error to end with.
  absl::Status MarkUnknown(raft::NodeId by);

  // Recorded by the writer's thread.
  uint64_t CopyOf(raft::NodeId node) const override;
  absl::Status Record(raft::NodeId node, uint64_t copy_id) override;
  void KeepOnly(const std::vector<raft::NodeId>& members) override;
  // Of the replicated log, once it has been applied. Written in the background.
  void SetLogUuid(uint64_t log_uuid);
  // Waits until everything that was asked for is written, or could not be.
  absl::Status Flush();

  // The kernel's promises, of this run of the host (rule R3 and the memory mode of docs/SAFETY.md). A node that finds
  // that it made some, and not the kernel's maps, has lost what it acknowledged.
  bool KernelHolds() const { return wanted_.kernel_lost || wanted_.KernelMayHold(boot_id_); }
  bool KernelLost() const { return wanted_.kernel_lost; }
  // An error: it cannot be written, so nothing may be promised.
  absl::Status SetKernelHolds();
  // What they were is gone, or the log that they go with; in every run of the host from now on.
  absl::Status SetKernelLost();
  absl::Status SetKernelFree();

  // The folder was restored and never started: what the kernel still holds is of a log that was here before.
  bool JustRestored() const { return wanted_.phase == storage::Identity::Phase::kRestored; }
  absl::Status SetStarted();

 private:
  IdentityKeeper(std::string folder, std::string boot_id, storage::Identity identity);

  // Now, in this thread.
  absl::Status Change(absl::FunctionRef<void(storage::Identity&)> change);
  // Soon, on the writer's thread; again and again if it fails.
  void ChangeSoon();
  void Run();
  void QueueAgain(storage::Identity identity);
  void Written(const storage::Identity& identity, const absl::Status& status);

  const std::string folder_;
  const std::string path_;
  const std::string boot_id_;
  storage::Identity wanted_;  // the loop's

  mutable absl::Mutex mutex_;
  net::SteadyCondVar superseded_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<storage::Identity> queued_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;  // by whichever thread
  std::map<raft::NodeId, uint64_t> durable_ ABSL_GUARDED_BY(mutex_);
  absl::Status written_ ABSL_GUARDED_BY(mutex_);  // of the last write
  std::thread writer_;                            // from the first ChangeSoon on
};

// Why a node with this identity is LOST; OK: it is not.
absl::Status CheckKnown(const std::string& folder, const storage::Identity& identity);

}  // namespace hedgerow::node
