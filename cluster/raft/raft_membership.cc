// SPDX-License-Identifier: Apache-2.0
//
// Membership: dissertation chapter 4, by joint consensus (section 4.3). One change at a time; learners first,
// promoted when they have caught up (4.2.1); a leader that is removed leads until its successors have committed
// that, does not count itself meanwhile, and then steps down (4.2.2); a removed node does not disturb the
// cluster (4.2.3).

#include "cluster/raft/check.h"
#include "cluster/raft/raft.h"

namespace hedgerow::raft {

void Raft::On(Context& context, const ChangeMembership& change) {
  MembershipAnswer answer{.tag = change.tag};
  answer.refusal = MayChange();
  ChangeResult result;
  if (answer.refusal == ChangeRefusal::kNone) {
    result = Changed(configuration(), change.changes);
    answer.refusal = result.refusal;
    answer.about = result.about;
  }
  if (answer.refusal == ChangeRefusal::kNone) answer.refusal = MayPromote(context, change.changes, answer.about);
  if (answer.refusal == ChangeRefusal::kNone) {
    answer.epoch = result.next.epoch + (result.next.joint() ? 1 : 0);
    AppendConfiguration(context, result.next);
    answer.index = log_.last_index();
    answer.term = term_;
    answer.about = {};
  }
  context.out.membership_answers.push_back(answer);
}

// Dissertation section 4.1 wants one change at a time; and the first entry of a leader's own term committed
// before it makes one, without which it could overlook a change of a former leader (the mistake found in 2015).
// With joint majorities that could not happen, but a leader that has not committed an entry of its own does not
// know whether the last change is done.
ChangeRefusal Raft::MayChange() const {
  if (role_ != Role::kLeader) return ChangeRefusal::kNotLeader;
  if (transfer_target_.IsSet()) return ChangeRefusal::kTransferring;
  if (configuration().joint()) return ChangeRefusal::kUnfinished;
  if (!configuration_committed() || commit_ < term_start_) return ChangeRefusal::kUnfinished;
  return ChangeRefusal::kNone;
}

ChangeRefusal Raft::MayPromote(Context& context, const std::vector<MemberChange>& changes, NodeId& who) const {
  for (const MemberChange& change : changes) {
    if (change.kind != MemberChange::Kind::kPromote) continue;
    who = change.node;
    const size_t member = MemberOf(change.node);
    if (!IsPeer(member) || !IsCaughtUp(member, context.now_ns)) return ChangeRefusal::kNotCaughtUp;
  }
  return ChangeRefusal::kNone;
}

bool Raft::IsCaughtUp(size_t member, uint64_t now_ns) const {
  const uint64_t timeout_ns = detector_.timeout_ns();
  return role_ == Role::kLeader && progress_[member].IsCaughtUp(now_ns, timeout_ns) &&
         now_ns - detector_.peer_heard_ns(member) <= timeout_ns;
}

void Raft::AppendConfiguration(Context& context, const Configuration& next) {
  AppendToLog(context, {.term = term_,
                        .index = log_.last_index().Next(),
                        .kind = EntryKind::kConfiguration,
                        .payload = Payload(EncodeConfiguration(next))});
  ReplicateToAll(context);
}

void Raft::ConfigurationChanged(Context& context) {
  RefreshPeers(context.now_ns);
  LeaderChangedForReads(context);
  context.out.configuration = configuration();
}

// A member that leaves receives the configuration without it until that is committed, and nothing after that.
void Raft::RefreshPeers(uint64_t now_ns) {
  const Configuration& now = configuration();
  self_ = now.SlotOf(options_.self);
  peers_ = now.all() & ~(configuration_committed() ? now.leaving : 0);
  if (self_ != kNoMember) peers_ &= ~(1u << self_);
  for (const Member& member : now.members) {
    if (measured_[member.slot] != member.id) detector_.ForgetRoundTrips(member.slot);
    measured_[member.slot] = member.id;
  }
  detector_.SetVoters(self_, now.voters, now.next_voters);
  if (role_ != Role::kLeader) return;
  // A leader that removes itself leads until that entry is committed, and then steps down.
  HEDGEROW_CHECK(self_ != kNoMember);
  // A member that left and comes back starts from scratch: what it waited for has passed.
  for (size_t slot = 0; slot < HR_RAFT_MAX_MEMBERS; ++slot) {
    const NodeId id = IsPeer(slot) ? NodeAt(slot) : NodeId();
    if (followed_[slot] == id) continue;
    followed_[slot] = id;
    progress_[slot] = Progress(log_.last_index(), now_ns);
    detector_.WatchPeer(slot, now_ns);
  }
}

// After each step: what follows from the commitment of the latest configuration (dissertation section 4.3). A
// transfer comes before another entry (section 3.10), which would leave its target with the shorter log: the
// next leader appends it then, or this one when the transfer is given up. A leader that is no member
// steps down all the same.
void Raft::LeadConfiguration(Context& context) {
  if (role_ != Role::kLeader || !configuration_committed() || commit_ < term_start_) return;
  if (configuration().joint()) {
    if (transfer_target_.IsSet()) return;
    AppendConfiguration(context, AfterJoint(configuration()));
  } else if (!votes_itself()) {
    HandOver(context);
  }
}

// Dissertation section 4.2.2. The most advanced successor need not wait for its election timeout. Of several,
// it is the target of a transfer under way, so that two do not stand at once.
void Raft::HandOver(Context& context) {
  size_t best = kNoMember;
  ForEach(peers_ & configuration().voters, [&](size_t member) {
    const bool further = best == kNoMember || progress_[member].match() > progress_[best].match();
    const auto chosen = [&] {
      return NodeAt(member) == transfer_target_ && progress_[member].match() == progress_[best].match();
    };
    if (further || chosen()) best = member;
  });
  if (best != kNoMember) Send(context, NodeAt(best), TimeoutNow{});
  BecomeFollower(context, term_, NodeId());
}

// Dissertation section 4.2.2: a voter whose log removes it still stands, without a vote of its own, until that
// entry is committed. It may be the only node with a log that is long enough to win the votes of the new voters
// (figure 4.6).
bool Raft::may_stand() const {
  if (!may_lead_) return false;
  if (self_ == kNoMember || votes_itself()) return self_ != kNoMember;
  if (configuration_committed() || ((configuration().leaving >> self_) & 1) == 0) return false;
  return ((configurations_.At(configurations_.latest_index().Previous()).deciding() >> self_) & 1) != 0;
}

// Dissertation section 4.1: requests are taken from any node, since this node may not have heard yet of a
// configuration that contains the sender; the epoch of the request says so. If it is no newer than what is
// committed here, the sender has been removed, or lacks what is committed and cannot be elected. Answers are
// taken from members only.
bool Raft::MayHear(const Message& message) const {
  if (IsPeer(MemberOf(message.from))) return true;
  // The last message of a leader that leaves may come after the news that its removal is committed.
  if (std::holds_alternative<TimeoutNow>(message.body) && message.from == leader_ && message.term == term_) return true;
  const bool asks = std::holds_alternative<VoteRequest>(message.body) ||
                    std::holds_alternative<AppendRequest>(message.body) ||
                    std::holds_alternative<Heartbeat>(message.body);
  return asks && message.config_epoch > configurations_.At(commit_).epoch;
}

}  // namespace hedgerow::raft
