// SPDX-License-Identifier: Apache-2.0
//
// How a node that is LOST comes back: under another id, as a learner with an empty log, in the same folder.
// What was there is kept in a folder of its own. From then on the folder's identity says which member the node is,
// whatever the configuration file calls it. main.cc calls these; docs/cluster.md tells the operator.

#pragma once

#include "absl/status/status.h"
#include "cluster/node/config/config.h"
#include "cluster/raft/types.h"
#include "cluster/storage/storage_options.h"

namespace hedgerow::node {

// Under which id, and in which cluster: the log that it begins is of the same recovery generation as the one
// that is lost.
struct Rejoin {
  raft::NodeId as{};
  storage::RecoveryGeneration generation{};

  bool operator==(const Rejoin&) const = default;
};

// Moves everything in the folder of `config`, which is the member's that was LOST, to `lost-as-ID` in it, and
// records the node's id in a new identity. `called`: by the configuration file. What is cut short is finished
// by FollowRejoin at the next start.
absl::Status BeginRejoin(const NodeConfig& config, raft::NodeId called, const Rejoin& rejoin);

// If the node has rejoined: `config` becomes the one of the member that it is now, which joins. To be called
// before anything else is done with its folder.
absl::Status FollowRejoin(NodeConfig& config);

}  // namespace hedgerow::node
