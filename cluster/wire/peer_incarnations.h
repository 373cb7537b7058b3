// SPDX-License-Identifier: Apache-2.0
//
// Which incarnation each peer is known to be in, and which of its datagrams were seen. An incarnation is
// learned by asking only: a HELLO with a fresh nonce, which only the living can repeat. So what was recorded is
// worth nothing, neither after its sender nor after its receiver started anew. The node's transport asks Admit
// about every opened datagram, and NonceFor at each tick; all in the loop's thread. Not thread-safe. Times are
// of one monotonic clock.

#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cluster/raft/types.h"
#include "cluster/wire/peer.h"
#include "cluster/wire/replay_window.h"

namespace hedgerow::wire {

class PeerIncarnations {
 public:
  // HELLOs to one peer: the first at once and whenever it is seen to be in another incarnation; while it stays
  // silent, the wait doubles from the floor to the cap. A nonce is repeated until it is answered, for at most
  // its lifetime, so that round trips longer than the wait are no obstacle.
  static constexpr uint64_t kAskFloor_ns = 10'000'000;
  static constexpr uint64_t kAskCap_ns = 500'000'000;
  static constexpr uint64_t kNonceLifetime_ns = 2'000'000'000;
  // HELLOs answered, of each peer, and of all unknown ones together: never more than 100 within a second. A recorded
  // HELLO proves the key again and again, so a flood of one peer's leaves the others theirs.
  static constexpr uint64_t kHelloBurst = 50;
  static constexpr uint64_t kHellosPerSecond = 50;

  // `members` may contain `self`, which is left out. `draw` gives 64 random bits.
  PeerIncarnations(raft::NodeId self, const std::vector<raft::NodeId>& members, std::function<uint64_t()> draw);

  // Another peer, whose incarnation is not known yet; or one that is forgotten, with its incarnation. A peer
  // that is known already stays.
  void Add(raft::NodeId peer);
  void Remove(raft::NodeId peer);
  // Its incarnation is not known any more, and it is not asked before so long has passed, whatever it says
  // until then; what log it may have stays.
  void Forget(raft::NodeId peer, uint64_t now_ns, uint64_t wait_ns = kAskCap_ns);

  // Whether to believe a datagram that PeerCodec has opened (`opened.ok()`), which counts as seen from now on.
  // A HELLO is kNone if it is to be answered (with a HelloAck of its nonce); it changes nothing.
  // A HELLO_ACK is kNone if its nonce waited for an answer: from now on the sender's incarnation is known.
  // kForeignLog: it did, but one of the two has another log than the other one remembers, or (`went_back`) the
  // sender's is in an earlier state than is known of it; nothing is known then. kConfigEpoch: it did, and its
  // sender knows that this node is no member any more (kRemovedTerm). Anything else is kNone if it is of the
  // sender's known incarnation and new.
  DropReason Admit(const Opened& opened, uint64_t now_ns, bool went_back = false);

  // Whether a HELLO may be answered now that is none of a peer's.
  bool MayAnswerHello(uint64_t now_ns);
  // Of a peer, and of all unknown ones together (id not set): HELLOs that were not answered for their number.
  uint64_t HellosRefused(raft::NodeId peer) const;
  // Asks a peer whose incarnation is known once more: what it says of this node may be news.
  void AskAgain(raft::NodeId peer);

  // A HELLO or HELLO_ACK says that its sender has the log that is remembered, and that it has started on it
  // less often than it said before, or as often in another incarnation.
  bool WentBack(const PeerHeader& header, const Started& started) const;

  // The nonce of a HELLO that is to be sent to this peer now, or 0: its incarnation is known, or it was asked
  // just now.
  uint64_t NonceFor(raft::NodeId peer, uint64_t now_ns);

  // When NonceFor may have one to send, for whichever peer; UINT64_MAX: all incarnations are known.
  uint64_t next_ask_ns() const;

  // The only log that this peer may have from now on; 0: any.
  void Remember(raft::NodeId peer, uint64_t copy_id);
  // What it has said in its known incarnation; 0: nothing, as a program from before there were copy ids.
  uint64_t CopyOf(raft::NodeId peer) const;

  // 0: not known yet, or no member.
  uint64_t IncarnationOf(raft::NodeId peer) const;
  // The highest number seen in that incarnation.
  uint64_t HighestOf(raft::NodeId peer) const;
  // The node's kernel part has admitted numbers up to this one: they are old from now on.
  void SeenUpTo(raft::NodeId peer, uint64_t highest);

 private:
  struct HelloBucket {
    uint64_t tokens;  // in billionths
    uint64_t refilled_ns = 0;
    uint64_t refused = 0;

    HelloBucket();
    bool Take(uint64_t now_ns);
  };

  struct Peer {
    raft::NodeId id{};
    uint64_t incarnation = 0;
    uint64_t copy_id = 0;     // in that incarnation
    uint64_t remembered = 0;  // 0: any
    uint64_t starts = 0;      // on the log that is remembered, as it last said; 0: it has not
    ReplayWindow window{};
    bool asking = true;
    uint64_t nonce = 0;  // the last one sent, while it waits for its answer
    uint64_t nonce_until_ns = 0;
    uint64_t ask_at_ns = 0;
    uint64_t asked_ns = 0;
    uint64_t wait_ns = kAskFloor_ns;
    HelloBucket hellos{};
  };

  Peer* Find(raft::NodeId id);
  const Peer* Find(raft::NodeId id) const;
  DropReason AdmitHello(Peer& peer, const PeerHeader& header, uint64_t now_ns);
  static DropReason Learn(Peer& peer, const PeerHeader& header, const HelloAck& ack, uint64_t now_ns, bool went_back);
  static void AskSoon(Peer& peer);

  std::vector<Peer> peers_;
  std::function<uint64_t()> draw_;
  HelloBucket unknown_hellos_{};
};

}  // namespace hedgerow::wire
