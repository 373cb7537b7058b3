// SPDX-License-Identifier: Apache-2.0
#include "cluster/sim/sealed_link.h"

#include <algorithm>
#include <utility>

#include "bpf/abi/peer_abi.h"
#include "cluster/kv/features.h"
#include "cluster/wire/key.h"

namespace hedgerow::sim {
namespace {

constexpr uint64_t kCluster = 7;
// A datagram's mark that asks for copies, above the mask of the members that get one.
constexpr uint32_t kCopies = 1u << 16;

// Nodes stay at one address, whatever changes of membership call it: a node that moves is restarted there, and a
// simulated process has no address of its own.
node::NetAddress AddressOf(raft::NodeId node) {
  node::NetAddress address;
  address.bytes[15] = static_cast<uint8_t>(node.value());
  address.port = wire::kPeerPort;
  return address;
}

wire::Key ClusterKey(const World& world) {
  const uint64_t epoch = world.network.epoch();
  return wire::DeriveClusterKey({.bytes = {1, 2, 3}}, epoch, 1000 + epoch);
}

Network::Kind KindOf(const std::string& bytes) {
  switch (bytes[offsetof(hr_peer_header, kind)]) {
    case HR_PEER_VOTE_REPLY: return Network::Kind::kVote;
    case HR_PEER_APPEND_REPLY: return Network::Kind::kAck;
    case HR_PEER_FORWARD: return Network::Kind::kForward;
    default: return Network::Kind::kOther;
  }
}

}  // namespace

uint64_t KnownCopies::CopyOf(raft::NodeId node) const {
  const auto found = copies_.find(node);
  return found == copies_.end() ? 0 : found->second;
}

absl::Status KnownCopies::Record(raft::NodeId node, uint64_t copy_id) {
  copies_[node] = copy_id;
  return absl::OkStatus();
}

void KnownCopies::KeepOnly(const std::vector<raft::NodeId>& members) {
  std::erase_if(copies_, [&members](const auto& known) {
    return std::find(members.begin(), members.end(), known.first) == members.end();
  });
}

SealedLink::SealedLink(World& world, raft::NodeId self, KnownCopies& known, kv::Replica& replica, node::Turn& turn)
    : world_(world),
      self_(self),
      replica_(replica),
      turn_(turn),
      peers_(*this,
             {.cluster_id = kCluster,
              .keys = ClusterKey(world),
              .self = self,
              .incarnation = world.random.Next() | 1,
              .traits = {.durability = world.plan.disk.memory ? wire::PeerTraits::Durability::kMemory
                                                              : wire::PeerTraits::Durability::kDisk,
                         .features = kv::kAllFeatures,
                         .version_min = HR_PEER_VERSION,
                         .version_max = HR_PEER_VERSION}},
             known, [&world] { return world.random.Next(); }) {
  FollowMembers();
}

void SealedLink::Started() { peers_.SetStarted(replica_.raft().term(), replica_.raft().log().last_index()); }

void SealedLink::Take(uint64_t from, std::string_view bytes, uint64_t arrived_ns) {
  peers_.Take({.from = AddressOf(raft::NodeId(from)), .to = {}, .bytes = bytes, .arrived_ns = arrived_ns},
              world_.time.now_ns(), *this);
}

void SealedLink::FollowReplica() {
  FollowMembers();
  replica_.SetAgreedFeatures(peers_.AgreedFeatures());
  if (const uint64_t log_uuid = replica_.state().log_uuid(); log_uuid != 0) peers_.SetLogUuid(log_uuid);
  peers_.SetTerm(replica_.raft().term());
  peers_.Greet(world_.time.now_ns());
}

void SealedLink::FollowMembers() {
  const raft::Raft& raft = replica_.raft();
  const raft::Configuration& configuration = raft.configuration();
  const uint32_t committed_epoch = raft.ConfigurationAt(raft.commit()).epoch;
  const std::tuple now(configuration.epoch, raft.peers(), committed_epoch);
  if (followed_members_ == now) return;
  followed_members_ = now;
  std::vector<node::PeerState> others;
  for (const raft::Member& member : configuration.members) {
    if (((raft.peers() >> member.slot) & 1) == 0) continue;
    others.push_back({.id = member.id, .address = AddressOf(member.id), .slot = member.slot});
  }
  peers_.SetMembers(std::move(others), configuration.epoch, committed_epoch, world_.time.now_ns());
  if (world_.plan.sealed.copies) peers_.SetBroadcast(kCopies, raft.peers());
}

// A mark asks for copies: the kernel part of a node makes them, where it is attached.
void SealedLink::Send(const node::NetAddress& to, std::string bytes, uint32_t mark) {
  if (mark == 0) {
    world_.network.SendDatagram(self_.value(), to.bytes[15], bytes, KindOf(bytes));
    return;
  }
  for (const node::PeerState& peer : peers_.states()) {
    if (((mark >> peer.slot) & 1) == 0) continue;
    world_.network.SendDatagram(self_.value(), peer.address.bytes[15], bytes, KindOf(bytes));
  }
}

void SealedLink::Receive(uint64_t arrived_ns, raft::Message message) { turn_.Receive(arrived_ns, std::move(message)); }

void SealedLink::Receive(uint64_t arrived_ns, kv::Request request) {
  replica_.ReceiveRequest(arrived_ns, std::move(request));
}

void SealedLink::Receive(raft::NodeId from, uint64_t tag, const kv::Answer& answer) {
  replica_.ReceiveForwardAnswer(tag, from, answer);
}

}  // namespace hedgerow::sim
