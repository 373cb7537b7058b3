// SPDX-License-Identifier: Apache-2.0
#include "cluster/wire/peer_lives.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "cluster/raft/check.h"

namespace hedgerow::wire {
namespace {

constexpr uint64_t kSecond_ns = 1'000'000'000;
constexpr uint64_t kToken = kSecond_ns;  // in what a bucket of one token a second gains in a nanosecond

}  // namespace

PeerLives::PeerLives(raft::NodeId self, const std::vector<raft::NodeId>& members,
                     std::function<uint64_t()> draw)
    : draw_(std::move(draw)) {
  for (const raft::NodeId member : members) {
    HEDGEROW_CHECK(member.IsSet() && Find(member) == nullptr);
    if (member != self) peers_.push_back({.id = member});
  }
}

void PeerLives::Add(raft::NodeId peer) {
  HEDGEROW_CHECK(peer.IsSet());
  if (Find(peer) == nullptr) peers_.push_back({.id = peer});
}

void PeerLives::Remove(raft::NodeId peer) {
  std::erase_if(peers_, [peer](const Peer& known) { return known.id == peer; });
}

void PeerLives::Forget(raft::NodeId id, uint64_t now_ns, uint64_t wait_ns) {
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

PeerLives::Peer* PeerLives::Find(raft::NodeId id) {
  const auto found =
      std::find_if(peers_.begin(), peers_.end(), [&](const Peer& peer) { return peer.id == id; });
  return found != peers_.end() ? &*found : nullptr;
}

const PeerLives::Peer* PeerLives::Find(raft::NodeId id) const { return const_cast<PeerLives*>(this)->Find(id); }

DropReason PeerLives::Admit(const Opened& opened, uint64_t now_ns, bool went_back) {
  const PeerHeader& header = opened.header;
  Peer* const peer = Find(header.from);
  if (peer == nullptr) return DropReason::kNoMember;
  if (std::holds_alternative<Hello>(opened.body)) return AdmitHello(*peer, header, now_ns);
  if (const auto* ack = std::get_if<HelloAck>(&opened.body)) return Learn(*peer, header, *ack, now_ns, went_back);
  if (header.from_life != peer->life) {
    AskSoon(*peer);
    return peer->life == 0 ? DropReason::kLifeUnknown : DropReason::kOtherLife;
  }
  switch (peer->window.Take(header.packet_number)) {
    case ReplayWindow::Verdict::kNew:
      return DropReason::kNone;
    case ReplayWindow::Verdict::kSeen:
      return DropReason::kReplayed;
    case ReplayWindow::Verdict::kTooOld:
      break;
  }
  return DropReason::kTooOld;
}

// It may be recorded, so it is no news of its sender, but a reason to ask.
DropReason PeerLives::AdmitHello(Peer& peer, const PeerHeader& header, uint64_t now_ns) {
  if (header.from_life != peer.life) AskSoon(peer);
  return peer.hellos.Take(now_ns) ? DropReason::kNone : DropReason::kHelloLimit;
}

bool PeerLives::MayAnswerHello(uint64_t now_ns) { return unknown_hellos_.Take(now_ns); }

uint64_t PeerLives::HellosRefused(raft::NodeId id) const {
  if (!id.IsSet()) return unknown_hellos_.refused;
  const Peer* const peer = Find(id);
  return peer != nullptr ? peer->hellos.refused : 0;
}

PeerLives::HelloBucket::HelloBucket() : tokens(kHelloBurst * kToken) {}

bool PeerLives::HelloBucket::Take(uint64_t now_ns) {
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

void PeerLives::AskAgain(raft::NodeId id) {
  Peer* const peer = Find(id);
  if (peer != nullptr && !peer->asking) AskSoon(*peer);
}

bool PeerLives::WentBack(const PeerHeader& header, const Started& started) const {
  const Peer* const peer = Find(header.from);
  const uint64_t log_id = LogIdIn(header);
  if (peer == nullptr || started.starts == 0 || log_id == 0 || log_id != peer->remembered) return false;
  const bool other_life = peer->life != 0 && header.from_life != peer->life;
  return started.starts < peer->starts || (other_life && started.starts == peer->starts);
}

DropReason PeerLives::Learn(Peer& peer, const PeerHeader& header, const HelloAck& ack, uint64_t now_ns,
                            bool went_back) {
  if (peer.nonce == 0 || ack.nonce != peer.nonce || now_ns >= peer.nonce_until_ns) return DropReason::kNonce;
  if (header.term == kRemovedTerm) return DropReason::kConfigEpoch;
  // The nonce stays: what is asked again, with more time in between, is answered alike.
  const uint64_t log_id = LogIdIn(header);
  const bool other = peer.remembered != 0 && log_id != 0 && log_id != peer.remembered;
  if (other || went_back || header.term == kOtherLogTerm) return DropReason::kOtherLog;
  peer.log_id = log_id;
  if (ack.started.starts != 0) peer.starts = ack.started.starts;
  peer.nonce = 0;
  peer.asking = false;
  peer.wait_ns = kAskFloor_ns;
  if (header.from_life != peer.life) {
    peer.life = header.from_life;
    peer.window = ReplayWindow(header.packet_number);
  } else {
    // The life that was known all along: what was seen of it stays seen, even if this answer was overtaken.
    peer.window.Take(header.packet_number);
  }
  return DropReason::kNone;
}

void PeerLives::AskSoon(Peer& peer) {
  const bool first = !peer.asking;
  const uint64_t soon_ns = peer.asked_ns + kAskFloor_ns;
  peer.ask_at_ns = first ? soon_ns : std::min(peer.ask_at_ns, soon_ns);
  peer.asking = true;
  peer.wait_ns = kAskFloor_ns;
}

uint64_t PeerLives::NonceFor(raft::NodeId id, uint64_t now_ns) {
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

uint64_t PeerLives::next_ask_ns() const {
  uint64_t next_ns = UINT64_MAX;
  for (const Peer& peer : peers_) {
    if (peer.asking) next_ns = std::min(next_ns, peer.ask_at_ns);
  }
  return next_ns;
}

void PeerLives::Remember(raft::NodeId id, uint64_t log_id) {
  Peer* const peer = Find(id);
  if (peer == nullptr) return;
  if (peer->remembered != 0 && peer->remembered != log_id) peer->starts = 0;
  peer->remembered = log_id;
}

uint64_t PeerLives::LogOf(raft::NodeId id) const {
  const Peer* const peer = Find(id);
  return peer != nullptr ? peer->log_id : 0;
}

uint64_t PeerLives::LifeOf(raft::NodeId id) const {
  const Peer* const peer = Find(id);
  return peer != nullptr ? peer->life : 0;
}

uint64_t PeerLives::HighestOf(raft::NodeId id) const {
  const Peer* const peer = Find(id);
  return peer != nullptr ? peer->window.highest() : 0;
}

void PeerLives::SeenUpTo(raft::NodeId id, uint64_t highest) {
  Peer* const peer = Find(id);
  if (peer != nullptr) peer->window = ReplayWindow(std::max(highest, peer->window.highest()));
}

}  // namespace hedgerow::wire
