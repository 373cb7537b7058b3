// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target for configurations, which come from logs, snapshots and other nodes: any bytes are refused
// or decoded, what is decoded encodes to the same bytes, and what follows from it can be encoded, too.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "cluster/raft/configuration.h"

using hedgerow::raft::ChangeRefusal;
using hedgerow::raft::ChangeResult;
using hedgerow::raft::Configuration;
using hedgerow::raft::MemberChange;
using hedgerow::raft::NodeId;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::optional<Configuration> decoded = hedgerow::raft::DecodeConfiguration(bytes);
  if (!decoded.has_value()) return 0;
  if (hedgerow::raft::EncodeConfiguration(*decoded) != bytes) abort();
  if (decoded->joint()) {
    hedgerow::raft::EncodeConfiguration(hedgerow::raft::AfterJoint(*decoded));
    return 0;
  }
  for (const auto kind : {MemberChange::Kind::kAddLearner, MemberChange::Kind::kPromote, MemberChange::Kind::kRemove}) {
    const NodeId node = decoded->members.empty() ? NodeId(1) : decoded->members.back().id;
    const ChangeResult result = hedgerow::raft::Changed(*decoded, {{.kind = kind, .node = node}});
    if (result.refusal == ChangeRefusal::kNone) hedgerow::raft::EncodeConfiguration(result.next);
  }
  return 0;
}
