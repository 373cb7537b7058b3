// SPDX-License-Identifier: Apache-2.0
//
// Leadership goes to another node: because an administrator asks for it, or because this node stops, so that
// clients need not wait for an election timeout. Part of Node, on the loop's thread but for Transfer.

#include "absl/strings/str_cat.h"
#include "cluster/node/node.h"

namespace hedgerow::node {
namespace {

// Leadership is handed on within this, or the node stops with it: the others will then find out by themselves.
constexpr uint64_t kHandOver_ns = 1'000'000'000;

}  // namespace

// A leader that stops hands over first, so that clients need not wait for an election timeout.
bool Node::MayStop() {
  if (replica_.raft().role() != raft::Role::kLeader || replica_.raft().peers() == 0) return true;
  if (stop_by_ns_ == 0) stop_by_ns_ = now_ns_ + kHandOver_ns;
  if (now_ns_ >= hand_over_again_ns_) {
    // The core gives a transfer an election timeout. If that has passed, its target was dead, and may not be
    // known to be yet.
    hand_over_again_ns_ = now_ns_ + 2 * replica_.raft().detector().network_timeout_ns();
    const raft::NodeId target = replica_.raft().Successor(now_ns_, handed_over_to_);
    if (!target.IsSet() || !TransferNow(target).ok()) return true;
    handed_over_to_ = target;
  }
  return now_ns_ >= stop_by_ns_;
}

absl::Status Node::Transfer(raft::NodeId target) {
  return Ask<absl::Status>([this, target] { return TransferNow(target); }).value_or(Late());
}

absl::Status Node::TransferNow(raft::NodeId target) {
  const raft::Raft& raft = replica_.raft();
  if (absl::Status leads = CheckLeads(); !leads.ok()) return leads;
  const raft::Member* const member = raft.configuration().Find(target);
  if (target == config_.self) return absl::InvalidArgumentError("this node leads already");
  if (target.IsSet() && member == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("node ", target.value(), " is no member"));
  }
  if (target.IsSet() && ((raft.configuration().deciding() >> member->slot) & 1) == 0) {
    return absl::InvalidArgumentError(absl::StrCat("node ", target.value(), " is a learner; promote it first"));
  }
  if (!target.IsSet()) target = raft.Successor(now_ns_, raft::NodeId());
  if (!target.IsSet()) return absl::FailedPreconditionError("no other member answers");
  replica_.Feed(raft::TransferLeadership{.target = target});
  replica_.Settle();
  return absl::OkStatus();
}

}  // namespace hedgerow::node
