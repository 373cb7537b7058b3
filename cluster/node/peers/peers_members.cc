// SPDX-License-Identifier: Apache-2.0
//
// Peers, the part that decides which nodes are believed: members and what they announce in HELLO, which copy of the log
// each of them has, nodes that this node's configuration does not name yet, and nodes that were removed. What they send
// is peers.cc's.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cluster/node/peers/peers.h"

namespace hedgerow::node {

void Peers::SetMembers(std::vector<PeerState> others, uint32_t epoch, uint32_t committed_epoch, uint64_t now_ns) {
  const std::vector<PeerState> before = std::exchange(others_, std::move(others));
  ++addresses_version_;
  epoch_ = epoch;
  committed_epoch_ = committed_epoch;
  broadcast_reachable_ = 0;
  codec_.SetConfigEpoch(epoch);
  for (PeerState& peer : others_) {
    incarnations_.Add(peer.id);
    Remember(peer.id, now_ns);
    for (const PeerState& known : before) {
      if (known.id != peer.id) continue;
      const PeerState configured = std::exchange(peer, known);
      peer.slot = configured.slot;
      peer.address = configured.address;
      peer.answers_at = peer.seen_at = NetAddress();
      // It is where it was until it is heard elsewhere. A member without an address has lost its place to another
      // one, and is not to be reached at all.
      if (peer.address.port == 0 || peer.address == known.reached_at()) continue;
      if (known.heard_ns != 0) peer.answers_at = known.reached_at();
      peer.seen_at = known.seen_at;
    }
  }
  std::erase_if(unknown_peers_, [this](const UnknownPeer& unknown) {
    if (Find(unknown.state.id) != nullptr) return true;
    if (unknown.epoch > committed_epoch_) return false;
    Forget(unknown.state.id);
    return true;
  });
  for (const PeerState& known : before) {
    if (Find(known.id) == nullptr) Forget(known.id);
  }
  // A configuration that is not committed may be undone, and then a node that it left out is a member with its
  // former log.
  if (epoch != committed_epoch) return;
  std::vector<raft::NodeId> members;
  for (const PeerState& peer : others_) members.push_back(peer.id);
  copies_.KeepOnly(members);
}

void Peers::SetSources(std::vector<NetAddress> members, std::optional<net::Networks> listed) {
  members_in_file_ = std::move(members);
  listed_ = std::move(listed);
  ++addresses_version_;
}

std::vector<NetAddress> Peers::MemberAddresses() const {
  std::vector<NetAddress> addresses = members_in_file_;
  const auto add = [&addresses](const PeerState& peer) {
    for (const NetAddress& address : {peer.address, peer.answers_at})
      if (address.port != 0) addresses.push_back(address);
  };
  for (const PeerState& peer : others_) add(peer);
  for (const UnknownPeer& unknown : unknown_peers_)
    if (incarnations_.IncarnationOf(unknown.state.id) != 0) add(unknown.state);
  return addresses;
}

wire::DropReason Peers::Hear(raft::NodeId from, uint64_t incarnation, raft::Term term, uint64_t now_ns) {
  using wire::DropReason;
  const uint64_t known = incarnations_.IncarnationOf(from);
  const DropReason reason = known == 0                      ? DropReason::kIncarnationUnknown
                            : known != incarnation          ? DropReason::kOtherIncarnation
                            : term > term_limit_.At(now_ns) ? DropReason::kTerm
                                                            : DropReason::kNone;
  if (reason != DropReason::kNone) ++counters_.drops[static_cast<size_t>(reason)];
  return reason;
}

// Ports do not count: a port is no host's own.
bool Peers::MayComeFrom(const NetAddress& source, uint64_t now_ns) {
  const auto is_source = [&source](const NetAddress& address) {
    return address.port != 0 && address.bytes == source.bytes;
  };
  const auto is_at_source = [&is_source](const PeerState& peer) {
    return is_source(peer.address) || is_source(peer.answers_at) || is_source(peer.seen_at);
  };
  if (std::any_of(others_.begin(), others_.end(), is_at_source)) return true;
  if (std::any_of(members_in_file_.begin(), members_in_file_.end(), is_source)) return true;
  if (listed_.has_value()) return listed_->Contains(source.bytes);
  const auto is_stranger = [&is_at_source](const UnknownPeer& unknown) { return is_at_source(unknown.state); };
  if (std::any_of(unknown_peers_.begin(), unknown_peers_.end(), is_stranger)) return true;
  return MayOpenMore(kIntroductionsPerSecond, now_ns);
}

bool Peers::MayOpenMore(uint32_t per_second, uint64_t now_ns) {
  if (now_ns >= introductions_until_ns_) {
    introductions_until_ns_ = now_ns + 1'000'000'000;
    introductions_left_ = per_second;
  }
  if (introductions_left_ == 0) return false;
  --introductions_left_;
  return true;
}

// For the status alone: nothing that such a datagram says counts.
void Peers::NoteExcluded(const Datagram& datagram, uint64_t now_ns) {
  if (!MayOpenMore(kExcludedOpenedPerSecond, now_ns)) return;
  const wire::Opened opened = codec_.Open(datagram.bytes);
  PeerState* const peer = opened.ok() ? Find(opened.header.from) : nullptr;
  if (peer == nullptr) return;
  peer->excluded_at = datagram.from;
  peer->excluded_ns = now_ns;
}

void Peers::Forget(raft::NodeId id) {
  incarnations_.Remove(id);
  pieces_.Forget(id);
}

// Of a new member. An unknown peer that becomes one has reported its log already, but that is not recorded yet.
void Peers::Remember(raft::NodeId id, uint64_t now_ns) {
  const uint64_t known = copies_.CopyOf(id);
  incarnations_.Remember(id, known);
  const uint64_t reported = incarnations_.CopyOf(id);
  if (reported == 0 || reported == known) return;
  if (known == 0) {
    (void)Met(id, now_ns);
  } else {
    incarnations_.Forget(id, now_ns);  // it is to answer again
  }
}

// A member has said which log it has. Until that is recorded nothing else of it may count: this node may be the
// only one that knows when it comes back with another.
wire::DropReason Peers::Met(raft::NodeId id, uint64_t now_ns) {
  const uint64_t reported = incarnations_.CopyOf(id);
  if (reported == 0 || Find(id) == nullptr) return wire::DropReason::kNone;
  const absl::Status recorded = copies_.Record(id, reported);
  const bool pending = absl::IsUnavailable(recorded);
  if (!pending) recorded_ = recorded;
  if (recorded.ok()) {
    incarnations_.Remember(id, reported);
    return wire::DropReason::kNone;
  }
  ++addresses_version_;
  incarnations_.Forget(id, now_ns, pending ? wire::PeerIncarnations::kAskFloor_ns : wire::PeerIncarnations::kAskCap_ns);
  return wire::DropReason::kIncarnationUnknown;
}

bool Peers::IsOfAnotherCluster(const wire::PeerTraits& its) const {
  return its.log_uuid != 0 && traits_.log_uuid != 0 && its.log_uuid != traits_.log_uuid;
}

// Whether a member can be in one cluster with this node; if not, `why` says what is said of it. An acknowledgement of a
// node of the other durability mode promises something else. The log of another cluster that was set up under the same
// ids and key is none of this one's copies.
wire::DropReason Peers::Compare(const wire::PeerTraits& its, std::string& why) const {
  using Durability = wire::PeerTraits::Durability;
  const auto name = [](Durability durability) { return durability == Durability::kDisk ? "disk" : "memory"; };
  if (its.version_max != 0 && traits_.version_max != 0 &&
      (its.version_min > traits_.version_max || its.version_max < traits_.version_min)) {
    why = absl::StrCat("speaks versions ", its.version_min, " to ", its.version_max,
                       " of the protocol between nodes (build ", its.build, "), and this node ", traits_.version_min,
                       " to ", traits_.version_max, " (build ", traits_.build,
                       "): upgrade by a version in between that speaks both");
    return wire::DropReason::kVersion;
  }
  if (IsOfAnotherCluster(its)) {
    why = absl::StrFormat(
        "is of another cluster that was set up under the same ids: its log is %016x, and this node's %016x. Stop the node "
        "that does not belong here, and give it another data_dir or another cluster_id",
        its.log_uuid, traits_.log_uuid);
    return wire::DropReason::kForeignLog;
  }
  if (its.durability == Durability::kUnknown || traits_.durability == Durability::kUnknown ||
      its.durability == traits_.durability) {
    return wire::DropReason::kNone;
  }
  why = absl::StrCat(
      "has `durability: ", name(its.durability), "`, and this node `durability: ", name(traits_.durability),
      "`: an acknowledgement must promise the same on all nodes. Stop the node whose file is wrong, correct "
      "the key there, and start it");
  return wire::DropReason::kOtherDurability;
}

// Of a HELLO_ACK that has answered a nonce of this node, so it is no recorded datagram. Nothing is believed of
// a member that is not compatible: it gets no incarnation.
wire::DropReason Peers::TakeTraits(raft::NodeId id, const wire::PeerTraits& its, wire::DropReason admitted,
                                   uint64_t now_ns) {
  std::string why;
  const wire::DropReason compared = Compare(its, why);
  PeerState* const peer = Find(id);
  if (compared == wire::DropReason::kNone) {
    if (peer != nullptr && admitted == wire::DropReason::kNone) {
      peer->features = its.features;
      peer->build = its.build;
      peer->sealing_key = its.sealing_key;
      peer->other_key = its.other_key;
      peer->told_keys_ns = now_ns;
    }
    return admitted;
  }
  if (peer != nullptr) {
    peer->incompatible_ns = now_ns;
    peer->incompatible = std::move(why);
  }
  ++addresses_version_;
  if (admitted == wire::DropReason::kNone) incarnations_.Forget(id, now_ns);
  return compared;
}

uint32_t Peers::AgreedFeatures() const {
  uint32_t agreed = traits_.features;
  for (const PeerState& peer : others_) agreed &= incarnations_.IncarnationOf(peer.id) == 0 ? 0 : peer.features;
  return agreed;
}

// The folder of a member was put back: it starts with less than it has promised. What it promised is of the
// incarnation that is known, or of one before; what it said in the incarnation that now speaks is not compared,
// since datagrams overtake each other.
bool Peers::WentBack(const wire::PeerHeader& header, const wire::Started& started, const PeerReceiver& receiver) const {
  if (incarnations_.WentBack(header, started)) return true;
  const uint64_t incarnation = incarnations_.IncarnationOf(header.from);
  if (started.starts == 0 || incarnation == 0 || incarnation == header.from_incarnation) return false;
  // A later term may have truncated entries that the member acknowledged in this one.
  const Promised promised = receiver.PromisedBy(header.from);
  return started.term < promised.term || (started.term == promised.term && started.last < promised.last);
}

// What such a member has on record is older than its last answer to this node, which did not call this node's log
// foreign. So its word against this node counts for nothing.
bool Peers::KnownToHaveGoneBack(const wire::PeerHeader& header) {
  const PeerState* const peer = Find(header.from);
  return peer != nullptr && peer->went_back_incarnation == header.from_incarnation;
}

// A member of another cluster has lost nothing: it hears which log this node has, and compares.
raft::Term Peers::TermForAck(const wire::PeerHeader& hello, const wire::PeerTraits& its, bool went_back) const {
  if (IsOfAnotherCluster(its)) return wire::CopyIdTerm(copies_.copy_id());
  const uint64_t reported = wire::CopyIdIn(hello);
  const uint64_t known = copies_.CopyOf(hello.from);
  const bool other = reported != 0 && known != 0 && reported != known;
  return other || went_back ? wire::kForeignLogTerm : wire::CopyIdTerm(copies_.copy_id());
}

Peers::UnknownPeer* Peers::FindUnknownPeer(raft::NodeId id) {
  const auto found = std::find_if(unknown_peers_.begin(), unknown_peers_.end(),
                                  [id](const UnknownPeer& unknown) { return unknown.state.id == id; });
  return found == unknown_peers_.end() ? nullptr : &*found;
}

// As raft_membership.cc judges its messages. An unknown peer is where its datagrams come from; which are its
// own is known once it has answered a HELLO that was sent there.
wire::DropReason Peers::TakeUnknownPeer(const wire::Opened& opened, const Datagram& datagram, uint64_t now_ns) {
  const wire::PeerHeader& header = opened.header;
  if (header.config_epoch <= committed_epoch_) {
    ++counters_.refused;
    NotifyRemoved(opened, datagram, now_ns);
    return wire::DropReason::kConfigEpoch;
  }
  UnknownPeer* unknown = FindUnknownPeer(header.from);
  if (unknown == nullptr) {
    if (unknown_peers_.size() >= kUnknownPeersMax) return wire::DropReason::kNoMember;
    unknown = &unknown_peers_.emplace_back();
    unknown->state.id = header.from;
    incarnations_.Add(header.from);
  }
  if (incarnations_.IncarnationOf(header.from) == 0) unknown->state.address = datagram.from;
  unknown->epoch = std::max(unknown->epoch, header.config_epoch);
  const bool asks = std::holds_alternative<wire::Hello>(opened.body) ||
                    std::holds_alternative<wire::HelloAck>(opened.body) ||
                    std::holds_alternative<raft::VoteRequest>(opened.body) ||
                    std::holds_alternative<raft::AppendRequest>(opened.body) ||
                    std::holds_alternative<raft::Heartbeat>(opened.body) ||
                    std::holds_alternative<wire::Piece>(opened.body);  // of an append
  return asks ? wire::DropReason::kNone : wire::DropReason::kNoMember;
}

// It asked as a member, with its log: else it is a LOST node that looks for the member that it is to come back as. What
// is not committed here may be gone back from, and then it is one.
void Peers::NotifyRemoved(const wire::Opened& opened, const Datagram& datagram, uint64_t now_ns) {
  const auto* const hello = std::get_if<wire::Hello>(&opened.body);
  if (hello == nullptr || wire::CopyIdIn(opened.header) == 0 || epoch_ != committed_epoch_) return;
  if (!incarnations_.MayAnswerHello(now_ns)) return;
  SendSealed(datagram.from, codec_.Seal(opened.header.from, wire::kRemovedTerm,
                                        wire::HelloAck{.nonce = hello->nonce, .traits = traits_, .started = {}}));
}

std::optional<Peers::Removal> Peers::RemovedBy(uint64_t now_ns) const {
  const bool news = removal_.epoch > committed_epoch_ && now_ns < removal_.heard_ns + PeerState::kLostTimeout_ns;
  return news ? std::optional(removal_) : std::nullopt;
}

void Peers::AskAgain() {
  for (const PeerState& peer : others_) incarnations_.AskAgain(peer.id);
}

void Peers::Greet(uint64_t now_ns) {
  // Everywhere where the peer may be. It answers at each, and the first answer counts.
  const auto greet = [&](const PeerState& peer) {
    const uint64_t nonce = incarnations_.NonceFor(peer.id, now_ns);
    if (nonce == 0) return;
    const auto ask_at = [&](const NetAddress& address) {
      SendSealed(address, codec_.Seal(peer.id, wire::CopyIdTerm(copies_.copy_id()),
                                      wire::Hello{.nonce = nonce, .traits = traits_, .started = started_}));
    };
    ask_at(peer.address);
    if (peer.answers_at.port != 0) ask_at(peer.answers_at);
    if (peer.seen_at.port != 0 && peer.seen_at != peer.answers_at) ask_at(peer.seen_at);
  };
  for (const PeerState& peer : others_) greet(peer);
  for (const UnknownPeer& unknown : unknown_peers_) greet(unknown.state);
}

}  // namespace hedgerow::node
