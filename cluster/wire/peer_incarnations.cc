// SPDX-License-Identifier: Apache-2.0
#include "cluster/wire/peer_incarnations.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "cluster/raft/check.h"

namespace hedgerow::wire {
namespace {

constexpr uint64_t kSecond_ns = 1'000'000'000;
constexpr uint64_t kToken = kSecond_ns;  // in what a bucket of one token a second gains in a nanosecond

}  // namespace

PeerIncarnations::PeerIncarnations(raft::NodeId self, const std::vector<raft::NodeId>& members,
                                   std::function<uint64_t()> draw)
    : draw_(std::move(draw)) {
  for (const raft::NodeId member : members) {
    HEDGEROW_CHECK(member.IsSet() && Find(member) == nullptr);
    if (member != self) peers_.push_back({.id = member});
  }
}

void PeerIncarnations::Add(raft::NodeId peer) {
  HEDGEROW_CHECK(peer.IsSet());
  if (Find(peer) == nullptr) peers_.push_back({.id = peer});
}

void PeerIncarnations::Remove(raft::NodeId peer) {
  std::erase_if(peers_, [peer](const Peer& known) { return known.id == peer; });
}

void PeerIncarnations::Forget(raft::NodeId id, uint64_t now_ns, uint64_t wait_ns) {
  Peer* const peer = Find(id);
  if (peer == nullptr) return;
  // As if it had been asked the floor before: AskSoon then comes to the same time.
  *peer = {.id = id,
           .remembered = peer->remembered,
           .starts = peer->starts,
           .ask_at_ns = now_ns + wait_ns,
           .asked_ns = now_ns + wait_ns - kAskFloor_ns,
           .hellos = peer->hellos};
}

PeerIncarnations::Peer* PeerIncarnations::Find(raft::NodeId id) {
  const auto found = std::find_if(peers_.begin(), peers_.end(), [&](const Peer& peer) { return peer.id == id; });
  return found != peers_.end() ? &*found : nullptr;
}

const PeerIncarnations::Peer* PeerIncarnations::Find(raft::NodeId id) const {
  return const_cast<PeerIncarnations*>(this)->Find(id);
}

DropReason PeerIncarnations::Admit(const Opened& opened, uint64_t now_ns, bool went_back) {
  const PeerHeader& header = opened.header;
  Peer* const peer = Find(header.from);
  if (peer == nullptr) return DropReason::kNoMember;
  if (std::holds_alternative<Hello>(opened.body)) return AdmitHello(*peer, header, now_ns);
  if (const auto* ack = std::get_if<HelloAck>(&opened.body)) return Learn(*peer, header, *ack, now_ns, went_back);
  if (header.from_incarnation != peer->incarnation) {
    AskSoon(*peer);
    return peer->incarnation == 0 ? DropReason::kIncarnationUnknown : DropReason::kOtherIncarnation;
  }
  switch (peer->window.Take(header.packet_number)) {
    case ReplayWindow::Verdict::kNew: return DropReason::kNone;
    case ReplayWindow::Verdict::kSeen: return DropReason::kReplayed;
    case ReplayWindow::Verdict::kTooOld: break;
  }
  return DropReason::kTooOld;
}

// It may be recorded, so it is no news of its sender, but a reason to ask.
DropReason PeerIncarnations::AdmitHello(Peer& peer, const PeerHeader& header, uint64_t now_ns) {
  if (header.from_incarnation != peer.incarnation) AskSoon(peer);
  return peer.hellos.Take(now_ns) ? DropReason::kNone : DropReason::kHelloLimit;
}

bool PeerIncarnations::MayAnswerHello(uint64_t now_ns) { return unknown_hellos_.Take(now_ns); }

uint64_t PeerIncarnations::HellosRefused(raft::NodeId id) const {
  if (!id.IsSet()) return unknown_hellos_.refused;
  const Peer* const peer = Find(id);
  return peer != nullptr ? peer->hellos.refused : 0;
}

PeerIncarnations::HelloBucket::HelloBucket() : tokens(kHelloBurst * kToken) {}

bool PeerIncarnations::HelloBucket::Take(uint64_t now_ns) {
  if (now_ns > refilled_ns) {
    const uint64_t gained = std::min(now_ns - refilled_ns, kSecond_ns) * kHellosPerSecond;
    tokens = std::min(tokens + gained, kHelloBurst * kToken);
    refilled_ns = now_ns;
  }
  if (tokens < kToken) {
    ++refused;
    return false;
  }
  tokens -= kToken;
  return true;
}

void PeerIncarnations::AskAgain(raft::NodeId id) {
  Peer* const peer = Find(id);
  if (peer != nullptr && !peer->asking) AskSoon(*peer);
}

bool PeerIncarnations::WentBack(const PeerHeader& header, const Started& started) const {
  const Peer* const peer = Find(header.from);
  const uint64_t copy_id = CopyIdIn(header);
  if (peer == nullptr || started.starts == 0 || copy_id == 0 || copy_id != peer->remembered) return false;
  const bool other_incarnation = peer->incarnation != 0 && header.from_incarnation != peer->incarnation;
  return started.starts < peer->starts || (other_incarnation && started.starts == peer->starts);
}

DropReason PeerIncarnations::Learn(Peer& peer, const PeerHeader& header, const HelloAck& ack, uint64_t now_ns,
                                   bool went_back) {
  if (peer.nonce == 0 || ack.nonce != peer.nonce || now_ns >= peer.nonce_until_ns) return DropReason::kNonce;
  if (header.term == kRemovedTerm) return DropReason::kConfigEpoch;
  // The nonce stays: what is asked again, with more time in between, is answered alike.
  const uint64_t copy_id = CopyIdIn(header);
  const bool other = peer.remembered != 0 && copy_id != 0 && copy_id != peer.remembered;
  if (other || went_back || header.term == kForeignLogTerm) return DropReason::kForeignLog;
  peer.copy_id = copy_id;
  if (ack.started.starts != 0) peer.starts = ack.started.starts;
  peer.nonce = 0;
  peer.asking = false;
  peer.wait_ns = kAskFloor_ns;
  if (header.from_incarnation != peer.incarnation) {
    peer.incarnation = header.from_incarnation;
    peer.window = ReplayWindow(header.packet_number);
  } else {
    // The incarnation that was known all along: what was seen of it stays seen, even if this answer was
    // overtaken.
    peer.window.Take(header.packet_number);
  }
  return DropReason::kNone;
}

void PeerIncarnations::AskSoon(Peer& peer) {
  const bool first = !peer.asking;
  const uint64_t soon_ns = peer.asked_ns + kAskFloor_ns;
  peer.ask_at_ns = first ? soon_ns : std::min(peer.ask_at_ns, soon_ns);
  peer.asking = true;
  peer.wait_ns = kAskFloor_ns;
}

uint64_t PeerIncarnations::NonceFor(raft::NodeId id, uint64_t now_ns) {
  Peer* const peer = Find(id);
  if (peer == nullptr || !peer->asking || now_ns < peer->ask_at_ns) return 0;
  if (peer->nonce == 0 || now_ns >= peer->nonce_until_ns) {
    do {
      peer->nonce = draw_();
    } while (peer->nonce == 0);
    peer->nonce_until_ns = now_ns + kNonceLifetime_ns;
  }
  peer->asked_ns = now_ns;
  peer->ask_at_ns = now_ns + peer->wait_ns;
  peer->wait_ns = std::min(2 * peer->wait_ns, kAskCap_ns);
  return peer->nonce;
}

uint64_t PeerIncarnations::next_ask_ns() const {
  uint64_t next_ns = UINT64_MAX;
  for (const Peer& peer : peers_) {
    if (peer.asking) next_ns = std::min(next_ns, peer.ask_at_ns);
  }
  return next_ns;
}

void PeerIncarnations::Remember(raft::NodeId id, uint64_t copy_id) {
  Peer* const peer = Find(id);
  if (peer == nullptr) return;
  if (peer->remembered != 0 && peer->remembered != copy_id) peer->starts = 0;
  peer->remembered = copy_id;
}

uint64_t PeerIncarnations::CopyOf(raft::NodeId id) const {
  const Peer* const peer = Find(id);
  return peer != nullptr ? peer->copy_id : 0;
}

uint64_t PeerIncarnations::IncarnationOf(raft::NodeId id) const {
  const Peer* const peer = Find(id);
  return peer != nullptr ? peer->incarnation : 0;
}

uint64_t PeerIncarnations::HighestOf(raft::NodeId id) const {
  const Peer* const peer = Find(id);
  return peer != nullptr ? peer->window.highest() : 0;
}

void PeerIncarnations::SeenUpTo(raft::NodeId id, uint64_t highest) {
  Peer* const peer = Find(id);
  if (peer != nullptr) peer->window = ReplayWindow(std::max(highest, peer->window.highest()));
}

}  // namespace hedgerow::wire
