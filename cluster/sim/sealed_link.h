// SPDX-License-Identifier: Apache-2.0
//
// A simulated node's peers over the real transport (node::Peers): messages travel as the datagrams that nodes
// send each other, sealed under the cluster's key, numbered, in pieces where they are long; incarnations are
// learned by HELLO. Half of the runs have it; in the others messages travel as they are, which leaves more of a
// run's time to the core.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "cluster/kv/replica.h"
#include "cluster/node/peers/copy_register.h"
#include "cluster/node/peers/peers.h"
#include "cluster/node/turn/turn.h"
#include "cluster/sim/network.h"
#include "cluster/sim/world.h"

namespace hedgerow::sim {

// In place of a node's identity file. Every change is durable at once.
class KnownCopies final : public node::CopyRegister {
 public:
  explicit KnownCopies(uint64_t copy_id) : copy_id_(copy_id) {}

  void CountStart() { ++starts_; }
  uint64_t copy_id() const override { return copy_id_; }
  uint64_t starts() const override { return starts_; }
  uint64_t CopyOf(raft::NodeId node) const override;
  absl::Status Record(raft::NodeId node, uint64_t copy_id) override;
  void KeepOnly(const std::vector<raft::NodeId>& members) override;

 private:
  uint64_t copy_id_;
  uint64_t starts_ = 0;
  std::map<raft::NodeId, uint64_t> copies_;
};

// Of one incarnation of a node.
class SealedLink final : private node::DatagramSender, private node::PeerReceiver {
 public:
  // All outlive it.
  SealedLink(World& world, raft::NodeId self, KnownCopies& known, kv::Replica& replica, node::Turn& turn);

  // The replica has everything that former incarnations have promised.
  void Started();
  // Within a turn.
  void Take(uint64_t from, std::string_view bytes, uint64_t arrived_ns);
  void FollowReplica();
  void FollowMembers();

  node::Peers& peers() { return peers_; }
  const node::Peers& peers() const { return peers_; }

 private:
  // node::DatagramSender
  void Send(const node::NetAddress& to, std::string bytes, uint32_t mark) override;

  // node::PeerReceiver
  void Receive(uint64_t arrived_ns, raft::Message message) override;
  void Receive(uint64_t arrived_ns, kv::Request request) override;
  void Receive(raft::NodeId from, uint64_t tag, const kv::Answer& answer) override;
  void Receive(const raft::LeaderResigns& hint) override { turn_.Receive(hint); }
  void Receive(const raft::LeaderStalled& hint) override { replica_.Feed(hint); }
  node::Promised PromisedBy(raft::NodeId peer) const override { return node::PromisedBy(replica_.raft(), peer); }

  World& world_;
  raft::NodeId self_;
  kv::Replica& replica_;
  node::Turn& turn_;
  node::Peers peers_;
  std::optional<std::tuple<uint32_t, uint32_t, uint32_t>> followed_members_;
};

}  // namespace hedgerow::sim
