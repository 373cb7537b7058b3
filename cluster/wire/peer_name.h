// SPDX-License-Identifier: Apache-2.0
//
// The DNS name by which a member's TLS certificate names it: a pattern with the member's id, the same on all nodes. So
// a member that is added later needs no entry on the others. Used by the reader of configurations and by both ends of a
// transfer. Pure.

#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "cluster/raft/types.h"

namespace hedgerow::wire {

// Stands for the member's id.
inline constexpr char kNodeInName[] = "{node}";

// "node-{node}.hedgerow" makes node 2 "node-2.hedgerow".
inline std::string PeerName(absl::string_view pattern, raft::NodeId node) {
  return absl::StrReplaceAll(pattern, {{kNodeInName, absl::StrCat(node.value())}});
}

}  // namespace hedgerow::wire
