// SPDX-License-Identifier: Apache-2.0
//
// What runs in place of a node that has lost what it promised (memory mode after a crash of its host): it
// serves its status and metrics, tells the other members with a HELLO now and then, and does nothing else. It
// does not vote, acknowledges nothing and answers no client, because it has no log to do so with. Once the
// cluster has another member at this node's address, which an administrator asks for (`members rejoin`), it
// ends: the node comes back as that one. main.cc runs it.

#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cluster/node/config/config.h"
#include "cluster/node/host/event_fd.h"
#include "cluster/node/peers/peers.h"
#include "cluster/node/identity/rejoin.h"
#include "cluster/node/status/status.h"
#include "cluster/node/net/udp_socket.h"
#include "cluster/raft/types.h"
#include "cluster/storage/load_progress.h"
#include "cluster/wire/peer.h"

namespace hedgerow::node {

class LostNode final : public NodeControl {
 public:
  // `why`: what Node::Create said (storage::IsLost). Reads what is left of its log first, and says to `progress` how
  // far it is. Without its peer socket it cannot report itself, and says so.
  LostNode(NodeConfig config, std::string why, storage::LoadProgress* progress = nullptr);

  // Until RequestStop, or until it knows the id under which it comes back.
  void Run();
  std::optional<Rejoin> rejoin() const { return rejoin_; }
  // Any thread, or a signal handler.
  void RequestStop();

  // NodeControl: any thread.
  absl::StatusOr<NodeStatus> Status() override;
  absl::Status Refusal() override { return absl::FailedPreconditionError(why_); }

 private:
  struct Left;
  // A sender that greets another member at this address. A member answers that one's questions only.
  struct Candidate {
    std::unique_ptr<wire::PeerCodec> codec;
    uint64_t nonce = 0;
    uint64_t asked_ns = 0;
  };

  LostNode(NodeConfig config, std::string why, Left left);
  static Left WhatIsLeft(const NodeConfig& config, storage::LoadProgress* progress);
  void Tell();
  void Listen(uint64_t now_ns);
  std::vector<PeerState>::iterator FindOrMeet(raft::NodeId id, const NetAddress& address)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TakeForAnother(const Datagram& datagram, uint64_t now_ns);

  const NodeConfig config_;
  const raft::Configuration configuration_;  // by its log; the file's, if that cannot be read
  std::string why_;
  const uint64_t started_ns_;
  std::unique_ptr<UdpSocket> socket_;  // null: it could not be bound
  std::unique_ptr<wire::PeerCodec> codec_;
  EventFd wake_;
  std::atomic<bool> stop_requested_ = false;
  std::map<raft::NodeId, Candidate> candidates_;  // at most kCandidatesMax
  std::optional<Rejoin> rejoin_;
  absl::Mutex mutex_;
  std::vector<PeerState> others_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hedgerow::node
