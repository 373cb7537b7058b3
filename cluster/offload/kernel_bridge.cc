// SPDX-License-Identifier: Apache-2.0
#include "cluster/offload/kernel_bridge.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "cluster/offload/shared_state.h"
#include "cluster/raft/check.h"

namespace hedgerow::offload {
namespace {

// A leader that turns more often and hears of nothing new leaves the state alone in between.
constexpr uint64_t kPollsPerLease = 16;

}  // namespace

KernelBridge::KernelBridge(Kernel& kernel, KernelBridgeOptions options, DecodeAppend decode)
    : kernel_(kernel), options_(options), decode_(std::move(decode)) {
  HEDGEROW_CHECK(options_.incarnation != 0 && options_.lease_ns >= 3);
}

// False: another process's incarnation stands there.
bool KernelBridge::Run(hr_node_operation operation) {
  if (superseded_) return false;
  control_.operation = operation;
  control_.incarnation = options_.incarnation;
  kernel_.Control(control_);
  // A refusal is a fault of this process: R1 or R7.
  HEDGEROW_CHECK(control_.result == HR_NODE_DONE || control_.result == HR_NODE_STALE);
  superseded_ = control_.result == HR_NODE_STALE;
  if (superseded_) open_ = false;
  return !superseded_;
}

absl::Status KernelBridge::Adopt(kv::Replica& replica) {
  const raft::Raft& raft = replica.raft();
  HEDGEROW_CHECK(Run(HR_NODE_ADOPT));
  const hr_node_shared left = control_.shared;
  fed_end_ = raft.log().last_index();
  Drain(true);
  statistics_.adopted = waiting_.size();
  while (!waiting_.empty()) {
    const auto& [order, waiting] = *waiting_.begin();
    // The process had drained all there was before it went on to a later term (R1), and its writes are in
    // order. It rests on votes being fed behind a fence, after all appends (FeedWaiting): else an acknowledged
    // entry would be skipped here (spec: fault-old-term-skipped).
    if (order.term < raft.term()) {
      Taken& taken = taken_[waiting.taken - first_taken_];
      taken.fed = true;
      taken.sequence = 0;
      waiting_.erase(waiting_.begin());
      continue;
    }
    if (order.append && (order.term > raft.term() || order.prev_index > fed_end_.value())) {
      return absl::DataLossError(absl::StrCat("the kernel part has accepted entries of term ", order.term.value(),
                                              " after ", order.prev_index, ", but the log ends at ", fed_end_.value(),
                                              " in term ", raft.term().value()));
    }
    FeedFirst(replica);
  }
  replica.Feed(raft::KernelVoted{.term = raft::Term(left.raft.term), .candidate = raft::NodeId(left.raft.voted_for)});
  replica.Settle();
  if (raft.term().value() == left.raft.term && raft.log().last_index().value() < left.matched) {
    return absl::DataLossError(absl::StrCat("this node has acknowledged entries up to ", left.matched, " of term ",
                                            left.raft.term, ", but its log ends at ", raft.log().last_index().value()));
  }
  Release(raft);
  return absl::OkStatus();
}

void KernelBridge::BeginTurn(uint64_t now_ns, kv::Replica& replica) {
  if (!open_ || NothingMoved(now_ns, replica.raft())) return;
  moved_seen_ = kernel_.Moved();
  synced_ns_ = now_ns;
  Drain(false);
  FeedWaiting(replica, false);
  Lease(now_ns, replica.raft());
  const hr_raft_state& seen = control_.shared.raft;
  const bool voted = seen.term != opened_.term.value() || seen.voted_for != opened_.voted_for.value();
  if (open_ && (voted || VoteWaits())) {
    Fence(replica);
  } else {
    Sync(replica);
  }
}

// A leader's kernel part accepts nothing, says when a majority has moved, and passes on every acknowledgement
// that the process waits for. What it only counts is polled now and then, and so is what a follower's has heard in disk
// mode, where it accepts nothing either.
bool KernelBridge::NothingMoved(uint64_t now_ns, const raft::Raft& raft) {
  const bool accepts_nothing =
      opened_.role == raft::Role::kLeader || (opened_.role == raft::Role::kFollower && !MayPromise());
  return accepts_nothing && EveryAckForKernel(raft) == leased_every_ack_ && !DoorbellRang() &&
         now_ns < synced_ns_ + options_.lease_ns / kPollsPerLease;
}

bool KernelBridge::Poll(uint64_t now_ns, kv::Replica& replica) {
  if (!DoorbellRang()) return false;
  moved_seen_ = kernel_.Moved();
  synced_ns_ = now_ns;
  Lease(now_ns, replica.raft());
  Sync(replica);
  if (!superseded_) replica.Settle();
  return true;
}

bool KernelBridge::MaySleep() {
  kernel_.SetAwake(false);
  if (!DoorbellRang()) return true;
  kernel_.SetAwake(true);
  return false;
}

void KernelBridge::Receive(uint64_t arrived_ns, raft::Message message, kv::Replica& replica) {
  if (open_ && Promises(message, replica.raft())) Fence(replica);
  if (!superseded_) replica.ReceiveMessage(arrived_ns, std::move(message));
}

void KernelBridge::Resigned(const raft::LeaderResigns& hint, kv::Replica& replica) {
  const raft::Raft& raft = replica.raft();
  if (hint.term != raft.term()) return;
  if (open_) Fence(replica);
  if (!superseded_) replica.Feed(hint);
}

void KernelBridge::ReceiveSnapshot(raft::SnapshotReceived received, std::unique_ptr<kv::StateMachine> state,
                                   kv::Replica& replica) {
  if (open_) Fence(replica);
  if (!superseded_) replica.ReceiveSnapshot(std::move(received), std::move(state));
}

void KernelBridge::Tick(uint64_t now_ns, kv::Replica& replica) {
  if (open_) {
    replica.Settle();  // what was heard puts the election off
    const raft::Raft& raft = replica.raft();
    if (raft.role() != raft::Role::kLeader && now_ns >= raft.election_deadline_ns()) {
      Fence(replica);
      replica.Settle();
    }
  }
  if (!superseded_) replica.Tick();
}

void KernelBridge::BeforeSending(uint64_t now_ns, const raft::Raft& raft) {
  kernel_.SetSent(raft.log().last_index().value(), raft.round());
  if (open_ && !superseded_ && LeaseStateOf(raft) == opened_ && Lags(raft)) Lease(now_ns, raft);
}

bool KernelBridge::Lags(const raft::Raft& raft) const {
  return MatchedForKernel(raft) > leased_matched_ || (EveryAckForKernel(raft) & ~leased_every_ack_) != 0 ||
         raft.detector().stalled_by_ns() != leased_stalled_by_ns_;
}

void KernelBridge::EndTurn(uint64_t now_ns, kv::Replica& replica) {
  if (superseded_) return;
  replica.Settle();
  const raft::Raft& raft = replica.raft();
  if (open_ && LeaseStateOf(raft) != opened_) {
    // A follower's kernel part may promise: whatever changes it must have come through the fence.
    HEDGEROW_CHECK(opened_.role != raft::Role::kFollower);
    FenceAndSettle(replica);
  }
  if (open_ && MembershipOf(raft) != opened_members_) FenceAndSettle(replica);
  if (open_ && MayOpen(raft) && CapabilitiesFor(raft) != capabilities_) FenceAndSettle(replica);
  if (open_ && OwnsLog() && opened_.role == raft::Role::kFollower) {
    HEDGEROW_CHECK(raft.log().last_index() == fed_end_);
  }
  Release(raft);
  if (superseded_ || !options_.switches.any()) return;
  // What is in the reorder buffer waits for what the process must see then: an open kernel part would take that by
  // itself, and each append that is not the next one would cost a fence.
  const bool waits = MayPromise() && raft.role() == raft::Role::kFollower && raft.reordered_appends() != 0;
  if (!open_ && MayOpen(raft) && !waits) {
    Open(now_ns, raft);
  } else if (open_ && Lags(raft)) {
    Lease(now_ns, raft);
  }
}

// A leader's kernel part grants and appends nothing, and its term was durable before the others were asked for votes.
// In disk mode the same is true of a follower's, once its term is durable. Under load there may never be a turn at
// whose end all is written: without its lease a leader would be taken for one that stands still, and a follower's
// process would be woken for each heartbeat.
bool KernelBridge::MayOpen(const raft::Raft& raft) {
  if (const raft::HardState now{.term = raft.term(), .voted_for = raft.voted_for()}; now != hard_state_) {
    hard_state_ = now;
    hard_state_sequence_ = raft.asked_sequence();
  }
  if (raft.role() == raft::Role::kLeader) return true;
  return MayPromise() ? raft.durable_sequence() == raft.asked_sequence()
                      : raft.durable_sequence() >= hard_state_sequence_;
}

void KernelBridge::Close(kv::Replica& replica) {
  options_.switches = {};
  if (open_) Fence(replica);
  replica.Settle();
  Release(replica.raft());
}

// What the message may make of the core. The core's term and log's end may be behind the kernel part's, never
// ahead.
bool KernelBridge::Promises(const raft::Message& message, const raft::Raft& raft) const {
  const raft::Role role = raft.role();
  if (const auto* vote = std::get_if<raft::VoteRequest>(&message.body)) {
    return !vote->pre_vote && vote->asked_term >= raft.term();
  }
  if (message.term > raft.term()) return true;
  if (const auto* vote = std::get_if<raft::VoteReply>(&message.body)) {
    return vote->granted && (role == raft::Role::kPreCandidate || role == raft::Role::kCandidate);
  }
  if (message.term < raft.term()) return false;  // is refused
  if (std::holds_alternative<raft::AppendRequest>(message.body) ||
      std::holds_alternative<raft::Heartbeat>(message.body)) {
    return OwnsLog() || role != raft::Role::kFollower || raft.leader() != message.from;
  }
  // R8: where this log ends is asked, or compared.
  if (std::holds_alternative<raft::ReadIndexRequest>(message.body) ||
      std::holds_alternative<raft::LastEntry>(message.body)) {
    return OwnsLog();
  }
  return std::holds_alternative<raft::TimeoutNow>(message.body);
}

// R1: nothing is accepted after the first line, and everything that was lies below the ring's producer
// position.
void KernelBridge::Fence(kv::Replica& replica) {
  ++statistics_.fences;
  if (options_.fence_begins) options_.fence_begins();
  if (!Run(HR_NODE_FENCE)) return;
  const hr_node_shared shared = control_.shared;
  const bool owned = OwnsLog() && opened_.role == raft::Role::kFollower;
  open_ = false;
  Drain(true);
  FeedWaiting(replica, true);
  // R3: whatever was acknowledged is here.
  HEDGEROW_CHECK(waiting_.empty());
  HEDGEROW_CHECK(!owned || fed_end_.value() == shared.raft.last_index);
  if (options_.fence_ended) options_.fence_ended();
  Sync(replica);
}

void KernelBridge::FenceAndSettle(kv::Replica& replica) {
  Fence(replica);
  if (!superseded_) replica.Settle();
}

void KernelBridge::Lease(uint64_t now_ns, const raft::Raft& raft) {
  control_.shared = SharedStateOf(raft);
  control_.shared.lease_until_ns = raft.detector().LeaseEnd_ns(now_ns, options_.lease_ns);
  control_.shared.term_max = term_limit_.exists() ? term_limit_.At(now_ns).value() : 0;
  leased_matched_ = MatchedForKernel(raft);
  leased_every_ack_ = control_.shared.every_ack;
  leased_stalled_by_ns_ = raft.detector().stalled_by_ns();
  ++statistics_.leases;
  if (Run(HR_NODE_LEASE)) leased_ns_ = now_ns;
}

void KernelBridge::Open(uint64_t now_ns, const raft::Raft& raft) {
  capabilities_ = CapabilitiesFor(raft);
  control_.shared = SharedStateOf(raft);
  control_.shared.lease_until_ns = raft.detector().LeaseEnd_ns(now_ns, options_.lease_ns);
  control_.shared.term_max = term_limit_.exists() ? term_limit_.At(now_ns).value() : 0;
  control_.shared.capabilities = capabilities_;
  control_.shared.tell_suspicion = VotesOnSuspicion() && raft.role() == raft::Role::kFollower ? 1 : 0;
  kernel_.SetSent(raft.log().last_index().value(), raft.round());
  ++statistics_.opens;
  if (!Run(HR_NODE_OPEN)) return;
  open_ = true;
  opened_ = LeaseStateOf(raft);
  opened_members_ = MembershipOf(raft);
  leased_ns_ = now_ns;
  leased_matched_ = MatchedForKernel(raft);
  leased_every_ack_ = control_.shared.every_ack;
  leased_stalled_by_ns_ = raft.detector().stalled_by_ns();
  fed_end_ = raft.log().last_index();
}

// Disk mode: an acknowledgement and a vote are durable, which the kernel part cannot see to.
uint32_t KernelBridge::CapabilitiesFor(const raft::Raft& raft) const {
  const Switches& switches = options_.switches;
  const bool memory = options_.durability == Durability::kMemory;
  const bool follows = raft.role() == raft::Role::kFollower;
  const bool leads = raft.role() == raft::Role::kLeader;
  uint32_t capabilities = 0;
  if (switches.heartbeat && (follows || leads)) capabilities |= HR_NODE_CAN_HEARTBEAT;
  // A leader that checks its quorum trusts itself no more; its kernel part would, and consume the requests.
  if (switches.vote && !raft.checks_quorum()) capabilities |= HR_NODE_CAN_VOTE;
  // Without `append` each entry would cost a fence while the kernel part may vote by the log's end, and no vote
  // is given while the leader is heard.
  const bool votes = !VotesOnSuspicion() || raft.suspected_term() != raft::Term();
  if (switches.vote && memory && follows && votes) capabilities |= HR_NODE_CAN_GRANT;
  if (switches.append && memory && follows) capabilities |= HR_NODE_CAN_APPEND;
  if (switches.quorum && leads) capabilities |= HR_NODE_CAN_COUNT;
  return capabilities;
}

// What the last shared state tells, as far as it is of the core's term. The core ignores what it knows.
void KernelBridge::Sync(kv::Replica& replica) {
  if (superseded_ || control_.shared.raft.term != replica.raft().term().value()) return;
  switch (replica.raft().role()) {
    case raft::Role::kFollower: return SyncHeard(replica);
    case raft::Role::kPreCandidate:
    case raft::Role::kCandidate: return SyncVotes(replica);
    case raft::Role::kLeader: return SyncCounted(replica);
  }
}

void KernelBridge::SyncHeard(kv::Replica& replica) {
  const raft::Raft& raft = replica.raft();
  const hr_node_shared& shared = control_.shared;
  if (!raft.leader().IsSet() || shared.raft.leader != raft.leader().value()) return;
  if (shared.heard_ns <= raft.detector().leader_heard_ns() && shared.leader_commit <= raft.commit().value()) return;
  replica.Feed(raft::KernelHeard{.leader = raft.leader(),
                                 .term = raft.term(),
                                 .heard_ns = shared.heard_ns,
                                 .commit = raft::LogIndex(shared.leader_commit),
                                 .election_timeout_ns = shared.leader_timeout_ns});
}

// A vote may be the one that wins: then the term and the log change.
void KernelBridge::SyncVotes(kv::Replica& replica) {
  const raft::Raft& raft = replica.raft();
  if (control_.shared.role != RoleForKernel(raft.role())) return;
  if (control_.shared.config_epoch != raft.configuration().epoch) return;
  const uint32_t others = control_.shared.votes & raft.peers();
  if ((others & ~raft.votes()) == 0) return;
  if (open_) return Fence(replica);  // and comes here again
  const bool pre_vote = raft.role() == raft::Role::kPreCandidate;
  replica.Feed(raft::KernelVotes{
      .asked_term = pre_vote ? raft.term().Next() : raft.term(), .pre_vote = pre_vote, .members = others});
}

void KernelBridge::SyncCounted(kv::Replica& replica) {
  const raft::Raft& raft = replica.raft();
  if (control_.shared.role != HR_NODE_LEADER) return;
  raft::KernelCounted counted{.term = raft.term(), .members = {}};
  bool news = false;
  for (const raft::Member& member : raft.configuration().members) {
    const size_t i = member.slot;
    const hr_node_member& seen = control_.shared.members[i];
    if (((raft.peers() >> i) & 1) == 0 || seen.node != member.id.value()) continue;
    const raft::Progress& known = raft.progress()[i];
    counted.members[i] = {.match = raft::LogIndex(seen.match),
                          .round = seen.round,
                          .loop_seq = seen.loop_seq,
                          .contact_ns = seen.contact_ns,
                          .node = member.id};
    news = news || seen.match > known.match().value() || seen.round > known.round() ||
           seen.contact_ns > raft.detector().peer_heard_ns(i);
    if (seen.round > known.round()) replica.HeartbeatAnswered(seen.replied_ns, member.id, seen.round);
  }
  if (news) replica.Feed(counted);
}

}  // namespace hedgerow::offload
