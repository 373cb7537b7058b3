// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/stall_problem.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "config/scalar.h"

namespace hedgerow::node {
namespace {

std::string Duration(uint64_t duration_ns) {
  return config::RoundedDurationNs(static_cast<int64_t>(duration_ns));
}

bool Decides(const NodeStatus& status, raft::NodeId id) {
  return std::any_of(status.members.begin(), status.members.end(), [id](const MemberStatus& member) {
    return member.id == id && member.role != "learner" && member.role != "left";
  });
}

// Of the voters that this leader hears, those whose logs end before its own; and those that it does not hear.
std::string WhyNotCommitted(const NodeStatus& status) {
  if (status.disk_stalled_ns >= kStalledProblem_ns) return "this node's disk and those of others do not keep up";
  std::vector<std::string> behind;
  for (const PeerStatus& peer : status.peers) {
    const bool heard = peer.heard_ago_ns.has_value() && *peer.heard_ago_ns < kStalledProblem_ns;
    if (!Decides(status, peer.id) || !heard || peer.match.value_or(raft::LogIndex()) >= status.last_index) continue;
    behind.push_back(absl::StrCat("node ", peer.id.value()));
  }
  if (behind.empty()) return "too few members answer";
  return absl::StrCat(absl::StrJoin(behind, " and "), behind.size() == 1 ? " answers" : " answer",
                      " heartbeats and ", behind.size() == 1 ? "does" : "do",
                      " not acknowledge entries: a disk there is full or hangs (see its `status`), or the network drops "
                      "larger datagrams to port 4802");
}

}  // namespace

std::string DiskProblem(uint64_t disk_stalled_ns) {
  if (disk_stalled_ns < kStalledProblem_ns) return "";
  return absl::StrCat("a write to data_dir has not finished for ", Duration(disk_stalled_ns),
                      ": the disk hangs or is far too slow");
}

std::vector<std::string> StallProblems(const NodeStatus& status) {
  std::vector<std::string> problems;
  if (!status.lost.empty()) return problems;
  if (status.commit_stalled_ns >= kStalledProblem_ns) {
    problems.push_back(absl::StrCat("nothing has been committed for ", Duration(status.commit_stalled_ns), " while ",
                                    status.last_index.value() - status.commit.value(), " entries wait: ",
                                    WhyNotCommitted(status)));
  }
  if (status.leaderless_ns >= kLeaderlessProblem_ns) {
    problems.push_back(absl::StrCat("no leader is known for ", Duration(status.leaderless_ns),
                                    ", so nothing is written or read here: a majority of the voters must run, reach each "
                                    "other and have disks that work"));
  }
  return problems;
}

}  // namespace hedgerow::node
