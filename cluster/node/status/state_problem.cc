// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/status/state_problem.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace hedgerow::node {

std::string DivergedProblem(const kv::StateChecks& checks) {
  if (checks.wrong_since() != raft::LogIndex()) {
    return absl::StrCat(
        "since entry ", checks.wrong_since().value(),
        " at the latest the data of this node is not that of the majority. It answers no client and does not lead; the "
        "leader sends it a snapshot, by which it is mended. Look at the memory of its host (docs/cluster.md, \"After a "
        "bad day\")");
  }
  if (!checks.outside().empty()) {
    const auto name = [](std::string* out, const auto& node) { absl::StrAppend(out, node.first.value()); };
    return absl::StrCat("the data of node ", absl::StrJoin(checks.outside(), ", ", name),
                        " is not that of the majority, as entry ", checks.outside().begin()->second.value(),
                        " of the log says. It answers no client until the leader's snapshot has mended it");
  }
  if (checks.undecided() == raft::LogIndex()) return "";
  return absl::StrCat(
      "after entry ", checks.undecided().value(),
      " no majority of the voters has the same data, so nobody can tell which is right. Take a backup of each, compare "
      "them, and put a new member in the place of the wrong one (docs/cluster.md, \"After a bad day\")");
}

std::string UnreadableProblem(raft::LogIndex entry) {
  return absl::StrCat("entry ", entry.value(),
                      " of the log holds a command that this build cannot read: a member of a later version "
                      "has proposed it. The node "
                      "applies nothing from there on, answers no client and does not lead. Upgrade it to the "
                      "version of the others");
}

}  // namespace hedgerow::node
