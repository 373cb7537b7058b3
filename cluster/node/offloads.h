// SPDX-License-Identifier: Apache-2.0
//
// A node's kernel offloads as its loop uses them: loads and attaches the kernel part, tells it members, their
// incarnations and keys, follows network changes on a thread of its own, and reports of each offload whether it is on
// and why not. What the kernel refuses is off, and the node does it itself; the one error is a kernel part that has
// promised something for a former incarnation and cannot be found. On the loop's thread.

#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cluster/kv/replica.h"
#include "cluster/node/config/config.h"
#include "cluster/node/identity/identity_keeper.h"
#include "cluster/node/peers/peers.h"
#include "cluster/node/status/status.h"
#include "cluster/offload/bpf_kernel.h"
#include "cluster/offload/kernel_bridge.h"
#include "cluster/offload/neighbours.h"
#include "cluster/offload/watch.h"
#include "net/steady_wait.h"
#include "operate/durations.h"

namespace hedgerow::node {

class Offloads {
 public:
  // DataLoss: a former incarnation of this node has promised in the kernel what is not there any more, so it
  // must not go on as itself. FailedPrecondition: what is there is not this node's.
  static absl::StatusOr<std::unique_ptr<Offloads>> Open(const NodeConfig& config, uint64_t incarnation,
                                                        IdentityKeeper& identity);
  // The first thing of all: to open the log makes it one that an earlier program cannot read, and what a killed
  // process of that program has left in the kernel that program alone can fetch. After an error nothing may be
  // opened. OK where nothing is owed, whatever is left there: that is Open's business.
  static absl::Status CheckLeft(const NodeConfig& config, const IdentityKeeper& identity);
  ~Offloads();

  // Null where the kernel does nothing for this node.
  offload::KernelBridge* bridge() { return bridge_.get(); }

  // The members that the kernel may know from now on, by their slots; a former member is sent nothing.
  // Takes effect within milliseconds, and at once for members that have left.
  void SetMembers(std::vector<PeerState> others);

  // From now on the kernel programs open what these keys have sealed, and seal with the first. The clock tells proxies
  // with theirs within the next milliseconds. An error: nothing has changed.
  absl::Status SetKeys(const wire::KeyRing& cluster, const std::vector<wire::Key>& proxies);

  // Once, before the first turn: takes over what the kernel holds for the former incarnation, and attaches.
  // DataLoss as of Open: the log is not the one that it goes with.
  absl::Status Start(kv::Replica& replica, Peers& peers);
  // In order: nothing is promised any more that the log does not hold.
  void Stop(kv::Replica& replica);

  // Every turn.
  void Follow(uint64_t now_ns, const raft::Raft& raft, Peers& peers);
  // The kernel's and the process's announcements are ordered by one counter. 0: the process has its own.
  uint64_t DrawAnnounceSequence() { return kernel_ == nullptr ? 0 : kernel_->DrawAnnounceSequence(); }

  void AddTo(NodeStatus& status);

 private:
  Offloads(const NodeConfig& config, uint64_t incarnation, IdentityKeeper& identity);
  absl::Status Load();
  void WatchNetlink();
  void PollNetwork();
  void StopNetlinkWatcher();
  void FollowIncarnations(Peers& peers);
  void WriteMembers();
  void Tend(uint64_t now_ns, const raft::Raft& raft);
  void StartWatch();

  const NodeConfig config_;
  uint64_t incarnation_;
  IdentityKeeper& identity_;
  std::string why_not_;  // nothing is loaded
  std::unique_ptr<offload::BpfKernel> kernel_;
  std::unique_ptr<offload::KernelBridge> bridge_;
  uint64_t fence_begun_ns_ = 0;
  operate::Durations fences_;
  std::optional<offload::Neighbours> neighbours_;
  std::unique_ptr<offload::Watch> watch_;
  std::string watch_why_not_ = "not started";
  // By slot, as the kernel knows them: the loop's.
  std::array<raft::NodeId, HR_NODE_MEMBERS> ids_{};
  std::array<NetAddress, HR_NODE_MEMBERS> addresses_{};
  std::array<uint64_t, HR_NODE_MEMBERS> incarnations_{};
  uint64_t detached_seen_ = 0;
  uint64_t attached_seen_ = 0;

  // Hooks, routes and neighbours are looked after by a thread of their own: they want the kernel's one lock for
  // all of networking, which others may hold for tens of milliseconds, and a leader that waits for it is given
  // up. It alone attaches, and writes members and routes; the loop reads what it has found.
  struct Found {
    offload::HookStatus xdp{};
    offload::HookStatus broadcast{};
    std::string neighbours_why_not{};
    std::string unreachable{};   // the nodes that the watch cannot notify, and why
    std::string pins_why_not{};  // they are gone, and cannot be made again
  };
  std::thread netlink_watcher_;
  absl::Mutex mutex_;
  net::SteadyCondVar wanted_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  Found found_ ABSL_GUARDED_BY(mutex_);
  std::vector<PeerState> members_ ABSL_GUARDED_BY(mutex_);          // as the loop wants them
  std::vector<hr_siphash_key> proxy_keys_ ABSL_GUARDED_BY(mutex_);  // likewise; empty: those of the start
  uint64_t members_version_ ABSL_GUARDED_BY(mutex_) = 0;            // of both
  std::atomic<uint64_t> members_written_ = 0;                       // the version that the kernel has
  uint64_t members_wanted_ = 0;                                     // the loop's copy of members_version_
  std::atomic<uint32_t> reachable_ = 0;                             // of the members that were written
  std::atomic<uint64_t> detached_ = 0;  // times that the programs were detached from outside
  std::atomic<uint64_t> attached_ = 0;  // times that the programs were attached since
  bool xdp_was_on_ = false;             // the thread's, like the next one
  uint64_t polls_ = 0;
  std::atomic<uint64_t> pinned_again_ = 0;
};

}  // namespace hedgerow::node
