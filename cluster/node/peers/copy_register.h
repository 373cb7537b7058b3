// SPDX-License-Identifier: Apache-2.0
//
// What Peers asks about copies of the log: which one this node has, and which ones the other members have, as they are
// recorded. A node's identity file answers (IdentityKeeper), or the simulator's memory. docs/SAFETY.md says why so.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "cluster/raft/types.h"

namespace hedgerow::node {

class CopyRegister {
 public:
  virtual ~CopyRegister() = default;

  virtual uint64_t copy_id() const = 0;
  virtual uint64_t starts() const = 0;  // of this node on this copy, the present one included
  // Which copy a member has, as it is recorded durably; 0: none is.
  virtual uint64_t CopyOf(raft::NodeId node) const = 0;
  // OK: it is durable. Unavailable: it is being written, and is to be asked again. Else the last write has failed.
  virtual absl::Status Record(raft::NodeId node, uint64_t copy_id) = 0;
  // The others are no members any more, and may come back with other copies.
  virtual void KeepOnly(const std::vector<raft::NodeId>& members) = 0;
};

}  // namespace hedgerow::node
