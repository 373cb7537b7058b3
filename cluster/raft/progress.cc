// SPDX-License-Identifier: Apache-2.0
#include "cluster/raft/progress.h"

#include <algorithm>

namespace hedgerow::raft {

void Progress::Probe() {
  state_ = State::kProbe;
  snapshot_failed_ = false;
  inflight_.clear();
  inflight_bytes_ = 0;
  hole_ = LogIndex();
}

bool Progress::MaySend(const Options& options) const {
  switch (state_) {
    case State::kProbe: return inflight_.empty();
    case State::kReplicate:
      return inflight_.size() < options.inflight_max_appends && inflight_bytes_ < options.inflight_max_bytes;
    case State::kSnapshot: return false;
  }
}

void Progress::Sent(LogIndex last, size_t bytes, uint64_t now_ns) {
  if (inflight_.empty()) waiting_since_ns_ = now_ns;
  inflight_.push_back({last, bytes});
  inflight_bytes_ += bytes;
  if (replicates()) next_ = last.Next();
}

bool Progress::Accepted(LogIndex index, uint64_t round, uint64_t now_ns) {
  // Acknowledgements are cumulative.
  while (!inflight_.empty() && inflight_.front().last <= index) {
    inflight_bytes_ -= inflight_.front().bytes;
    inflight_.pop_front();
  }
  waiting_since_ns_ = now_ns;
  const bool moved = index > match_;
  if (moved) {
    match_ = index;
    match_round_ = round;
  }
  // Whatever brought it there: it has what the log does not hold any more.
  if (awaits_snapshot() && index >= snapshot_at_least_) Probe();
  if (state_ == State::kProbe && index >= next_.Previous()) {
    // The logs agree up to here: from now on, appends are pipelined.
    state_ = State::kReplicate;
    inflight_.clear();
    inflight_bytes_ = 0;
  }
  next_ = std::max(next_, match_.Next());
  return moved;
}

bool Progress::IsCurrentRefusal(LogIndex prev) const {
  // At or below `match` it is late: the follower has said since that it holds this, durably.
  if (prev <= match_ || awaits_snapshot()) return false;
  return replicates() || prev == next_.Previous();
}

void Progress::GoBackTo(LogIndex next) {
  next_ = std::max(match_.Next(), std::min(next, next_));
  Probe();
}

bool Progress::IsHoleInFlight(LogIndex missing) const { return replicates() && missing > match_ && missing < next_; }

void Progress::NoteGap(LogIndex missing, LogIndex prev, uint64_t now_ns) {
  if (missing != hole_) {
    hole_ = missing;
    hole_last_ = prev;
    hole_since_ns_ = now_ns;
    hole_refusals_ = 0;
    hole_sent_again_ = false;
  }
  hole_last_ = std::min(hole_last_, prev);
  ++hole_refusals_;
}

bool Progress::HolePersists(uint64_t now_ns, uint64_t timeout_ns, uint32_t refusals_max) const {
  return hole_open() && (hole_refusals_ >= refusals_max || now_ns - hole_since_ns_ >= timeout_ns);
}

void Progress::AwaitSnapshot(LogIndex at_least) {
  Probe();
  state_ = State::kSnapshot;
  snapshot_at_least_ = at_least;
}

void Progress::SnapshotDelivered(LogIndex index) {
  next_ = std::max({match_.Next(), next_, index.Next()});
  Probe();
}

void Progress::FollowRound(LogIndex leader_last, uint64_t now_ns, uint64_t timeout_ns) {
  if (match_ < catch_up_to_) return;
  caught_up_ = now_ns - catch_up_since_ns_ <= timeout_ns;
  catch_up_to_ = leader_last;
  catch_up_since_ns_ = now_ns;
  // At the end there is nothing left to be late with.
  if (match_ == leader_last) caught_up_ = true;
}

bool Progress::IsCaughtUp(uint64_t now_ns, uint64_t timeout_ns) const {
  const bool in_time = match_ >= catch_up_to_ || now_ns - catch_up_since_ns_ <= timeout_ns;
  return caught_up_ && in_time && !awaits_snapshot();
}

void Progress::ForgetLost(uint64_t now_ns, uint64_t timeout_ns) {
  if (inflight_.empty() || now_ns - waiting_since_ns_ < timeout_ns) return;
  GoBackTo(replicates() ? match_.Next() : next_);
}

const char* Progress::BrokenRule(LogIndex last) const {
  if (match_ >= next_) return "what was acknowledged is sent again";
  if (next_ > last.Next()) return "the next append begins behind the log's end";
  size_t bytes = 0;
  LogIndex sent;
  for (const Inflight& append : inflight_) {
    if (append.last < sent) return "appends in flight are out of order";
    sent = append.last;
    bytes += append.bytes;
  }
  if (bytes != inflight_bytes_) return "bytes in flight are counted wrong";
  if (replicates()) {
    if (!inflight_.empty() && inflight_.front().last <= match_) return "an acknowledged append is in flight";
    return sent < next_ ? nullptr : "an append in flight ends behind the next one's beginning";
  }
  if (hole_ != LogIndex()) return "a hole is noted without a pipeline";
  if (snapshot_failed_ && !awaits_snapshot()) return "a snapshot failed that this peer does not wait for";
  return inflight_.size() <= (awaits_snapshot() ? 0 : 1) ? nullptr : "more than a probe is in flight";
}

}  // namespace hedgerow::raft
