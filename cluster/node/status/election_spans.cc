// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/status/election_spans.h"

#include <algorithm>
#include <variant>

namespace hedgerow::node {

bool ElectionSpans::Asks(const raft::Outputs& outputs, bool pre_vote) {
  return std::any_of(outputs.send.begin(), outputs.send.end(), [pre_vote](const raft::Message& message) {
    const auto* request = std::get_if<raft::VoteRequest>(&message.body);
    return request != nullptr && request->pre_vote == pre_vote;
  });
}

bool ElectionSpans::Concern(const raft::Outputs& outputs) {
  return outputs.role_change.has_value() || Asks(outputs, true) || Asks(outputs, false);
}

void ElectionSpans::Take(const raft::Outputs& outputs, uint64_t now_ns) {
  if (outputs.role_change.has_value()) {
    const raft::Role role = outputs.role_change->role;
    if (role == raft::Role::kCandidate && pre_vote_ns_ != 0) pre_vote_.Record(now_ns - pre_vote_ns_);
    if (role == raft::Role::kLeader && vote_ns_ != 0) vote_.Record(now_ns - vote_ns_);
    pre_vote_ns_ = vote_ns_ = 0;
  }
  if (Asks(outputs, true)) pre_vote_ns_ = now_ns;
  if (Asks(outputs, false)) vote_ns_ = now_ns;
}

void ElectionSpans::AddTo(NodeStatus& status) const {
  pre_vote_.AddTo(status.histograms, "pre_vote_quorum");
  vote_.AddTo(status.histograms, "vote_quorum");
}

}  // namespace hedgerow::node
