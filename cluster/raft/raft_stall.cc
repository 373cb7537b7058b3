// SPDX-License-Identifier: Apache-2.0
//
// A log that does not move is a fault, whatever its cause (docs/adr/0029): the leader's disk hangs or is full, or the
// other members answer heartbeats and do not acknowledge entries. CheckQuorum (dissertation section 6.2) sees none of
// it, because a majority is heard. The leader steps down where another member can do better. For availability only
// (R4): which member leads is decided by votes as ever.
#include <algorithm>

#include "cluster/raft/raft.h"

namespace hedgerow::raft {
namespace {

// Attempts without any commit in between wait longer and longer, up to 16 s.
constexpr uint32_t kDoublingsMax = 5;

}  // namespace

uint64_t Raft::disk_stalled_ns(uint64_t now_ns) const {
  return writes_.empty() ? 0 : now_ns - std::min(now_ns, writes_.front().asked_ns);
}

uint64_t Raft::commit_stalled_ns(uint64_t now_ns) const {
  if (role_ != Role::kLeader || log_.last_index() == commit_) return 0;
  return now_ns - std::min(now_ns, commit_moved_ns_);
}

// A node that stood still cannot tell whether its disk and the others did.
void Raft::ForgiveStandstill(const Context& context) {
  const uint64_t due_ns = next_deadline_ns();
  const uint64_t late_ns = context.now_ns - std::min(context.now_ns, due_ns);
  if (late_ns < options_.stall_ns / 8) return;
  for (Write& write : writes_) write.asked_ns = std::min(context.now_ns, write.asked_ns + late_ns);
  replication_moved_ns_ = context.now_ns;
}

// With its own disk stalled the leader is replaced only while the others commit without it. If they do not, because
// their disks stall as well, none of them can store the vote that it needs to be elected, and this leader can still
// answer reads. The same protects a leader that no voter acknowledges: a voter whose disk stalls does not stand.
StallCause Raft::Stalled(uint64_t now_ns) const {
  if (disk_stalled_ns(now_ns) >= options_.stall_ns) {
    return commit_ > durable_index_ ? StallCause::kOwnDisk : StallCause::kNone;
  }
  const uint64_t moved_ns = std::max(commit_moved_ns_, replication_moved_ns_);
  const bool replication_moves = now_ns < moved_ns + options_.stall_ns;
  return commit_stalled_ns(now_ns) == 0 || replication_moves ? StallCause::kNone : StallCause::kReplication;
}

NodeId Raft::Successor(uint64_t now_ns, NodeId last_resort) const {
  const uint32_t staying = configuration().joint() ? configuration().next_voters : configuration().voters;
  NodeId best;
  LogIndex best_match;
  ForEach(peers_ & staying, [&](size_t member) {
    const Progress& progress = progress_[member];
    if (detector_.peer_heard_ns(member) + detector_.timeout_ns() / 2 < now_ns) return;
    const NodeId id = NodeAt(member);
    const bool better = !best.IsSet() || best == last_resort || progress.match() > best_match;
    if (best.IsSet() && (!better || id == last_resort)) return;
    best = id;
    best_match = progress.match();
  });
  return best;
}

// A voter that lacks only what this leader could not replicate is asked to stand at once: an ordinary transfer
// (dissertation section 3.10) would wait for it to acknowledge everything. So is one that has everything committed,
// once this leader's disk has hung for twice the stall time. Entries that are lost with this leader were never
// committed; their requests wait, and are proposed anew by the next leader.
void Raft::StepDownIfStalled(Context& context) {
  if (transfer_target_.IsSet() || context.now_ns < step_down_ns_) return;
  const StallCause cause = Stalled(context.now_ns);
  if (cause == StallCause::kNone) return;
  step_down_ns_ = context.now_ns + (options_.stall_ns << std::min(step_downs_, kDoublingsMax));
  const NodeId target = Successor(context.now_ns, asked_to_lead_);
  if (!target.IsSet()) return;
  const size_t member = MemberOf(target);
  const bool replication = cause == StallCause::kReplication;
  const bool has_all_committed = progress_[member].match() >= commit_ && !progress_[member].awaits_snapshot();
  if (replication && !has_all_committed) return;
  // An ordinary transfer has had a stall time to end. Under load its target is always a little behind, and it never
  // ends.
  const bool long_stalled = disk_stalled_ns(context.now_ns) >= 2 * options_.stall_ns;
  const bool at_once = replication || (long_stalled && has_all_committed);
  asked_to_lead_ = target;
  ++step_downs_;
  ++(replication ? counters_.step_downs_replication : counters_.step_downs_own_disk);
  context.out.step_down =
      StepDown{.cause = cause,
               .to = target,
               .stalled_ns = replication ? commit_stalled_ns(context.now_ns) : disk_stalled_ns(context.now_ns)};
  if (at_once) {
    Send(context, target, TimeoutNow{});
  } else {
    On(context, TransferLeadership{.target = target});
  }
}

}  // namespace hedgerow::raft
