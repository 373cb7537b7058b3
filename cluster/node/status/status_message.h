// SPDX-License-Identifier: Apache-2.0
//
// A node's status as the message that crosses the administration socket, with what
// the loop need not know: how the node is configured, and what is worth an operator's
// attention. Pure but for the process id. Called by the administration server.

#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "cluster/api/node.pb.h"
#include "cluster/node/config/config.h"
#include "cluster/node/status/status.h"

namespace hedgerow::node {

// What does not change while the process lives.
struct NodeFacts {
  uint64_t cluster_id = 0;
  Durability durability = Durability::kDisk;
  NetAddress serve{};  // where clients reach it
};
NodeFacts FactsOf(const NodeConfig& config);

v1::NodeStatus ToMessage(const NodeStatus& status, const NodeFacts& facts);

// Of a wire::KeyId; 0, no key: empty.
std::string KeyIdText(uint32_t id);

// Why so many of `members` say that they are lost that no majority can come back; empty: they are not so many.
std::string WhyClusterLost(const NodeStatus& status, size_t members);

// "follower", "pre_candidate", "candidate", "leader".
absl::string_view RoleWord(raft::Role role);

}  // namespace hedgerow::node
