// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/peers/peers.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <utility>
#include <variant>

#include "bpf/node/raft/node_abi.h"

namespace hedgerow::node {
namespace {

// So many appends in a row may go without an acknowledgement of their own: a full queue drops the last of a
// burst, and with that one's acknowledgement goes what it would have said of all before it.
constexpr uint32_t kUnsaidMax = 7;

// In ReplyTo::way[2], whose other bits are a client's (front_end.cc).
constexpr uint64_t kOfNode = uint64_t{1} << 63;

// What a kernel part can store by itself. The rest is for a process, whose acknowledgement takes longer.
bool IsForKernel(const raft::AppendRequest& append, raft::Term term) {
  size_t bytes = wire::kAppendFixed_bytes;
  for (const raft::Entry& entry : append.entries) {
    if (entry.term != term || entry.kind == raft::EntryKind::kConfiguration) return false;
    bytes += wire::kAppendEntryFixed_bytes + entry.payload.size_bytes();
  }
  static_assert(wire::kPeerDatagramMax_bytes <= HR_NODE_DATAGRAM_MAX_BYTES);
  return bytes <= wire::kPeerDatagramMax_bytes;
}

// Whether both would be the same bytes if they named no receiver. Appends of one leader and term that begin and
// end alike are alike.
bool SameForAll(const raft::Message& a, const raft::Message& b) {
  if (a.term != b.term || a.config_epoch != b.config_epoch || a.body.index() != b.body.index()) return false;
  if (const auto* append = std::get_if<raft::AppendRequest>(&a.body)) {
    const auto& other = std::get<raft::AppendRequest>(b.body);
    return append->prev_index == other.prev_index && append->commit == other.commit &&
           append->entries.size() == other.entries.size();
  }
  if (const auto* heartbeat = std::get_if<raft::Heartbeat>(&a.body)) {
    const auto& other = std::get<raft::Heartbeat>(b.body);
    return heartbeat->round == other.round && heartbeat->commit == other.commit;
  }
  if (const auto* vote = std::get_if<raft::VoteRequest>(&a.body)) {
    const auto& other = std::get<raft::VoteRequest>(b.body);
    return vote->asked_term == other.asked_term && vote->pre_vote == other.pre_vote;
  }
  return false;
}

// Its sender may be in another incarnation than the one that is known, and is asked for it.
bool MayBeNew(wire::DropReason reason, const wire::Opened& opened) {
  return reason == wire::DropReason::kIncarnationUnknown || reason == wire::DropReason::kOtherIncarnation ||
         (reason == wire::DropReason::kNone && std::holds_alternative<wire::Hello>(opened.body));
}

// A voter reports the fingerprint of its own state, and no other's.
bool MayForward(const kv::RequestKey& key, raft::NodeId from) {
  return !kv::PolicyOf(key).leaders_own && (key.kind != kv::CommandKind::kCheck || raft::NodeId(key.c) == from);
}

wire::PeerTraits WithKeys(wire::PeerTraits traits, const wire::KeyRing& keys) {
  traits.sealing_key = keys.seals().id;
  traits.other_key = keys.other() != nullptr ? keys.other()->id : 0;
  return traits;
}

}  // namespace

Promised PromisedBy(const raft::Raft& raft, raft::NodeId peer) {
  const size_t slot = raft.configuration().SlotOf(peer);
  if (raft.role() != raft::Role::kLeader || ((raft.peers() >> slot) & 1) == 0) return {};
  const raft::LogIndex match = raft.progress()[slot].match();
  return match == raft::LogIndex() ? Promised() : Promised{.term = raft.term(), .last = match};
}

kv::ReplyTo ReplyToNode(raft::NodeId node, uint64_t tag) {
  return {.client = node.value(), .request = tag, .way = {0, 0, kOfNode, 0, 0}};
}

std::optional<raft::NodeId> NodeOf(const kv::ReplyTo& reply_to) {
  if ((reply_to.way[2] & kOfNode) == 0) return std::nullopt;
  return raft::NodeId(reply_to.client);
}

Peers::Peers(DatagramSender& socket, const wire::PeerIdentity& identity, CopyRegister& copies,
             std::function<uint64_t()> draw)
    : socket_(socket),
      self_(identity.self),
      traits_(WithKeys(identity.traits, identity.keys)),
      copies_(copies),
      codec_(identity),
      incarnations_(identity.self, {}, std::move(draw)) {}

void Peers::SetKeys(const wire::KeyRing& keys) {
  codec_.SetKeys(keys);
  traits_ = WithKeys(std::move(traits_), keys);
  AskAgain();
}

PeerState* Peers::Find(raft::NodeId id) {
  const auto found =
      std::find_if(others_.begin(), others_.end(), [id](const PeerState& peer) { return peer.id == id; });
  return found == others_.end() ? nullptr : &*found;
}

void Peers::Take(const Datagram& datagram, uint64_t now_ns, PeerReceiver& receiver) {
  if (MayComeFrom(datagram.from, now_ns)) return TakeAdmitted(datagram, now_ns, receiver);
  ++counters_.drops[static_cast<size_t>(wire::DropReason::kSource)];
  if (listed_.has_value()) NoteExcluded(datagram, now_ns);
}

void Peers::TakeAdmitted(const Datagram& datagram, uint64_t now_ns, PeerReceiver& receiver) {
  wire::Opened opened = codec_.Open(datagram.bytes);
  wire::DropReason reason = opened.reason;
  bool went_back = false;  // by what its HELLO or HELLO_ACK itself reports
  if (opened.ok() && Find(opened.header.from) == nullptr) reason = TakeUnknownPeer(opened, datagram, now_ns);
  if (reason == wire::DropReason::kNone) {
    const auto* const ack = std::get_if<wire::HelloAck>(&opened.body);
    went_back = ack != nullptr && WentBack(opened.header, ack->started, receiver);
    reason = incarnations_.Admit(opened, now_ns, went_back);
  }
  // Of a member only: an unknown peer's word is no answer to a nonce of this node, and may be a recorded one.
  if (reason == wire::DropReason::kConfigEpoch && opened.header.term == wire::kRemovedTerm &&
      Find(opened.header.from) != nullptr)
    removal_ = {.by = opened.header.from, .epoch = opened.header.config_epoch, .heard_ns = now_ns};
  if (const auto* ack = std::get_if<wire::HelloAck>(&opened.body); ack != nullptr) {
    const bool answers = reason == wire::DropReason::kNone || reason == wire::DropReason::kForeignLog;
    if (answers) reason = TakeTraits(opened.header.from, ack->traits, reason, now_ns);
    if (reason == wire::DropReason::kNone) reason = Met(opened.header.from, now_ns);
    if (reason == wire::DropReason::kNone) ++addresses_version_;  // it answers where this came from
    if (reason == wire::DropReason::kForeignLog && opened.header.term == wire::kForeignLogTerm &&
        !IsOfAnotherCluster(ack->traits) && !went_back && !KnownToHaveGoneBack(opened.header))
      refused_by_ = opened.header.from;
  }
  PeerState* const peer = opened.ok() ? Find(opened.header.from) : nullptr;
  if (peer != nullptr && MayBeNew(reason, opened) && datagram.from != peer->address && peer->address.port != 0)
    peer->seen_at = datagram.from;
  if (reason != wire::DropReason::kNone) {
    ++counters_.drops[static_cast<size_t>(reason)];
    return;
  }
  if (const auto* hello = std::get_if<wire::Hello>(&opened.body)) {
    if (opened.header.term == wire::kLostTerm) {
      if (peer != nullptr) peer->lost_ns = now_ns;
      return;
    }
    // A LOST node asks under which id it comes back (it reports no log): what is not committed may be undone.
    if (opened.header.term == raft::Term() && epoch_ != committed_epoch_) {
      ++counters_.drops[static_cast<size_t>(wire::DropReason::kConfigEpoch)];
      return;
    }
    went_back = WentBack(opened.header, hello->started, receiver);
    if (went_back && peer != nullptr) peer->went_back_incarnation = opened.header.from_incarnation;
    SendSealed(datagram.from,
               codec_.Seal(opened.header.from, TermForAck(opened.header, hello->traits, went_back),
                           wire::HelloAck{.nonce = hello->nonce, .traits = traits_, .started = started_}));
    return;
  }
  if (peer != nullptr) Heard(*peer, datagram, std::holds_alternative<wire::HelloAck>(opened.body));
  if (std::holds_alternative<wire::Piece>(opened.body)) return TakePiece(opened, datagram, now_ns, receiver);
  TakeBody(opened, datagram.arrived_ns, receiver);
}

// `answered`: this is the answer to a fresh question, so the member is there now. Any other datagram may be a
// relayed copy, and only leads back to the configuration's address.
void Peers::Heard(PeerState& peer, const Datagram& datagram, bool answered) {
  peer.heard_ns = datagram.arrived_ns;
  if (datagram.from == peer.address) {
    if (peer.answers_at.port != 0) ++addresses_version_;
    peer.answers_at = peer.seen_at = NetAddress();
  } else if (answered && peer.address.port != 0) {
    peer.answers_at = datagram.from;
  }
}

// A whole message is judged like a datagram with these bytes that came with its last piece.
void Peers::TakePiece(wire::Opened& opened, const Datagram& datagram, uint64_t now_ns, PeerReceiver& receiver) {
  const wire::PeerPieces::Taken taken = pieces_.Take(opened.header, std::get<wire::Piece>(std::move(opened.body)));
  if (taken.reason != wire::DropReason::kNone) {
    ++counters_.drops[static_cast<size_t>(taken.reason)];
  } else if (!taken.message.empty()) {
    TakeAdmitted({.from = datagram.from, .bytes = taken.message, .arrived_ns = datagram.arrived_ns}, now_ns, receiver);
  }
}

void Peers::TakeBody(wire::Opened& opened, uint64_t arrived_ns, PeerReceiver& receiver) {
  if (const auto* forward = std::get_if<wire::Forward>(&opened.body)) {
    TakeForward(opened.header, *forward, arrived_ns, receiver);
  } else if (auto* answer = std::get_if<wire::ForwardAnswer>(&opened.body)) {
    kv::Answer result;
    result.kind =
        answer->kind == wire::ForwardAnswer::Kind::kResult ? kv::Answer::Kind::kResult : kv::Answer::Kind::kNotLeader;
    result.result = std::move(answer->result);
    receiver.Receive(opened.header.from, answer->tag, result);
  } else if (const auto* resign = std::get_if<wire::Resign>(&opened.body)) {
    TakeResign(opened.header, *resign, receiver);
  } else {
    TakeMessage(opened, arrived_ns, receiver);
  }
}

void Peers::TakeMessage(wire::Opened& opened, uint64_t arrived_ns, PeerReceiver& receiver) {
  std::optional<raft::Message> message = wire::TakeMessage(self_, opened);
  if (!message.has_value()) return;
  const wire::PeerHeader& header = opened.header;
  if (Hear(header.from, header.from_incarnation, header.term, arrived_ns) == wire::DropReason::kNone)
    receiver.Receive(arrived_ns, std::move(*message));
}

void Peers::TakeForward(const wire::PeerHeader& header, const wire::Forward& forward, uint64_t arrived_ns,
                        PeerReceiver& receiver) {
  std::optional<kv::Command> command = kv::Decode(forward.command);
  if (!command.has_value() || !MayForward(command->key, header.from)) {
    ++counters_.bad_commands;
    return;
  }
  kv::Request request;
  request.reply_to = ReplyToNode(header.from, forward.tag);
  request.command = std::move(*command);
  request.timeout_ns = forward.timeout_ns;
  request.age_ns = forward.age_ns;
  request.hops = forward.hops;
  receiver.Receive(arrived_ns, std::move(request));
}

std::optional<raft::Message> Peers::Decode(std::string_view datagram) const {
  wire::Opened opened = codec_.OpenProven(datagram);
  return opened.ok() ? wire::TakeMessage(self_, opened) : std::nullopt;
}

// A node that is not named does not stand at once; the others, or its own timeout, will find a leader.
void Peers::TakeResign(const wire::PeerHeader& header, const wire::Resign& resign, PeerReceiver& receiver) {
  if (resign.leader != header.from || resign.incarnation != header.from_incarnation) return;
  if (resign.stalled) return receiver.Receive(raft::LeaderStalled{.leader = resign.leader, .term = header.term});
  const auto place = std::find(resign.successors.begin(), resign.successors.end(), self_);
  if (place == resign.successors.end()) return;
  receiver.Receive(raft::LeaderResigns{
      .leader = resign.leader, .term = header.term, .rank = static_cast<uint32_t>(place - resign.successors.begin())});
}

// An unknown peer, or a member that has left, has a bit of its own beyond all masks.
uint32_t Peers::SlotBit(raft::NodeId id) {
  const PeerState* const peer = Find(id);
  return 1u << (peer == nullptr ? HR_RAFT_MAX_MEMBERS : peer->slot);
}

// A kernel part that stores both says so once, with the later one's acknowledgement.
void Peers::MarkFollowed() {
  struct Next {
    raft::LogIndex begins{};  // where the next append for the kernel part begins
    uint32_t unsaid = 0;      // appends in a row, from it on, that have no acknowledgement of their own
  };
  std::array<Next, HR_RAFT_MAX_MEMBERS> nexts{};
  for (auto pending = pending_.rbegin(); pending != pending_.rend(); ++pending) {
    const auto* append = std::get_if<raft::AppendRequest>(&pending->message.body);
    if (append == nullptr || append->entries.empty()) continue;
    const auto slot = static_cast<size_t>(std::countr_zero(SlotBit(pending->message.to)));
    if (slot >= nexts.size()) continue;  // it has left meanwhile
    Next& next = nexts[slot];
    pending->followed = next.begins == append->prev_index + append->entries.size() && next.unsaid < kUnsaidMax;
    next.unsaid = pending->followed ? next.unsaid + 1 : 0;
    next.begins = IsForKernel(*append, pending->message.term) ? append->prev_index : raft::LogIndex();
  }
}

// The kernel copies a datagram to addresses of the configuration alone.
uint32_t Peers::CopyReaches() const {
  uint32_t reaches = broadcast_reachable_;
  for (const PeerState& peer : others_) {
    if (peer.answers_at.port != 0) reaches &= ~(1u << peer.slot);
  }
  return reaches;
}

// The peers that get the same message as pending_[first], as a mask; their messages are taken out of the queue
// (their `to` is unset). A message is never sent ahead of an earlier one to the same peer.
uint32_t Peers::TakeGroup(size_t first) {
  const uint32_t own = SlotBit(pending_[first].message.to);
  const uint32_t reaches = CopyReaches();
  uint32_t group = own;
  uint32_t earlier = own;  // peers with a message between the first and this one
  for (size_t i = first + 1; i < pending_.size(); ++i) {
    raft::Message& message = pending_[i].message;
    const uint32_t peer = message.to.IsSet() ? SlotBit(message.to) : 0;
    if (peer == 0) continue;
    if ((peer & reaches & ~earlier) != 0 && pending_[i].followed == pending_[first].followed &&
        SameForAll(pending_[first].message, message)) {
      group |= peer;
      message.to = raft::NodeId();
    }
    earlier |= peer;
  }
  return group;
}

void Peers::Flush() {
  MarkFollowed();
  for (size_t i = 0; i < pending_.size(); ++i) {
    raft::Message& message = pending_[i].message;
    const bool followed = pending_[i].followed;
    if (!message.to.IsSet()) continue;
    const uint32_t own = SlotBit(message.to);
    const uint32_t group = (own & CopyReaches()) != 0 ? TakeGroup(i) : own;
    if (group == own) {
      SendSealed(message.to, codec_.Seal(message, followed));
      continue;
    }
    const PeerState* const peer = Find(message.to);
    message.to = raft::NodeId();
    std::string bytes = codec_.Seal(message, followed);
    if (bytes.empty()) {
      ++counters_.too_large;
    } else {
      SendDatagrams(peer->address, std::move(bytes), broadcast_mark_ | group);
    }
  }
  pending_.clear();
}

void Peers::Send(const kv::Forward& forward) {
  SendTo(forward.to, wire::Forward{.tag = forward.tag,
                                   .age_ns = forward.request.age_ns,
                                   .timeout_ns = forward.request.timeout_ns,
                                   .hops = static_cast<uint8_t>(forward.request.hops),
                                   .command = kv::Encode(forward.request.command)});
}

void Peers::Answer(raft::NodeId node, const kv::Answer& answer) {
  SendTo(node,
         wire::ForwardAnswer{.tag = answer.reply_to.request,
                             .kind = answer.kind == kv::Answer::Kind::kResult ? wire::ForwardAnswer::Kind::kResult
                                                                              : wire::ForwardAnswer::Kind::kNotLeader,
                             .result = answer.result});
}

void Peers::SendTo(raft::NodeId to, raft::Term term, const wire::PeerBody& body) {
  SendSealed(to, codec_.Seal(to, term, body));
}

void Peers::SendSealed(raft::NodeId to, std::string bytes) {
  const PeerState* peer = Find(to);
  if (const UnknownPeer* const unknown = FindUnknownPeer(to); peer == nullptr && unknown != nullptr) {
    peer = &unknown->state;
  }
  SendSealed(peer == nullptr ? NetAddress() : peer->reached_at(), std::move(bytes));
}

void Peers::SendSealed(const NetAddress& to, std::string bytes) {
  if (bytes.empty()) {
    ++counters_.too_large;
  } else if (to.port == 0) {
    ++counters_.nowhere;
  } else {
    SendDatagrams(to, std::move(bytes));
  }
}

// IP never makes fragments of them. Networks drop fragments, and only the first fragment has a UDP header, by
// which the kernel part addresses copies.
void Peers::SendDatagrams(const NetAddress& to, std::string sealed, uint32_t mark) {
  if (sealed.size() <= wire::kPeerDatagramMax_bytes) {
    counters_.broadcasts += mark != 0;
    socket_.Send(to, std::move(sealed), mark);
    return;
  }
  std::vector<std::string> pieces = codec_.Split(sealed);
  ++counters_.split;
  counters_.pieces += pieces.size();
  counters_.broadcasts += mark != 0 ? pieces.size() : 0;
  for (std::string& piece : pieces) socket_.Send(to, std::move(piece), mark);
}

}  // namespace hedgerow::node
