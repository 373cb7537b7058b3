// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/status/status_message.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cluster/node/status/stall_problem.h"
#include "config/scalar.h"
#include "cluster/wire/key.h"
#include "operate/version.h"

namespace hedgerow::node {
namespace {

// A node that starts greets all members at once and again after a
// lost datagram; later than this something is wrong.
constexpr uint64_t kGreetingTimeout_ns = 5'000'000'000;
// Silence that an operator may like to know of, however short elections are.
constexpr uint64_t kSilenceMin_ns = 1'000'000'000;

std::string CounterKey(const NodeCounter& counter) {
  std::string key = counter.name;
  if (!counter.reason.empty())
    absl::StrAppend(&key, ".", counter.label == "reason" ? "" : counter.label + "=", counter.reason);
  if (counter.peer.IsSet()) absl::StrAppend(&key, "@", counter.peer.value());
  return key;
}

std::string PeerProblem(const NodeStatus& status, const v1::Peer& peer) {
  const std::string name = absl::StrCat("node ", peer.id(), " (", peer.address(), ")");
  if (peer.lost()) {
    return absl::StrCat(name,
                        " is LOST: what it promised is gone, and it takes part in nothing. Its own status says why, "
                        "and what to do");
  }
  if (!status.lost.empty() || !status.removed.empty()) return "";
  if (!peer.incompatible().empty())
    return absl::StrCat("nothing that ", name, " sends is believed: it ", peer.incompatible());
  if (!peer.excluded_at().empty())
    return absl::StrCat(
        name, " sends from ", peer.excluded_at(),
        ", and this node's `peer_clients` does not list that address: nothing of it is heard. If it is that node's own, list it, or let "
        "the node send from a listed one");
  if (peer.heard_ago_ns() < 0) {
    if (status.uptime_ns < kGreetingTimeout_ns) return "";
    return absl::StrCat(
        "nothing that can be believed has come from ", name,
        " yet: does it run, and has it the same cluster_id and cluster key?",
        status.cluster_epoch == 0
            ? " If another member's `status` has a line `epoch`, the cluster was recovered, and this folder "
              "is "
              "not of it"
            : " This cluster was recovered: its `status` must show the same line `epoch`");
  }
  if (const std::string& where = peer.answers_at(); !where.empty()) {
    return absl::StrCat(name, " answers at ", where, " instead: `members move ", peer.id(), " ", where,
                        "` at the leader, or start it at the address that the others know");
  }
  // Followers have nothing to say to each other.
  if (status.role != raft::Role::kLeader) return "";
  if (peer.heard_ago_ns() <= static_cast<int64_t>(std::max(kSilenceMin_ns, status.election_timeout_ns))) return "";
  return absl::StrCat(name, " is silent for ", config::RoundedDurationNs(peer.heard_ago_ns()));
}

// A cluster is mixed while it is upgraded. Empty: all that have told run the same build.
std::string BuildsNote(const NodeStatus& status) {
  std::map<std::string, std::vector<uint64_t>> nodes = {{operate::kVersion, {status.node.value()}}};
  for (const v1::Peer& peer : status.peers)
    if (!peer.build().empty()) nodes[peer.build()].push_back(peer.id());
  if (nodes.size() == 1) return "";
  return absl::StrCat("the nodes run different builds: ",
                      absl::StrJoin(nodes, ", ", [](std::string* out, const auto& build) {
                        absl::StrAppend(out, build.first, " (node ", absl::StrJoin(build.second, ", "), ")");
                      }));
}

}  // namespace

NodeFacts FactsOf(const NodeConfig& config) {
  return {.cluster_id = config.cluster_id, .durability = config.durability, .serve = config.own().serve};
}

absl::string_view RoleWord(raft::Role role) {
  switch (role) {
    case raft::Role::kFollower: return "follower";
    case raft::Role::kPreCandidate: return "pre_candidate";
    case raft::Role::kCandidate: return "candidate";
    case raft::Role::kLeader: return "leader";
  }
  return "unknown";
}

std::string KeyIdText(uint32_t id) { return id == 0 ? "" : wire::FormatKeyId(id); }

std::string WhyClusterLost(const NodeStatus& status, size_t members) {
  // A learner decides nothing, lost or not. A node that does not know the members' roles takes all of them for
  // voters.
  const auto decides = [&status](raft::NodeId id) {
    for (const v1::Member& member : status.members) {
      if (member.id() == id.value()) return member.role() == "voter" || member.role() == "leaving";
    }
    return status.members.empty();
  };
  std::vector<std::string> lost;
  if (!status.lost.empty() && decides(status.node)) lost.push_back("this one");
  for (const v1::Peer& peer : status.peers) {
    if (peer.lost() && decides(raft::NodeId(peer.id()))) lost.push_back(absl::StrCat(peer.id()));
  }
  if (lost.empty() || 2 * (members - std::min(members, lost.size())) > members) return "";
  return absl::StrCat("of ", members, " nodes, ", lost.size(), " have lost what they promised (",
                      absl::StrJoin(lost, ", "),
                      "): the cluster cannot go on by itself. `hedgerow-node recover` makes a cluster of what is left "
                      "(docs/cluster.md, \"After a bad day\")");
}

v1::NodeStatus ToMessage(const NodeStatus& status, const NodeFacts& facts) {
  v1::NodeStatus out;
  out.set_version(operate::kVersion);
  out.set_cluster_id(absl::StrCat(facts.cluster_id));
  out.set_node(status.node.value());
  out.set_role(!status.lost.empty()       ? "lost"
               : !status.removed.empty()  ? "removed"
               : !status.starting.empty() ? "starting"
                                          : std::string(RoleWord(status.role)));
  out.set_ready(status.ready && status.removed.empty());
  out.set_cluster_epoch(status.cluster_epoch);
  if (status.cluster_epoch != 0) out.set_beginning(absl::StrFormat("%016x", status.recovery_nonce));
  out.set_lost(status.lost);
  out.set_cluster_lost(status.cluster_lost);
  if (!status.lost.empty()) out.add_problems(absl::StrCat("LOST: ", status.lost));
  out.set_starting(status.starting);
  if (!status.start_stalled.empty()) out.add_problems(status.start_stalled);
  out.set_removed(status.removed);
  if (!status.removed.empty()) out.add_problems(absl::StrCat("REMOVED: ", status.removed));
  if (!status.cluster_lost.empty()) out.add_problems(absl::StrCat("LOST: ", status.cluster_lost));
  out.set_term(status.term.value());
  out.set_leader(status.leader.value());
  if (!status.unreadable.empty()) out.add_problems(status.unreadable);
  if (!status.diverged.empty()) out.add_problems(absl::StrCat("DIVERGED: ", status.diverged));
  if (!status.storage.empty()) out.add_problems(absl::StrCat("storage: ", status.storage));
  for (const std::string& problem : StallProblems(status)) out.add_problems(problem);
  for (const std::string& problem : status.refused) out.add_problems(problem);
  for (const std::string& problem : status.not_served) out.add_problems(problem);
  out.set_leaderless_ns(static_cast<int64_t>(status.leaderless_ns));
  out.set_commit_stalled_ns(static_cast<int64_t>(status.commit_stalled_ns));
  out.set_disk_stalled_ns(static_cast<int64_t>(status.disk_stalled_ns));
  out.set_commit(status.commit.value());
  out.set_applied(status.applied.value());
  out.set_last_index(status.last_index.value());
  out.set_durable_index(status.durable_index.value());
  out.set_election_timeout_ns(static_cast<int64_t>(status.election_timeout_ns));
  out.set_led_since_ns(status.led_since_ns);
  out.set_sessions(status.sessions);
  out.set_waiting(status.waiting);
  out.set_durability(std::string(Name(facts.durability)));
  out.set_serve(facts.serve.ToString());
  out.set_metrics(status.metrics);
  out.set_pid(getpid());
  out.set_uptime_ns(static_cast<int64_t>(status.uptime_ns));
  *out.mutable_peers() = status.peers;
  for (const v1::Peer& peer : status.peers) {
    if (const std::string problem = PeerProblem(status, peer); !problem.empty()) out.add_problems(problem);
  }
  *out.mutable_keys() = status.keys;
  *out.mutable_members() = status.members;
  out.set_config_epoch(status.config_epoch);
  out.set_committed_epoch(status.committed_epoch);
  out.set_joint(status.joint);
  *out.mutable_offloads() = status.offloads;
  *out.mutable_histograms() = status.histograms;
  for (v1::Histogram& histogram : *out.mutable_histograms()) {
    auto& buckets = *histogram.mutable_buckets();
    const auto empty = [](const v1::Histogram::Bucket& bucket) { return bucket.count() == 0; };
    buckets.erase(std::remove_if(buckets.begin(), buckets.end(), empty), buckets.end());
  }
  if (!status.snapshot_problem.empty()) out.add_problems(absl::StrCat("snapshots: ", status.snapshot_problem));
  *out.mutable_snapshots() = status.snapshots;
  if (status.snapshots.last_index() == 0) out.mutable_snapshots()->set_age_ns(-1);
  if (status.memory.limit_bytes() != 0) *out.mutable_memory() = status.memory;
  if (status.memcached.has_value()) *out.mutable_memcached() = *status.memcached;
  *out.mutable_settings() = status.settings;
  out.set_settings_version(status.settings_version);
  for (const std::string& note : status.notes) out.add_notes(note);
  if (const std::string note = BuildsNote(status); !note.empty()) out.add_notes(note);
  *out.mutable_incidents() = status.incidents;
  for (const NodeCounter& counter : status.counters) (*out.mutable_counters())[CounterKey(counter)] = counter.value;
  return out;
}

}  // namespace hedgerow::node
