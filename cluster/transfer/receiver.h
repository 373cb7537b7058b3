// SPDX-License-Identifier: Apache-2.0
//
// Receives snapshots: a gRPC service on the node's peer address. One transfer at a time; a newer one ends an
// older. What has arrived is kept for the connection that goes on with it, as long as the process lives. A file
// that is whole is synced, checked, made into a state machine and published before its user hears of it. Runs
// on gRPC's threads.
//
// Connections are bounded (peer_listener.h), and so is what a caller sends before it has shown that it has the
// cluster's key; until then it holds one of a few threads and changes nothing else. What a transfer holds is bounded by
// its window in memory and by the offered size on the disk, which is set aside before the first byte comes.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/kv/state_machine.h"
#include "cluster/raft/event.h"
#include "cluster/storage/snapshot_folder.h"
#include "cluster/transfer/peer_listener.h"
#include "cluster/transfer/peer_tls.h"
#include "cluster/transfer/shared_keys.h"
#include "net/ip_address.h"

namespace hedgerow::transfer {

struct ReceiverOptions {
  uint64_t cluster_id = 0;
  const SharedKeys* keys = nullptr;  // outlives this
  raft::NodeId self{};
  std::string address;           // to listen on: "10.0.0.1:4802"
  const PeerTls* tls = nullptr;  // outlives this; null: none is used
};

// A snapshot of a leader, durable in the folder, and what it makes.
struct Received {
  raft::SnapshotReceived event;
  uint64_t size_bytes = 0;  // of the file
  std::unique_ptr<kv::StateMachine> state;
};

// What is offered, and by which node.
struct Offered {
  raft::NodeId leader{};
  uint64_t incarnation = 0;  // 0: not said
  raft::Term term{};
  raft::EntryId last{};
};

// Implemented by a node. Any thread.
class ReceiverHost {
 public:
  virtual ~ReceiverHost() = default;
  // Whether a connection from this address may be a member's. Others are refused before they are asked anything.
  virtual bool MayCall(const net::IpAddress& source) = 0;
  // Whether such a snapshot, of the leader of this term, would be of use. AlreadyExists: what it holds is here
  // already. Other errors are reported to the node that offers it.
  virtual absl::Status Judge(const Offered& offered) = 0;
  // OK: the core has it. Waits for that. If the core refuses it the file is gone from the folder; if the node stops
  // first it stays, and is what the next process finds.
  virtual absl::Status Take(Received received) = 0;
};

struct ReceiverStatistics {
  uint64_t begun = 0;
  uint64_t received = 0;         // whole and sound
  uint64_t broken_off = 0;       // the connection ended before
  uint64_t refused = 0;          // no room, damaged, or of no use to the core
  uint64_t unauthenticated = 0;  // connections and frames without the right key
  uint64_t certificate = 0;      // calls with a certificate that names another member, or none
  uint64_t received_bytes = 0;
  PeerListener::Statistics connections{};
};

// Of the one that is under way, or was last and may go on.
struct Receiving {
  raft::NodeId from{};
  raft::LogIndex index{};
  uint64_t received_bytes = 0;
  uint64_t size_bytes = 0;
};

class Receiver {
 public:
  // Unavailable: another process has the address.
  static absl::StatusOr<std::unique_ptr<Receiver>> Listen(ReceiverOptions options, storage::SnapshotFolder folder,
                                                          ReceiverHost& host);
  // Breaks off what is under way. A call to the host's Take is waited for.
  virtual ~Receiver() = default;
  virtual ReceiverStatistics statistics() const = 0;
  virtual std::optional<Receiving> under_way() const = 0;
};

}  // namespace hedgerow::transfer
