// SPDX-License-Identifier: Apache-2.0
//
// What a node tells about itself, and what it can be told. The loop fills a NodeStatus; the administration
// service, the command line and the metrics show it, each in its own form (status_message.h, status_text.h,
// metrics.h). docs/cluster.md and docs/metrics.md say what the numbers mean to an operator.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cluster/api/node.pb.h"
#include "cluster/kv/settings.h"
#include "cluster/node/net/net_address.h"
#include "cluster/raft/configuration.h"
#include "cluster/raft/types.h"

namespace hedgerow::node {

// Grows from the process's start. `name` is snake_case without unit prefix or "_total" ("hkv_requests"); where
// one name counts several kinds of a thing, `reason` tells them apart ("peer_dropped", "replayed"), and `peer`
// does for what is counted by peer. The same (name, reason, peer) twice is a mistake.
struct NodeCounter {
  NodeCounter(std::string name, uint64_t value, std::string reason = "", raft::NodeId peer = raft::NodeId())
      : name(std::move(name)), value(value), reason(std::move(reason)), peer(peer) {}

  std::string name;
  uint64_t value;
  std::string reason;
  raft::NodeId peer;
  std::string label = "reason";  // what `reason` is called
};

// What is shown as it is found is the message's own part (cluster/api/node.proto).
struct NodeStatus {
  template <typename Message>
  using List = google::protobuf::RepeatedPtrField<Message>;

  raft::NodeId node{};
  raft::Role role = raft::Role::kFollower;
  raft::Term term{};
  raft::NodeId leader{};  // not set: no leader is known
  // A leader is known, and everything is applied that was known to be
  // committed when the first one was (Readiness).
  bool ready = false;

  raft::LogIndex commit{};
  raft::LogIndex applied{};
  raft::LogIndex last_index{};
  raft::LogIndex durable_index{};
  uint64_t election_timeout_ns = 0;
  uint64_t led_since_ns = 0;  // on the host's CLOCK_MONOTONIC; 0: it does not lead

  uint64_t sessions = 0;     // open
  uint64_t waiting = 0;      // requests that wait for an outcome
  std::string storage = "";  // a sentence about what is wrong; empty: nothing is
  uint64_t uptime_ns = 0;

  // What stands still (stall_problem.h); 0: it does not.
  uint64_t leaderless_ns = 0;      // since a leader was last known
  uint64_t commit_stalled_ns = 0;  // while this node leads: entries wait, and none has been committed
  uint64_t disk_stalled_ns = 0;    // the oldest write is not durable
  // Writes that came to nothing here since the last one that was done, if any did lately; and from the first of them to
  // the last.
  uint64_t failing_writes = 0;
  uint64_t failing_ns = 0;
  std::vector<std::string> full{};  // sentences: a limit of the cluster is reached, and writes are refused for it

  List<v1::Peer> peers{};  // the other members
  List<v1::Offload> offloads{};
  std::vector<NodeCounter> counters{};
  // How long something took, from the process's start on, with all buckets. Named like a counter, without "_seconds"
  // ("storage_sync").
  List<v1::Histogram> histograms{};
  List<v1::Incident> incidents{};  // the latest, newest first
  v1::Snapshots snapshots{};
  std::string snapshot_problem{};           // a sentence; empty: nothing is wrong
  uint64_t snapshot_held_bytes = 0;         // in memory beside the state, by the one that is taken
  int64_t snapshot_certificate_ends_s = 0;  // in Unix time; 0: there is no TLS
  v1::Keys keys{};
  std::optional<v1::Memcached> memcached{};  // if it is on
  v1::Memory memory{};                       // limit_bytes 0: a node that takes part in nothing has no store

  List<v1::Setting> settings{};
  std::string diverged{};              // a sentence: whose state is not the majority's; empty: none is known
  std::string unreadable{};            // a sentence: an entry that this build cannot read; empty: there is none
  bool outside_majority = false;       // this node's is not: it answers no client until it is mended
  uint64_t settings_version = 0;       // grows with each change; 0: the cluster has not set them yet
  std::vector<std::string> refused{};  // sentences: clients are refused, and it may be this node's fault
  std::vector<std::string> notes{};    // sentences about what an operator may want to know; nothing is wrong

  List<v1::Member> members{};    // with this node, if it is one
  uint32_t config_epoch = 0;     // grows with each change of membership
  uint32_t committed_epoch = 0;  // less: a change is under way
  bool joint = false;            // two configurations decide together
  bool joins = false;            // it waits to be added to a cluster
  uint64_t cluster_epoch = 0;    // which recovery generation of the cluster this node is of (docs/adr/0019)
  uint64_t recovery_nonce = 0;
  // Sentences; empty: it is not. What this node has promised is lost, and it takes part in nothing; or, the
  // cluster cannot go on by itself.
  std::string lost{};
  std::string cluster_lost{};
  std::string starting{};  // "reads the log in ...": it is not there yet, and this is what its start does; empty: it is
  std::string start_stalled{};            // a sentence; empty: the start goes on
  std::string metrics{};                  // where the exporter really listens; empty: nowhere
  std::vector<std::string> not_served{};  // sentences: pages and sockets for operators that this node serves without
  std::string removed{};  // a sentence: this node is no member any more; empty: it is, or it has never been one
};

// Another member, of which nothing is known yet but its address by the configuration.
inline v1::Peer& AddPeer(NodeStatus& status, raft::NodeId id, const NetAddress& address) {
  v1::Peer& peer = *status.peers.Add();
  peer.set_id(id.value());
  peer.set_address(address.ToString());
  peer.set_heard_ago_ns(-1);
  peer.set_round_trip_ns(-1);
  return peer;
}

// Counters of one name, by reason.
inline void AddCounts(NodeStatus& status, const std::string& name,
                      std::initializer_list<std::pair<const char*, uint64_t>> counts) {
  for (const auto& [reason, value] : counts) status.counters.emplace_back(name, value, reason);
}

// One piece of a file after the other, in order; an empty one is the end. Any one thread at a time, as long as
// the node is there.
using BackupPieces = std::function<absl::StatusOr<std::string>()>;

// Why a node that does not lead refuses what only a leader does: FailedPrecondition names the leader (`leader`, as this
// node knows it); Aborted: no node leads now, ask again.
inline absl::Status NotLeading(raft::NodeId leader) {
  if (!leader.IsSet()) return absl::AbortedError("no node leads now; ask again");
  return absl::FailedPreconditionError(absl::StrCat("node ", leader.value(), " leads; ask it"));
}

// Why a node refuses what only a node that is there does. `starting`: NodeStatus::starting.
inline absl::Status StartingError(absl::string_view starting) {
  return absl::FailedPreconditionError(absl::StrCat("the node is starting, and does not do that yet: it ", starting,
                                                    ". `hedgerow-node status` shows how far it is"));
}

// Implemented by the loop; by a fake in tests. All functions may be called from any thread but the loop's own,
// at any time between the start and the end of the administration server and the metrics exporter, which must
// end first. They return within a few seconds, whatever the loop does.
class NodeControl {
 public:
  virtual ~NodeControl() = default;

  // Of one moment. DeadlineExceeded if the loop does not answer in time.
  virtual absl::StatusOr<NodeStatus> Status() = 0;

  // Another one that does the rest in this one's place; null: none does (yet).
  virtual NodeControl* Behind() { return nullptr; }

  // Asks the members which keys they have, twice a second at most; a later Status() has their answers.
  virtual void AskForKeys() {
    if (Behind()) Behind()->AskForKeys();
  }

  // What a node answers to the rest that takes part in nothing: why.
  virtual absl::Status Refusal() { return absl::UnimplementedError("this node does not do that"); }

  // Begins to hand leadership to this member, or to the most advanced member if that is not set; Ok does not mean
  // that it has come to pass: Status() will tell. NotLeading if this node does not lead,
  // InvalidArgument if the target is no other member.
  virtual absl::Status Transfer(raft::NodeId to) { return Behind() ? Behind()->Transfer(to) : Refusal(); }

  // The last snapshot as a file to recover a cluster from (docs/adr/0019). FailedPrecondition: there is none
  // yet.
  virtual absl::StatusOr<BackupPieces> OpenBackup() { return Behind() ? Behind()->OpenBackup() : Refusal(); }
  // Begins to take a snapshot, unless one is being taken. Done once Status() shows one at this index or a later
  // one, which it does at once if nothing was applied since the last.
  virtual absl::StatusOr<raft::LogIndex> TakeSnapshot() { return Behind() ? Behind()->TakeSnapshot() : Refusal(); }
  // Begins a change of membership, all of it in one step. It is done once Status() tells of a committed epoch
  // that is the returned one or later. NotLeading if this node does not lead, FailedPrecondition if what came
  // before is not done, InvalidArgument if the change makes no sense.
  virtual absl::StatusOr<uint32_t> ChangeMembers(std::vector<raft::MemberChange> changes) {
    return Behind() ? Behind()->ChangeMembers(std::move(changes)) : Refusal();
  }
  // Proposes other values for some of the cluster's settings; the reply says how to see that they hold. NotLeading if
  // this node does not lead, Aborted if earlier ones wait to be proposed.
  virtual absl::StatusOr<v1::ChangeSettingsReply> ChangeSettings(kv::SettingValues values) {
    return Behind() ? Behind()->ChangeSettings(std::move(values)) : Refusal();
  }
  // Reads the key files again and goes by them from now on. InvalidArgument: a file holds no keys. FailedPrecondition,
  // unless `force`: a member would not be understood, or would not understand this node (node_keys.h); nothing has
  // changed then.
  virtual absl::StatusOr<v1::Keys> ReloadKeys(bool force) { return Behind() ? Behind()->ReloadKeys(force) : Refusal(); }
  // Proposes to delete some hundreds of the keys with this prefix. NotLeading if this node does not lead, Aborted if
  // earlier ones wait to be proposed.
  virtual absl::StatusOr<v1::PurgeSomeReply> PurgeSome(const v1::PurgeSomeRequest& request) {
    return Behind() ? Behind()->PurgeSome(request) : Refusal();
  }
};

// Decides NodeStatus::ready. Fed by the loop whenever it looks at its
// status or more often; one per incarnation of the process.
class Readiness {
 public:
  bool Observe(raft::NodeId leader, raft::LogIndex commit, raft::LogIndex applied) {
    if (!leader.IsSet()) return false;
    // A log that has just been opened knows of no commit (dissertation section 3.8); the leader tells.
    if (!target_.has_value() && commit > raft::LogIndex()) target_ = commit;
    return target_.has_value() && applied >= *target_;
  }

 private:
  std::optional<raft::LogIndex> target_;
};

}  // namespace hedgerow::node
