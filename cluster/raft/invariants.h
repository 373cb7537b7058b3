// SPDX-License-Identifier: Apache-2.0
//
// The properties of Raft figure 3, and those of membership changes (dissertation chapter 4), checked over a
// whole cluster as it runs, from observations that share no code with the core but the bytes of a
// configuration. A majority is always one of the configuration in the log of the node that claims it.
// Incremental: each observation costs time in proportion to what changed, so that it can follow every simulated
// step. Used by the simulator and the core's own tests.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cluster/raft/outputs.h"
#include "cluster/raft/raft.h"
#include "cluster/raft/types.h"

namespace hedgerow::raft {

class InvariantChecker {
 public:
  // Empty while everything holds; else the first violation, in one line.
  const std::string& violation() const { return violation_; }

  // A node starts with what its disk holds.
  void Started(const Raft& node, NodeId id);
  // After every step of a node, with what the step put out.
  void Stepped(const Raft& node, NodeId id, const Outputs& outputs);

  // What a node's kernel part has decided to answer, as soon as it has: a promise like the process's.
  void KernelDecided(NodeId id, const Message& answer);
  // A process that starts has taken over what its kernel part has promised.
  void Adopted(NodeId id);

  // This node's folder is empty. The next node with its id does not know its promises, so what that node says
  // must not count.
  void Emptied(NodeId id);

  // The cluster is recovered with all that this log holds, and no node is bound by an earlier promise.
  // Committed entries may not be missing from it.
  void Recovers(const RestoredState& log);
  // Whether every entry that is known to be committed is in this log.
  bool HoldsCommitted(const RestoredState& log) const { return !WithCommitted(log).empty() || committed_.empty(); }

  // The number of entries known to be committed anywhere.
  uint64_t committed() const { return committed_.size(); }

 private:
  // What identifies an entry: two that differ in content differ in this.
  struct Identity {
    Term term;
    uint64_t content = 0;
    bool operator==(const Identity&) const = default;
  };
  struct Node {
    std::vector<Identity> log;  // from index 1: what the node has compacted was committed, and is taken from there
    Term term;
    Term promised_term;  // the largest that it voted or acknowledged in: never again below it
    Term process_term;   // the same without what its kernel part has promised
    LogIndex commit;
    LogIndex applied;
    bool leads = false;
    // The last entry that its kernel part has acknowledged, while no leader has contradicted it.
    EntryId acknowledged;
    // Snapshots that took the place of its log and may not have reached the disk: where that begins, and what
    // had been acknowledged before.
    std::vector<std::pair<LogIndex, EntryId>> installed;
    // The configurations of its log with their indices; the first is that of its beginning.
    std::vector<std::pair<LogIndex, Configuration>> configurations;
    const Configuration& configuration() const { return configurations.back().second; }
  };

  void LogChanged(Node& node, NodeId id, const Persist& persist);
  bool IsCommitted(const EntryId& entry) const;
  std::vector<Identity> WithCommitted(const RestoredState& log) const;
  void StartsAfter(Node& node, NodeId id, const NewStart& start);
  void Append(Node& node, NodeId id, const Entry& entry);
  void Committed(Node& node, NodeId id, LogIndex commit);
  void Applied(Node& node, NodeId id, const std::vector<Entry>& entries);
  void BecameLeader(Node& node, NodeId id);
  void Said(Node& node, NodeId id, const Message& message);
  void Voted(Node& node, NodeId id, Term term, NodeId candidate);
  void MajorityHas(const Node& leader, NodeId id, LogIndex commit);
  void MajorityVoted(const Node& leader, NodeId id);
  void ConfigurationAppended(Node& node, NodeId id, const Entry& entry, bool fresh);
  void ConfigurationFollowed(const Node& seen, NodeId id, const Raft& node);
  const Configuration* CommittedConfiguration(LogIndex index) const;
  void SnapshotHas(NodeId id, const Snapshot& snapshot);
  void LeaderHasCommitted(const Node& leader, NodeId id, uint64_t from);

  template <typename... Parts>
  void Fail(const Parts&... parts) {
    if (violation_.empty()) violation_ = absl::StrCat(parts...);
  }

  std::map<NodeId, Node> nodes_;
  std::map<Term, NodeId> leaders_;
  std::map<std::pair<NodeId, Term>, NodeId> votes_;
  // Log Matching by induction: an entry fixes its content and its predecessor's term.
  struct Fixed {
    uint64_t content;
    Term previous;
  };
  std::unordered_map<uint64_t, Fixed> entries_;  // by index and term
  std::vector<Identity> committed_;
  std::map<LogIndex, Configuration> committed_configurations_;  // at 0 the one that it began with
  std::string violation_;
};

}  // namespace hedgerow::raft
