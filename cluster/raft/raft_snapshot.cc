// SPDX-License-Identifier: Apache-2.0
//
// Log compaction: Raft section 7, dissertation chapter 5. Each node takes snapshots of its own, and drops from
// its log what they hold, but for a tail. A leader whose log does not reach back to what a follower needs asks
// for a snapshot to be sent; how it gets there is the caller's business. Nothing here waits for that.
#include <algorithm>

#include "cluster/raft/check.h"
#include "cluster/raft/raft.h"

namespace hedgerow::raft {

void Raft::On(Context& context, const SnapshotTaken& taken) {
  const Snapshot& snapshot = taken.snapshot;
  if (snapshot.last.index <= snapshot_.last.index) return;  // a leader's has overtaken it
  HEDGEROW_CHECK(snapshot.last.index <= applied_ && log_.Has(snapshot.last));
  snapshot_ = snapshot;
  const LogIndex end = log_.TailBefore(snapshot.last.index, options_.tail_max_entries, options_.tail_max_bytes);
  // Its own writes are in order: what is dropped here was written before.
  ToPersist(context).new_start = NewStart{.after = {.index = end, .term = log_.TermAt(end)}, .snapshot = snapshot.last};
  log_.CompactTo(end);
  configurations_.CompactTo(snapshot.last.index);
}

void Raft::AskForSnapshot(Context& context, size_t member) {
  if (((configuration().leaving >> member) & 1) != 0) return;  // that it leaves is not worth a snapshot
  const LogIndex at_least = log_.start().index;
  progress_[member].AwaitSnapshot(at_least);
  context.out.snapshots_needed.push_back({.to = NodeAt(member), .at_least = at_least});
}

void Raft::On(Context& context, const SnapshotSent& sent) {
  const size_t member = MemberOf(sent.to);
  if (role_ != Role::kLeader || !IsPeer(member)) return;
  Progress& progress = progress_[member];
  if (!progress.awaits_snapshot()) return;  // its acknowledgement was faster
  if (!sent.delivered || sent.index > log_.last_index()) {
    progress.SnapshotFailed();  // the next heartbeat asks again
    return;
  }
  // The acknowledgement may be lost: one append probes whether it is true.
  progress.SnapshotDelivered(sent.index);
  Replicate(context, member);
}

// Raft figure 13, the receiver's part.
void Raft::On(Context& context, const SnapshotReceived& received) {
  if (received.term < term_) return;
  const EntryId& last = received.snapshot.last;
  if ((received.term == term_ && !MayFollow(received.leader)) || last.term > received.term ||
      (last.index.value() >> 63) != 0) {
    ++counters_.impossible;
    return;
  }
  if (received.term > term_) BecomeFollower(context, received.term, received.leader);
  FollowLeader(context, received.leader);
  if (last.index > commit_) {
    if (log_.Has(last)) {
      AdvanceCommit(context, last.index);  // step 6: it is a part of this log already
    } else {
      Install(context, received.snapshot);
    }
  }
  // What is committed is in this leader's log (Leader Completeness, Raft section 5.4).
  matched_ = std::max(matched_, commit_);
  SendOnceDurable(context, received.leader, AppendReply{.accepted = true, .index = commit_, .loop_seq = steps_});
}

// Raft figure 13, steps 7 and 8. The log has another entry at that index, or none: all after it, if any,
// followed from what was never committed, and all up to it is in the snapshot.
void Raft::Install(Context& context, const Snapshot& snapshot) {
  const LogIndex equal = std::max(commit_, matched_);
  const EntryId start = snapshot.last;
  Persist& persist = ToPersist(context);
  HEDGEROW_CHECK(!persist.new_start.has_value() && !persist.truncate_from.has_value() && persist.entries.empty());
  persist.new_start = NewStart{.after = start, .snapshot = snapshot.last, .empties = true};
  log_.RestartAfter(start);
  reorder_buffer_.clear();
  // Durable, until this write is, is only what the former log had in common with this one.
  durable_index_ = std::min(durable_index_, equal);
  for (Write& write : writes_) write.last = std::min(write.last, equal);
  writes_.back().last = log_.last_index();
  snapshot_ = snapshot;
  commit_ = applied_ = handed_out_ = start.index;
  const bool other = snapshot.configuration != configuration();
  configurations_.Restart(start.index, snapshot.configuration);
  other ? ConfigurationChanged(context) : RefreshPeers(context.now_ns);
  context.out.install = snapshot;
  ReleaseReads(context);
}

}  // namespace hedgerow::raft
