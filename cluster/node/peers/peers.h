// SPDX-License-Identifier: Apache-2.0
//
// The other nodes, over UDP (docs/WIRE_FORMAT.md): seals what the replica sends them, opens what they send,
// asks them for their incarnations, and counts what is not believed. A peer whose incarnation is not known yet
// gets what is sent to it all the same: whether it can believe this node is its own business. On the loop's
// thread.
//
// A member is reached at the address of the configuration, or where it answers instead. A HELLO is answered to
// where it came from, and its sender is asked there as well; only the living member can answer that question,
// so what answers it is a path to the member. A member that starts at another address is thus reached there
// before the configuration says so, also where the others are no majority without it.

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "cluster/kv/replica.h"
#include "cluster/node/net/net_address.h"
#include "cluster/node/peers/copy_register.h"
#include "cluster/node/net/udp_socket.h"
#include "cluster/raft/term_limit.h"
#include "cluster/raft/types.h"
#include "cluster/wire/peer.h"
#include "cluster/wire/peer_incarnations.h"
#include "cluster/wire/peer_pieces.h"
#include "net/networks.h"

namespace hedgerow::node {

struct PeerState {
  raft::NodeId id{};
  NetAddress address{};  // by the configuration; port 0: nowhere
  // Where the member answers, if that is not `address`: it was started at another one, and is not moved yet.
  NetAddress answers_at{};  // port 0: it answers at `address`, or nowhere
  // Where a datagram with the right tag came from that is not believed yet, if not from `address`. It may be a
  // recording, so all that happens is that the member is asked there, too. Port 0: none came.
  NetAddress seen_at{};
  // Where a datagram with the right tag came from that `peer_clients` shuts out, and when (0: none did). It may be a
  // recording.
  NetAddress excluded_at{};
  uint64_t excluded_ns = 0;
  uint64_t heard_ns = 0;  // when the last believed datagram came; 0: never
  uint32_t slot = raft::Configuration::kNoSlot;
  uint64_t lost_ns = 0;  // when it last said that it has lost what it promised; 0: never
  // When it last proved that it cannot be in one cluster with this node, and why, as what is said of it ("has
  // `durability: memory`, and ..."); 0: never.
  uint64_t incompatible_ns = 0;
  std::string incompatible{};
  // What it can do, in the incarnation that is known, and which build it is.
  uint32_t features = 0;
  std::string build{};
  // Which cluster keys it has, as it last told, and when; 0: it has not.
  uint32_t sealing_key = 0;
  uint32_t other_key = 0;
  uint64_t told_keys_ns = 0;
  // In which its folder holds less than it has promised this node or told it; 0: in none.
  uint64_t went_back_incarnation = 0;

  bool IsIncompatible(uint64_t now_ns) const {
    return incompatible_ns > heard_ns && now_ns < incompatible_ns + kLostTimeout_ns;
  }
  // Since it was last heard, by this process or the kernel part. A recording that is sent again shuts out no member
  // that is heard.
  bool IsExcluded(uint64_t last_heard_ns, uint64_t now_ns) const {
    return excluded_ns > last_heard_ns + kHeardTimeout_ns && now_ns < excluded_ns + kLostTimeout_ns;
  }
  const NetAddress& reached_at() const { return answers_at.port != 0 ? answers_at : address; }
  bool ReportsLost(uint64_t now_ns) const { return lost_ns > heard_ns && now_ns < lost_ns + kLostTimeout_ns; }
  static constexpr uint64_t kHeardTimeout_ns = 1'000'000'000;
  static constexpr uint64_t kLostTimeout_ns = 10'000'000'000;
};

// What a member has promised this node, so that its log must hold it in whichever incarnation. Term not set:
// nothing.
struct Promised {
  raft::Term term{};
  raft::LogIndex last{};
};

// What `peer` has promised the leader that this node is.
Promised PromisedBy(const raft::Raft& raft, raft::NodeId peer);

// A forwarded request is answered to the node that forwarded it. In this folder only, a ReplyTo means this or a client.
kv::ReplyTo ReplyToNode(raft::NodeId node, uint64_t tag);
std::optional<raft::NodeId> NodeOf(const kv::ReplyTo& reply_to);

// Receives the messages of other nodes: the replica, or the kernel bridge. Not settled here.
class PeerReceiver {
 public:
  virtual ~PeerReceiver() = default;
  virtual void Receive(uint64_t arrived_ns, raft::Message message) = 0;
  virtual void Receive(uint64_t arrived_ns, kv::Request request) = 0;
  virtual void Receive(raft::NodeId from, uint64_t tag, const kv::Answer& answer) = 0;
  virtual void Receive(const raft::LeaderResigns& hint) = 0;
  virtual void Receive(const raft::LeaderStalled& hint) = 0;
  virtual Promised PromisedBy(raft::NodeId peer) const = 0;
};

class Peers {
 public:
  struct Counters {
    std::array<uint64_t, wire::kDropReasons> drops{};  // by DropReason
    uint64_t too_large = 0;                            // could not be sealed
    uint64_t nowhere = 0;                              // to a node whose address is not known, or no longer
    uint64_t refused = 0;       // datagrams of former members, or of nodes that never were members
    uint64_t bad_commands = 0;  // a forwarded command that is none, or that its sender does not forward
    uint64_t broadcasts = 0;    // datagrams that the kernel copies to several peers
    uint64_t split = 0;         // messages that left in pieces
    uint64_t pieces = 0;        // those pieces
  };

  // No peer is known yet. `copies` says which copy of the log this node has, and records the copies of the
  // others.
  Peers(DatagramSender& socket, const wire::PeerIdentity& identity, CopyRegister& copies,
        std::function<uint64_t()> draw);

  // Sets the other members, by this node's configuration. Nothing is sent to other nodes but answers to unknown
  // peers. The configuration of an unknown peer is newer than what is committed here (`committed_epoch`), so it
  // may be a member that this node has not heard of: its requests are heard. The kernel copies nothing before
  // SetBroadcast has named the receivers. Once this node's configuration is committed, the logs of nodes that
  // are no members by it are forgotten.
  void SetMembers(std::vector<PeerState> others, uint32_t epoch, uint32_t committed_epoch, uint64_t now_ns);

  // Where datagrams may come from: `members`, the addresses of the configuration file, beside those of SetMembers and
  // where members have answered; and `listed`. Without a list a few a second of any other source are opened: a member
  // that was started at another address makes itself known by them, and what has the wrong tag goes no further.
  void SetSources(std::vector<NetAddress> members, std::optional<net::Networks> listed);
  // The addresses of members, proven ones of unknown peers included, for the port of snapshots. They change with the
  // version.
  std::vector<NetAddress> MemberAddresses() const;
  uint64_t addresses_version() const { return addresses_version_; }
  // What this incarnation of a node says of the log in this term is heard: of the core's messages among its datagrams,
  // and of what it offers at the port of snapshots. Else it is counted under the reason.
  wire::DropReason Hear(raft::NodeId from, uint64_t incarnation, raft::Term term, uint64_t now_ns);

  void Take(const Datagram& datagram, uint64_t now_ns, PeerReceiver& receiver);
  // The core's message in a datagram that the kernel has admitted; nothing if it is none.
  std::optional<raft::Message> Decode(std::string_view datagram) const;

  // Leaves with the next Flush.
  void Send(raft::Message message) { pending_.push_back({.message = std::move(message)}); }
  // Seals what was sent since the last one. What is the same for several peers leaves once, if the kernel
  // copies it.
  void Flush();
  void Send(const kv::Forward& forward);
  void Answer(raft::NodeId node, const kv::Answer& answer);
  void Greet(uint64_t now_ns);
  uint64_t next_greeting_ns() const { return incarnations_.next_ask_ns(); }

  // The kernel copies a datagram whose mark is `mark` and a mask of members, by their slots, to all of
  // those; `reachable` are the ones whose link address it knows. Mask 0, as at the start: it copies nothing.
  void SetBroadcast(uint32_t mark, uint32_t reachable) {
    broadcast_mark_ = mark;
    broadcast_reachable_ = reachable;
  }

  // The member that has recorded another log of this node, whose folder was emptied then, or a later state of it: it
  // must end, and is LOST. One member's word is enough, since no other may know (docs/SAFETY.md).
  raft::NodeId refused_by() const { return refused_by_; }
  // Why a member is not heard: its copy cannot be recorded.
  const absl::Status& recorded() const { return recorded_; }

  // A member has answered lately that this node is none, by a configuration that is not committed here.
  struct Removal {
    raft::NodeId by{};
    uint32_t epoch = 0;  // of that configuration
    uint64_t heard_ns = 0;
  };
  std::optional<Removal> RemovedBy(uint64_t now_ns) const;
  // Whether they still take it for a member, once more.
  void AskAgain();
  // Of the replicated log; from then on members with another one are not believed.
  void SetLogUuid(uint64_t log_uuid) { traits_.log_uuid = log_uuid; }
  // What this node and all others can do, as bits (kv/features.h); a member whose incarnation is not known can do
  // nothing.
  uint32_t AgreedFeatures() const;

  void SetTerm(raft::Term term) { term_ = term; }  // what the transport's own datagrams say
  // Messages of a later term than this allows are dropped.
  void SetTermLimit(const raft::TermLimit& limit) { term_limit_ = limit; }
  // From the next datagram on; the members are asked for theirs.
  void SetKeys(const wire::KeyRing& keys);
  // Once everything is there that former incarnations have promised; until then this node says nothing of it.
  void SetStarted(raft::Term term, raft::LogIndex last) {
    started_ = {.starts = copies_.starts(), .term = term, .last = last};
  }
  const std::vector<PeerState>& states() const { return others_; }
  uint64_t IncarnationOf(raft::NodeId peer) const { return incarnations_.IncarnationOf(peer); }
  uint64_t HellosRefused(raft::NodeId peer) const { return incarnations_.HellosRefused(peer); }
  uint64_t HighestNumberOf(raft::NodeId peer) const { return incarnations_.HighestOf(peer); }
  // The kernel has seen numbers up to this one, and will see no more.
  void NumbersSeen(raft::NodeId peer, uint64_t highest) { incarnations_.SeenUpTo(peer, highest); }
  void DrawNumbersFrom(std::function<uint64_t()> draw) { codec_.DrawFrom(std::move(draw)); }
  const Counters& counters() const { return counters_; }
  const wire::PeerPieces::Counters& received_pieces() const { return pieces_.counters(); }

 private:
  struct Pending {
    raft::Message message;
    bool followed = false;  // an append: the next one to the same peer leaves with it and begins where it ends
  };

  struct UnknownPeer {
    PeerState state;
    uint32_t epoch = 0;  // the latest it has said
  };
  // All members of a configuration that this node has not heard of: whichever of them leads must reach it.
  static constexpr size_t kUnknownPeersMax = HR_RAFT_MAX_MEMBERS;

  // Datagrams of unlisted sources that are opened in a second.
  static constexpr uint32_t kIntroductionsPerSecond = 1000;
  // Those that a list shuts out, to say which member sends them.
  static constexpr uint32_t kExcludedOpenedPerSecond = 10;

  bool MayComeFrom(const NetAddress& source, uint64_t now_ns);
  bool MayOpenMore(uint32_t per_second, uint64_t now_ns);
  void NoteExcluded(const Datagram& datagram, uint64_t now_ns);
  void TakeAdmitted(const Datagram& datagram, uint64_t now_ns, PeerReceiver& receiver);
  PeerState* Find(raft::NodeId id);
  uint32_t CopyReaches() const;
  void Heard(PeerState& peer, const Datagram& datagram, bool answered);
  UnknownPeer* FindUnknownPeer(raft::NodeId id);
  wire::DropReason TakeUnknownPeer(const wire::Opened& opened, const Datagram& datagram, uint64_t now_ns);
  void NotifyRemoved(const wire::Opened& opened, const Datagram& datagram, uint64_t now_ns);
  void TakePiece(wire::Opened& opened, const Datagram& datagram, uint64_t now_ns, PeerReceiver& receiver);
  void Forget(raft::NodeId id);
  void TakeBody(wire::Opened& opened, uint64_t arrived_ns, PeerReceiver& receiver);
  void TakeMessage(wire::Opened& opened, uint64_t arrived_ns, PeerReceiver& receiver);
  uint32_t SlotBit(raft::NodeId id);
  void MarkFollowed();
  uint32_t TakeGroup(size_t first);
  void Remember(raft::NodeId id, uint64_t now_ns);
  wire::DropReason Met(raft::NodeId id, uint64_t now_ns);
  wire::DropReason Compare(const wire::PeerTraits& its, std::string& why) const;
  bool IsOfAnotherCluster(const wire::PeerTraits& its) const;
  wire::DropReason TakeTraits(raft::NodeId id, const wire::PeerTraits& its, wire::DropReason admitted, uint64_t now_ns);
  bool WentBack(const wire::PeerHeader& header, const wire::Started& started, const PeerReceiver& receiver) const;
  bool KnownToHaveGoneBack(const wire::PeerHeader& header);
  raft::Term TermForAck(const wire::PeerHeader& hello, const wire::PeerTraits& its, bool went_back) const;
  void SendTo(raft::NodeId to, const wire::PeerBody& body) { SendTo(to, term_, body); }
  void SendTo(raft::NodeId to, raft::Term term, const wire::PeerBody& body);
  void SendSealed(raft::NodeId to, std::string bytes);
  void SendDatagrams(const NetAddress& to, std::string sealed, uint32_t mark = 0);
  void SendSealed(const NetAddress& to, std::string bytes);
  void TakeForward(const wire::PeerHeader& header, const wire::Forward& forward, uint64_t arrived_ns,
                   PeerReceiver& receiver);
  void TakeResign(const wire::PeerHeader& header, const wire::Resign& resign, PeerReceiver& receiver);

  DatagramSender& socket_;
  raft::NodeId self_;
  wire::PeerTraits traits_;
  CopyRegister& copies_;
  absl::Status recorded_;
  raft::NodeId refused_by_;
  Removal removal_;
  std::vector<PeerState> others_;
  std::vector<UnknownPeer> unknown_peers_;
  std::vector<NetAddress> members_in_file_;
  std::optional<net::Networks> listed_;
  uint64_t addresses_version_ = 0;
  uint64_t introductions_until_ns_ = 0;
  uint32_t introductions_left_ = 0;
  uint32_t epoch_ = 0;
  uint32_t committed_epoch_ = 0;
  wire::PeerCodec codec_;
  wire::PeerIncarnations incarnations_;
  wire::PeerPieces pieces_;
  raft::Term term_;
  raft::TermLimit term_limit_;
  wire::Started started_;
  std::vector<Pending> pending_;
  uint32_t broadcast_mark_ = 0;
  uint32_t broadcast_reachable_ = 0;
  Counters counters_;
};

}  // namespace hedgerow::node
