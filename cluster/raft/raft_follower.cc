// SPDX-License-Identifier: Apache-2.0
//
// Following a leader: Raft section 5.3, the receiver's part.
#include <algorithm>

#include "cluster/raft/check.h"
#include "cluster/raft/raft.h"

namespace hedgerow::raft {

// A leader's batch is contiguous and of its own or earlier terms. Anything else is no message of this protocol.
// No log is so long that its indices wrap around.
bool Raft::IsWellFormed(Term leader_term, const AppendRequest& request) {
  if ((request.prev_index.value() >> 63) != 0) return false;
  LogIndex index = request.prev_index;
  Term term = request.prev_term;
  for (const Entry& entry : request.entries) {
    if (entry.index != index.Next() || entry.term < term || entry.term > leader_term) return false;
    if (entry.kind == EntryKind::kConfiguration && !DecodeConfiguration(entry.payload.view())) return false;
    index = entry.index;
    term = entry.term;
  }
  return true;
}

// Election Safety (Raft section 5.2): at most one leader in a term.
bool Raft::MayFollow(NodeId leader) const { return role_ != Role::kLeader && (!leader_.IsSet() || leader_ == leader); }

void Raft::FollowLeader(Context& context, NodeId leader) {
  HEDGEROW_CHECK(MayFollow(leader));
  BecomeFollower(context, term_, leader);
  LeaderHeardAt(context, context.now_ns);
}

// The kernel part hears it earlier, or, by a clock that was read later, after this step's time.
void Raft::LeaderHeardAt(Context& context, uint64_t heard_ns) {
  heard_ns = std::min(heard_ns, context.now_ns);
  transfer_term_ = suspected_term_ = Term();
  resigned_ = NodeId();
  given_up_ = 0;
  detector_.LeaderHeard(context.now_ns, heard_ns);
  DrawElectionDeadline(context);
  election_deadline_ns_ = heard_ns + detector_.stalled_by_ns() + election_wait_ns_;
}

void Raft::Handle(Context& context, const Message& message, const AppendRequest& request) {
  if (!IsWellFormed(message.term, request) || ContradictsStart(request)) {
    ++counters_.impossible;
    return;
  }
  if (request.prev_index < log_.start().index) {
    Handle(context, message, WithoutCompacted(request));
    return;
  }
  FollowLeader(context, message.from);
  LogIndex last = StoreReordered(context);  // the kernel part may have accepted what they follow
  const hr_raft_state state = DecisionState();
  const hr_raft_append append{
      .term = message.term.value(), .prev_index = request.prev_index.value(), .prev_term = request.prev_term.value()};
  const Term our_term = log_.Has(request.prev_index) ? log_.TermAt(request.prev_index) : Term();
  const hr_raft_verdict verdict = hr_raft_may_append(&state, &append, our_term.value());
  if (verdict == HR_RAFT_YES) {
    last = std::max(last, StoreEntries(context, request));
    matched_ = std::max(matched_, last);
    AdvanceCommit(context, std::min(request.commit, matched_));
    last = std::max(last, StoreReordered(context));
  } else {
    if (verdict == HR_RAFT_GAP) KeepEarly(request);
    RefuseAppend(context, message, request, verdict);
    if (last == LogIndex()) return;
  }
  SendOnceDurable(context, message.from, AppendReply{.accepted = true, .index = last, .loop_seq = steps_});
}

// What the log begins after is committed.
bool Raft::ContradictsStart(const AppendRequest& request) const {
  return std::any_of(request.entries.begin(), request.entries.end(), [this](const Entry& entry) {
    return entry.index == log_.start().index && entry.term != log_.start().term;
  });
}

// The same request, as far as it is about what comes after the log's start. Up to there everything is
// committed, so each later leader has it, too (Leader Completeness, Raft section 5.4).
AppendRequest Raft::WithoutCompacted(AppendRequest request) const {
  const EntryId& start = log_.start();
  const auto covered = [&start](const Entry& entry) { return entry.index <= start.index; };
  const auto rest = std::find_if_not(request.entries.begin(), request.entries.end(), covered);
  HEDGEROW_CHECK(!ContradictsStart(request));
  request.entries.erase(request.entries.begin(), rest);
  request.prev_index = start.index;
  request.prev_term = start.term;
  return request;
}

// Steps 3 and 4 of AppendEntries: only a real conflict truncates, because an old batch may arrive late. What is
// committed no leader has another entry for, and what matches its own log it changes itself never (Raft
// section 5.3, 5.4).
LogIndex Raft::StoreEntries(Context& context, const AppendRequest& request) {
  for (const Entry& entry : request.entries) {
    if (log_.Has(entry.index)) {
      if (log_.TermAt(entry.index) == entry.term) continue;
      if (entry.index <= std::max(commit_, matched_)) {
        ++counters_.impossible;
        return entry.index.Previous();
      }
      TruncateLog(context, entry.index);
    }
    AppendToLog(context, entry);
  }
  return request.prev_index + request.entries.size();
}

// It has overtaken others on its way. To keep it is to let the network deliver it later: nothing is said of it,
// and once its turn has come it is judged like any other of its term, whose end is its own.
void Raft::KeepEarly(const AppendRequest& request) {
  if (request.entries.empty()) return;
  if (reorder_buffer_.size() >= options_.reorder_buffer_max_appends && !reorder_buffer_.contains(request.prev_index))
    return;
  counters_.reordered_kept += reorder_buffer_.insert_or_assign(request.prev_index, request).second;
}

// Returns up to where the log is the leader's by them; 0: by none.
LogIndex Raft::StoreReordered(Context& context) {
  LogIndex stored;
  while (!reorder_buffer_.empty() && reorder_buffer_.begin()->first <= log_.last_index()) {
    const AppendRequest request = std::move(reorder_buffer_.begin()->second);
    reorder_buffer_.erase(reorder_buffer_.begin());
    if (!FollowsLog(request)) continue;
    ++counters_.reordered_stored;
    stored = std::max(stored, StoreEntries(context, request));
    matched_ = std::max(matched_, stored);
    AdvanceCommit(context, std::min(request.commit, matched_));
  }
  return stored;
}

// Nothing of this log contradicts it: what lies beyond its beginning, if anything, is this leader's as well.
bool Raft::FollowsLog(const AppendRequest& request) const {
  if (!log_.Has(request.prev_index) || log_.TermAt(request.prev_index) != request.prev_term) return false;
  return std::all_of(request.entries.begin(), request.entries.end(), [this](const Entry& entry) {
    return !log_.Has(entry.index) || log_.TermAt(entry.index) == entry.term;
  });
}

// End of Raft section 5.3: the hint lets the leader pass over a whole term at once.
void Raft::RefuseAppend(Context& context, const Message& message, const AppendRequest& request, hr_raft_verdict why) {
  AppendReply reply{.accepted = false, .index = request.prev_index, .loop_seq = steps_};
  if (why == HR_RAFT_GAP) {
    reply.conflict_index = log_.last_index().Next();
  } else {
    reply.conflict_term = log_.TermAt(request.prev_index);
    reply.conflict_index = log_.FirstOfTermAt(request.prev_index);
  }
  Send(context, message.from, reply);
}

void Raft::Handle(Context& context, const Message& message, const Heartbeat& heartbeat) {
  detector_.SetLeaderTimeout(heartbeat.election_timeout_ns);
  FollowLeader(context, message.from);
  // Only what is known to be the leader's may be committed on its word.
  AdvanceCommit(context, std::min(heartbeat.commit, matched_));
  Send(context, message.from, HeartbeatReply{.round = heartbeat.round, .matched = matched_, .loop_seq = steps_});
}

}  // namespace hedgerow::raft
