// SPDX-License-Identifier: Apache-2.0
//
// Whether the nodes that this one watches are to be taken for dead: a follower watches its leader, a leader a majority
// of its cluster. Everything that is judged by time asks here: when a follower stands and votes for another, when a
// leader checks its majority, and how long the kernel part answers for a process that does not turn. For availability
// only (R4). A pure function of what it is told; the core feeds it, and no clock is read.
//
// The timeout has two parts (docs/adr/0031). The network's is a number of round trips (Raft section 5.6). The hosts'
// is twice the longest recent pause that ended with a sign of life: a busy host lets a process wait for its
// processor, and a hypervisor the whole machine. Such pauses come seconds apart, so a mean of round trips has forgotten
// one when the next comes.

#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "bpf/node/raft/decisions_abi.h"
#include "cluster/raft/options.h"
#include "cluster/raft/round_trips.h"
#include "cluster/raft/types.h"

namespace hedgerow::raft {

class FailureDetector {
 public:
  // A pause fades in a straight line, and is forgotten after this.
  static constexpr uint64_t kFade_ns = 60'000'000'000;
  // How exactly pauses are measured.
  static constexpr uint64_t kPoll_ns = 1'000'000;

  // What this node watches in a term: the leader, or, if it leads itself, a majority. Without a leader:
  // nothing.
  struct Watched {
    Term term;
    NodeId leader;
    bool leads = false;
    bool operator==(const Watched&) const = default;
  };

  explicit FailureDetector(const Options& options) : options_(options) {}

  // The voters, and this node's own slot.
  void SetVoters(size_t self, uint32_t voters, uint32_t next_voters);
  // The slot is another node's from now on.
  void ForgetRoundTrips(size_t member);
  void AddRoundTrip(size_t member, uint64_t duration_ns);

  // A pause that no sign of life of the node before has ended teaches nothing.
  void Watch(uint64_t now_ns, const Watched& watched);
  void LeaderHeard(uint64_t now_ns, uint64_t heard_ns);
  // Its heartbeats say how long its network takes.
  void SetLeaderTimeout(uint64_t timeout_ns);
  // Its host says that its loop waits for a processor (docs/adr/0024): it counts as heard, but the pause goes on.
  // False: the pause is too long for that.
  bool LeaderStalled(uint64_t now_ns);
  void ElectionFailed() { ++failed_elections_; }

  // A leader watches this member from now on.
  void WatchPeer(size_t member, uint64_t now_ns);
  // Progress, not echoes: a kernel part answers for a while after its process has died or stands still, always with the
  // same loop_seq.
  void PeerHeard(size_t member, uint64_t heard_ns, uint64_t loop_seq);
  // It would vote for this leader, says its process or its kernel part alone: no progress, and no pause ends.
  void PeerConfirmed(size_t member, uint64_t now_ns);

  // To be called at next_poll_ns() at the latest while nothing else happens: only a pause that this process has seen
  // counts, because its kernel part may have heard the leader meanwhile. A leader that was not called was itself
  // silent.
  void Poll(uint64_t now_ns);
  uint64_t next_poll_ns() const;

  // The part of the timeout that it takes to reach the others. Waits that need not outlast a pause go by this.
  uint64_t network_timeout_ns() const;
  // The hosts' part.
  uint64_t tolerated_pause_ns() const { return tolerated_ns_; }
  // A pause this long is suspicious.
  uint64_t timeout_ns() const;

  // When the watched nodes were last heard; of a majority, the latest time by which each of some majority was.
  uint64_t heard_ns() const;
  uint64_t leader_heard_ns() const { return leader_heard_ns_; }
  uint64_t leader_timeout_ns() const { return leader_timeout_ns_; }
  // How much later than the leader was heard its host last said that it is stalled; 0: it has not said so since.
  uint64_t stalled_by_ns() const { return stalled_ns_ > leader_heard_ns_ ? stalled_ns_ - leader_heard_ns_ : 0; }
  // The time from which the watched nodes are suspect, unless they are heard before; 0 if none are watched.
  uint64_t suspected_from_ns() const;
  bool Suspects(uint64_t now_ns) const { return now_ns >= suspected_from_ns(); }
  // How long nothing was heard of them.
  uint64_t pause_ns(uint64_t now_ns) const { return watches() ? now_ns - std::min(now_ns, heard_ns()) : 0; }

  // Until when the kernel part may answer for a process that turns now (R5).
  uint64_t LeaseEnd_ns(uint64_t now_ns, uint64_t least_ns) const;

  // Of members that a leader watches.
  uint64_t peer_heard_ns(size_t member) const { return peers_[member].heard_ns; }
  uint64_t peer_loop_seq(size_t member) const { return peers_[member].loop_seq; }
  // 0: not measured yet.
  uint64_t round_trip_ns(size_t member) const { return round_trips_.Mean_ns(member); }

 private:
  struct Peer {
    uint64_t heard_ns = 0;
    uint64_t confirmed_ns = 0;
    uint64_t loop_seq = 0;
  };

  bool watches() const { return watched_.leads || watched_.leader.IsSet(); }
  void EndPause(uint64_t now_ns);
  uint64_t LongestPause_ns(uint64_t now_ns) const;
  uint64_t QuorumHeard_ns(bool or_confirmed) const;
  void Measure();

  Options options_;
  size_t self_ = HR_RAFT_MAX_MEMBERS;
  uint32_t voters_ = 0;
  uint32_t next_voters_ = 0;
  RoundTrips round_trips_;
  uint64_t round_trips_timeout_ns_ = 0;
  uint64_t leader_timeout_ns_ = 0;  // what the last leader said
  uint32_t failed_elections_ = 0;

  Watched watched_;
  uint64_t leader_heard_ns_ = 0;
  uint64_t stalled_ns_ = 0;  // when the leader's host last said so
  std::array<Peer, HR_RAFT_MAX_MEMBERS> peers_{};

  uint64_t pause_from_ns_ = 0;  // what was last heard
  uint64_t pause_ns_ = 0;       // since then, as far as it was seen
  uint64_t longest_ns_ = 0;
  uint64_t longest_at_ns_ = 0;
  uint64_t tolerated_ns_ = 0;
  uint64_t polled_ns_ = 0;
};

}  // namespace hedgerow::raft
