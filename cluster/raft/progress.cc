// SPDX-License-Identifier: Apache-2.0
#include "cluster/raft/progress.h"

#include <algorithm>

namespace hedgerow::raft {

void Progress::Probe() {
  probing_ = true;
  awaits_snapshot_ = snapshot_failed_ = false;
  inflight_.clear();
  inflight_bytes_ = 0;
  gap_ = LogIndex();
}

bool Progress::MaySend(const Options& options) const {
  if (awaits_snapshot_) return false;
  if (probing_) return inflight_.empty();
  return inflight_.size() < options.inflight_max_appends && inflight_bytes_ < options.inflight_max_bytes;
}

void Progress::Sent(LogIndex last, size_t bytes, uint64_t now_ns) {
  if (inflight_.empty()) waiting_since_ns_ = now_ns;
  inflight_.push_back({last, bytes});
  inflight_bytes_ += bytes;
  if (!probing_) next_ = last.Next();
}

bool Progress::Accepted(LogIndex index, uint64_t now_ns) {
  // Acknowledgements are cumulative.
  while (!inflight_.empty() && inflight_.front().last <= index) {
    inflight_bytes_ -= inflight_.front().bytes;
    inflight_.pop_front();
  }
  waiting_since_ns_ = now_ns;
  const bool moved = index > match_;
  if (moved) match_ = index;
  // Whatever brought it there: it has what the log does not hold any more.
  if (awaits_snapshot_ && index >= snapshot_at_least_) Probe();
  if (probing_ && index >= next_.Previous()) {
    // The logs agree up to here: from now on, appends are pipelined.
    probing_ = false;
    inflight_.clear();
    inflight_bytes_ = 0;
  }
  next_ = std::max(next_, match_.Next());
  return moved;
}

bool Progress::IsCurrentRefusal(LogIndex prev) const {
  // At or below `match` it is late: the follower has said since that it holds this, durably.
  if (prev <= match_ || awaits_snapshot_) return false;
  return !probing_ || prev == next_.Previous();
}

void Progress::GoBackTo(LogIndex next) {
  next_ = std::max(match_.Next(), std::min(next, next_));
  Probe();
}

bool Progress::IsGapInFlight(LogIndex missing) const {
  return !probing_ && missing > match_ && missing < next_;
}

void Progress::NoteGap(LogIndex missing, LogIndex prev, uint64_t now_ns) {
  if (missing != gap_) {
    gap_ = missing;
    gap_last_ = prev;
    gap_since_ns_ = now_ns;
    gap_refusals_ = 0;
    gap_sent_again_ = false;
  }
  gap_last_ = std::min(gap_last_, prev);
  ++gap_refusals_;
}

bool Progress::GapPersists(uint64_t now_ns, uint64_t patience_ns, uint32_t refusals_max) const {
  return gap_open() && (gap_refusals_ >= refusals_max || now_ns - gap_since_ns_ >= patience_ns);
}

void Progress::AwaitSnapshot(LogIndex at_least) {
  Probe();
  awaits_snapshot_ = true;
  snapshot_at_least_ = at_least;
}

void Progress::SnapshotDelivered(LogIndex index) {
  next_ = std::max({match_.Next(), next_, index.Next()});
  Probe();
}

void Progress::FollowRound(LogIndex leader_last, uint64_t now_ns, uint64_t patience_ns) {
  if (match_ < catch_up_to_) return;
  caught_up_ = now_ns - catch_up_since_ns_ <= patience_ns;
  catch_up_to_ = leader_last;
  catch_up_since_ns_ = now_ns;
  // At the end there is nothing left to be late with.
  if (match_ == leader_last) caught_up_ = true;
}

bool Progress::IsCaughtUp(uint64_t now_ns, uint64_t patience_ns) const {
  const bool in_time = match_ >= catch_up_to_ || now_ns - catch_up_since_ns_ <= patience_ns;
  return caught_up_ && in_time && !awaits_snapshot_;
}

void Progress::ForgetLost(uint64_t now_ns, uint64_t patience_ns) {
  if (inflight_.empty() || now_ns - waiting_since_ns_ < patience_ns) return;
  GoBackTo(probing_ ? next_ : match_.Next());
}

}  // namespace hedgerow::raft
