// SPDX-License-Identifier: Apache-2.0
//
// What a leader knows of one follower's log, and how much it may send it now (dissertation section 10.2.1).

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "cluster/raft/options.h"
#include "cluster/raft/types.h"

namespace hedgerow::raft {

class Progress {
 public:
  enum class State : uint8_t {
    kProbe,      // where the logs agree is unknown: one append at a time probes for it
    kReplicate,  // appends are pipelined, each sent as if those before it had arrived, up to a bound
    kSnapshot,   // what the follower needs next is not in the log any more: it is sent nothing
  };

  Progress(LogIndex leader_last, uint64_t now_ns)
      : next_(leader_last.Next()), catch_up_to_(leader_last), catch_up_since_ns_(now_ns) {}

  LogIndex match() const { return match_; }  // known to be durable there
  LogIndex next() const { return next_; }    // where the next append begins
  State state() const { return state_; }
  bool replicates() const { return state_ == State::kReplicate; }
  // What must hold after each step of the leader, whose log ends at `last`; null: it does.
  const char* BrokenRule(LogIndex last) const;

  bool MaySend(const Options& options) const;
  void Sent(LogIndex last, size_t bytes, uint64_t now_ns);

  // True if `match` moved. `round`: the leader's last one, of which the follower cannot have heard before it said this.
  bool Accepted(LogIndex index, uint64_t round, uint64_t now_ns);
  // What it answered to that round shows that it has forgotten what it had acknowledged before. An answer to an earlier
  // round may only have been overtaken by the acknowledgement.
  bool HasForgotten(LogIndex matched, uint64_t round) const {
    return matched < match_ && round > match_round_ && !awaits_snapshot();
  }

  // A refusal of the append after `prev`. False if it answers something older than what is known by now.
  bool IsCurrentRefusal(LogIndex prev) const;
  void GoBackTo(LogIndex next);

  // A refusal says that the follower lacks `missing`, and has something later. If that is in flight, it is late
  // or lost; the follower keeps the later ones meanwhile, so the pipeline goes on. False: it is not, so probe.
  bool IsHoleInFlight(LogIndex missing) const;
  // It refused an append after `prev`: up to there it lacks everything, at the least.
  void NoteGap(LogIndex missing, LogIndex prev, uint64_t now_ns);
  // It is more likely lost than late, and was not sent again.
  bool HolePersists(uint64_t now_ns, uint64_t timeout_ns, uint32_t refusals_max) const;
  LogIndex hole() const { return hole_; }
  LogIndex hole_last() const { return hole_last_; }
  bool hole_open() const { return !hole_sent_again_ && IsHoleInFlight(hole_); }
  void HoleSentAgain() { hole_sent_again_ = true; }

  // It waits for a snapshot at `at_least` or later.
  void AwaitSnapshot(LogIndex at_least);
  bool awaits_snapshot() const { return state_ == State::kSnapshot; }
  // The sender says that the follower has one: the next append begins after it, and probes.
  void SnapshotDelivered(LogIndex index);
  void SnapshotFailed() { snapshot_failed_ = awaits_snapshot(); }
  bool snapshot_failed() const { return snapshot_failed_; }

  // Nothing was acknowledged for `timeout_ns`: what is in flight counts as lost.
  void ForgetLost(uint64_t now_ns, uint64_t timeout_ns);

  // Dissertation section 4.2.1: a round ends when it holds what the leader had when the round began; it has
  // caught up once a round takes no longer than an election timeout. Called with every acknowledgement.
  void FollowRound(LogIndex leader_last, uint64_t now_ns, uint64_t timeout_ns);
  bool IsCaughtUp(uint64_t now_ns, uint64_t timeout_ns) const;

  uint64_t round() const { return round_; }
  void ConfirmRound(uint64_t round) { round_ = round > round_ ? round : round_; }

 private:
  struct Inflight {
    LogIndex last;
    size_t bytes;
  };

  void Probe();

  LogIndex match_;
  uint64_t match_round_ = 0;  // the leader's last heartbeat round when `match_` moved
  LogIndex next_;
  State state_ = State::kProbe;
  bool snapshot_failed_ = false;
  LogIndex snapshot_at_least_;
  std::deque<Inflight> inflight_;
  size_t inflight_bytes_ = 0;
  LogIndex hole_;  // the last one noted; at or below match_: it is filled
  LogIndex hole_last_;
  uint64_t hole_since_ns_ = 0;
  uint32_t hole_refusals_ = 0;
  bool hole_sent_again_ = false;
  uint64_t waiting_since_ns_ = 0;  // since the last acknowledgement, or the first send after it
  LogIndex catch_up_to_;           // the round that is under way
  uint64_t catch_up_since_ns_;
  bool caught_up_ = false;  // the one before took short enough
  uint64_t round_ = 0;      // the last heartbeat round it answered
};

}  // namespace hedgerow::raft
