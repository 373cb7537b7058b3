// SPDX-License-Identifier: Apache-2.0
//
// A node's status as metric families; see metrics.h. A family that exists for some peers or reasons only is
// absent until there is a sample.

#include "cluster/node/status/metrics.h"

#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "operate/metric_family.h"
#include "operate/commit.h"
#include "operate/version.h"

namespace hedgerow::node {
namespace {

using operate::AddGauge;
using operate::Labels;
using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Families = std::vector<MetricFamily>;

double Seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

MetricFamily Family(absl::string_view name, absl::string_view help, MetricType type) {
  return operate::MakeFamily(absl::StrCat("hedgerow_node_", name), help, type);
}

// Each a family of one sample.
struct Gauges {
  Families& out;
  void operator()(absl::string_view name, absl::string_view help, double value) const {
    MetricFamily family = Family(name, help, MetricType::Gauge);
    AddGauge(family, {}, value);
    out.push_back(std::move(family));
  }
};

std::string Text(raft::NodeId id) { return absl::StrCat(id.value()); }

void Memory(const v1::Memory& memory, Families& out) {
  if (memory.limit_bytes() == 0) return;
  const Gauges gauge{out};
  gauge("memory_limit_bytes", "What the store may be charged; memory.limit_mib.",
        static_cast<double>(memory.limit_bytes()));
  gauge("memory_full", "1 while the store refuses what would store more.", memory.full() ? 1 : 0);
  if (memory.resident_bytes() != 0)
    gauge("memory_resident_bytes", "Resident pages of the process.", static_cast<double>(memory.resident_bytes()));
  if (memory.available_bytes() != 0)
    gauge("memory_available_bytes", "Of the host, or of a memory cgroup that has less.",
          static_cast<double>(memory.available_bytes()));
  MetricFamily charged = Family("memory_charged_bytes", "What the store is charged, by kind.", MetricType::Gauge);
  AddGauge(charged, {{"kind", "values"}}, static_cast<double>(memory.values_bytes()));
  AddGauge(charged, {{"kind", "sessions"}}, static_cast<double>(memory.sessions_bytes()));
  AddGauge(charged, {{"kind", "answers"}}, static_cast<double>(memory.answers_bytes()));
  AddGauge(charged, {{"kind", "items"}}, static_cast<double>(memory.items_bytes()));
  AddGauge(charged, {{"kind", "requests"}}, static_cast<double>(memory.requests_bytes()));
  out.push_back(std::move(charged));
}

void Node(const NodeStatus& status, const NodeFacts& facts, Families& out) {
  const Gauges gauge{out};
  const auto index = [](raft::LogIndex i) { return static_cast<double>(i.value()); };
  MetricFamily role = Family("role", "1 for the role the node is in.", MetricType::Gauge);
  for (const raft::Role word :
       {raft::Role::kFollower, raft::Role::kPreCandidate, raft::Role::kCandidate, raft::Role::kLeader}) {
    const bool takes_part = status.lost.empty() && status.removed.empty() && status.starting.empty();
    AddGauge(role, {{"role", std::string(RoleWord(word))}}, takes_part && status.role == word ? 1 : 0);
  }
  out.push_back(std::move(role));
  gauge("ready",
        "1 when a leader is known, what was committed at the start is applied, and the state is the majority's.",
        status.ready && status.removed.empty() ? 1 : 0);
  gauge("term", "The node's term.", static_cast<double>(status.term.value()));
  gauge("leader_id", "The node that leads as this one knows; 0: none.", static_cast<double>(status.leader.value()));
  gauge("commit_index", "The last log index known to be committed.", index(status.commit));
  gauge("applied_index", "The last log index that was applied here.", index(status.applied));
  gauge("last_index", "The last log index here.", index(status.last_index));
  gauge("durable_index", "The last log index that storage has reported durable here.", index(status.durable_index));
  gauge("election_timeout_seconds", "Silence of the leader after which an election begins; a wait is up to twice this.",
        Seconds(status.election_timeout_ns));
  gauge("sessions", "Open client sessions.", static_cast<double>(status.sessions));
  gauge("settings_version", "Counts the changes of the cluster's settings that were applied here; 0: none yet.",
        static_cast<double>(status.settings_version));
  gauge("requests_waiting", "Requests that wait for an outcome.", static_cast<double>(status.waiting));
  gauge("storage_ok", "0 while storage has a problem; `hedgerow-node status` says which.",
        status.storage.empty() ? 1 : 0);
  gauge("leaderless_seconds", "Since a leader was last known; 0: one is.", Seconds(status.leaderless_ns));
  gauge("commit_stalled_seconds",
        "While this node leads: for how long entries have waited and none has been committed; 0: none waits.",
        Seconds(status.commit_stalled_ns));
  gauge("disk_stalled_seconds", "How long the oldest write to this node's disk has taken so far; 0: none waits.",
        Seconds(status.disk_stalled_ns));
  gauge("lost",
        "1 when what this node promised is gone: it takes part in nothing. `hedgerow-node status` says what to "
        "do.",
        status.lost.empty() ? 0 : 1);
  gauge(
      "starting",
      "1 while the node opens its log, or waits for room on the disk, an address or a port; `hedgerow-node status` says how far it is.",
      status.starting.empty() ? 0 : 1);
  gauge("removed", "1 when the cluster has removed this node, which goes on running: stop it for good.",
        status.removed.empty() ? 0 : 1);
  gauge("failing_writes",
        "Writes that were refused here, or whose clients gave up, since the last one that was done; 0: none in 10 s.",
        static_cast<double>(status.failing_writes));
  gauge("cluster_lost", "1 when so many members say that they are lost that the cluster cannot go on by itself.",
        status.cluster_lost.empty() ? 0 : 1);
  gauge(
      "outside_majority",
      "1 while this node's state is not the majority's: it answers no client until a leader's snapshot has mended it.",
      status.outside_majority ? 1 : 0);
  gauge("cluster_epoch",
        "Which recovery generation of the cluster the node is of; grows when it is recovered or restored.",
        static_cast<double>(status.cluster_epoch));
  gauge("uptime_seconds", "Since the process started.", Seconds(status.uptime_ns));
  Memory(status.memory, out);
  if (status.memcached.has_value()) {
    gauge("memcached_items", "Items that memcached's clients have stored, ended ones that are not freed included.",
          static_cast<double>(status.memcached->items()));
    gauge("memcached_item_bytes", "What the items take; memcached.memory_mib bounds it.",
          static_cast<double>(status.memcached->item_bytes()));
    gauge("memcached_window_requests", "Requests that would be known again; memcached.window_max bounds it.",
          static_cast<double>(status.memcached->window_requests()));
  }
  MetricFamily info = Family("build_info", "Always 1; the labels say what runs.", MetricType::Gauge);
  AddGauge(info,
           {{"cluster", absl::StrCat(facts.cluster_id)},
            {"commit", operate::kCommit},
            {"durability", std::string(Name(facts.durability))},
            {"node", Text(status.node)},
            {"version", operate::kVersion}},
           1);
  out.push_back(std::move(info));
}

void Peers(const NodeStatus& status, Families& out) {
  MetricFamily known =
      Family("peer_incarnation_known", "1 when what the peer says can be believed.", MetricType::Gauge);
  MetricFamily heard =
      Family("peer_last_heard_seconds",
             "Since the peer's last believed datagram; absent before the first. Followers have nothing "
             "to say to each other.",
             MetricType::Gauge);
  MetricFamily round_trip =
      Family("peer_round_trip_seconds", "Smoothed round trip; absent until measured.", MetricType::Gauge);
  MetricFamily match = Family("peer_match_index", "What the peer's log is known to hold; only while this node leads.",
                              MetricType::Gauge);
  const auto follows = [&status](uint64_t id) {
    const auto is_it = [id](const v1::Member& member) { return member.id() == id; };
    return status.role == raft::Role::kLeader && std::any_of(status.members.begin(), status.members.end(), is_it);
  };
  for (const v1::Peer& peer : status.peers) {
    const Labels labels = {{"peer", absl::StrCat(peer.id())}};
    AddGauge(known, labels, peer.life().empty() ? 0 : 1);
    if (peer.heard_ago_ns() >= 0) AddGauge(heard, labels, Seconds(static_cast<uint64_t>(peer.heard_ago_ns())));
    if (peer.round_trip_ns() >= 0) AddGauge(round_trip, labels, Seconds(static_cast<uint64_t>(peer.round_trip_ns())));
    if (follows(peer.id())) AddGauge(match, labels, static_cast<double>(peer.match_index()));
  }
  for (MetricFamily* family : {&known, &heard, &round_trip, &match}) {
    if (!family->metric.empty()) out.push_back(std::move(*family));
  }
}

void Members(const NodeStatus& status, Families& out) {
  const Gauges gauge{out};
  gauge("config_epoch", "Grows with each change of membership.", status.config_epoch);
  gauge("config_committed_epoch", "Less than config_epoch while a change is under way.", status.committed_epoch);
  MetricFamily members = Family("members", "Members of the cluster by role.", MetricType::Gauge);
  std::map<std::string, uint64_t> by_role = {{"voter", 0}, {"learner", 0}};
  for (const v1::Member& member : status.members) ++by_role[member.role()];
  for (const auto& [role, count] : by_role) AddGauge(members, {{"role", role}}, static_cast<double>(count));
  out.push_back(std::move(members));
}

void Offloads(const NodeStatus& status, Families& out) {
  if (status.offloads.empty()) return;
  MetricFamily family = Family("offload_on", "1 while the kernel does this for the node.", MetricType::Gauge);
  MetricFamily off =
      Family("offload_off_info", "Always 1: why the kernel does not do this for the node.", MetricType::Gauge);
  for (const v1::Offload& offload : status.offloads) {
    AddGauge(family, {{"offload", offload.name()}}, offload.on() ? 1 : 0);
    // The verifier's log stays in the status.
    const std::string reason = offload.detail().substr(0, offload.detail().find('\n'));
    if (!offload.on()) AddGauge(off, {{"offload", offload.name()}, {"reason", reason}}, 1);
  }
  out.push_back(std::move(family));
  if (!off.metric.empty()) out.push_back(std::move(off));
}

void Snapshots(const NodeStatus& status, Families& out) {
  const v1::Snapshots& snapshots = status.snapshots;
  const Gauges gauge{out};
  gauge("snapshot_index", "What the last snapshot here holds ends with this log index; 0: there is none.",
        static_cast<double>(snapshots.last_index()));
  gauge("snapshot_size_bytes", "Of the last snapshot's file.", static_cast<double>(snapshots.size_bytes()));
  if (snapshots.last_index() != 0) {
    gauge("snapshot_age_seconds", "Since the last snapshot was written here; absent while there is none.",
          Seconds(static_cast<uint64_t>(snapshots.age_ns())));
  }
  gauge("snapshot_ok", "0 while snapshots fail; `hedgerow-node status` says why.",
        status.snapshot_problem.empty() ? 1 : 0);
  if (status.snapshot_certificate_ends_s != 0) {
    gauge("snapshot_certificate_ends_timestamp_seconds",
          "When the certificate of the peers' TCP port ends, in Unix time; absent without peer_tls.",
          static_cast<double>(status.snapshot_certificate_ends_s));
  }
  gauge("snapshot_held_bytes",
        "In memory beside the store, by a snapshot that is being taken: copies of what changed since it was begun.",
        static_cast<double>(status.snapshot_held_bytes));
  gauge("snapshot_slice_max_seconds", "The longest that a snapshot has kept the loop at a stretch.",
        Seconds(snapshots.longest_slice_ns()));
  gauge("log_start_index", "The log here begins after this index.", static_cast<double>(snapshots.log_start()));
  MetricFamily transfers = Family("snapshot_transfer_ratio",
                                  "How much of a snapshot has crossed; absent while none does.", MetricType::Gauge);
  for (const v1::SnapshotTransfer& transfer : snapshots.transfers()) {
    if (transfer.size_bytes() == 0) continue;
    AddGauge(transfers, {{"direction", transfer.direction()}, {"peer", absl::StrCat(transfer.peer())}},
             static_cast<double>(transfer.done_bytes()) / static_cast<double>(transfer.size_bytes()));
  }
  if (!transfers.metric.empty()) out.push_back(std::move(transfers));
}

void Counters(const NodeStatus& status, Families& out) {
  std::map<std::string, MetricFamily> families;
  for (const NodeCounter& counter : status.counters) {
    const auto [entry, inserted] = families.try_emplace(counter.name);
    if (inserted) {
      entry->second = Family(absl::StrCat(counter.name, "_total"),
                             absl::StrCat("Counter ", counter.name, " of the node."), MetricType::Counter);
    }
    Labels labels;
    if (counter.peer.IsSet()) labels.push_back({"peer", Text(counter.peer)});
    if (!counter.reason.empty()) labels.push_back({counter.label, counter.reason});
    operate::AddCounter(entry->second, std::move(labels), counter.value);
  }
  for (auto& [name, family] : families) out.push_back(std::move(family));
}

// With each fourth bound, which is two for each power of two (operate::Durations).
void Histograms(const NodeStatus& status, Families& out) {
  for (const v1::Histogram& histogram : status.histograms) {
    MetricFamily family = Family(absl::StrCat(histogram.name(), "_seconds"),
                                 absl::StrCat("How long ", histogram.name(), " took."), MetricType::Histogram);
    ClientMetric::Histogram sums;
    uint64_t cumulative = 0;
    for (int i = 0; i < histogram.buckets_size(); ++i) {
      cumulative += histogram.buckets(i).count();
      if (i % 4 == 0) sums.bucket.push_back({cumulative, Seconds(histogram.buckets(i).upper_ns())});
    }
    cumulative += histogram.above();
    sums.bucket.push_back({cumulative, std::numeric_limits<double>::infinity()});
    sums.sample_count = cumulative;
    sums.sample_sum = Seconds(histogram.sum_ns());
    operate::AddHistogram(family, {}, std::move(sums));
    out.push_back(std::move(family));
  }
}

}  // namespace

std::vector<MetricFamily> BuildFamilies(const NodeStatus& status, const NodeFacts& facts) {
  Families out;
  Node(status, facts, out);
  Peers(status, out);
  Members(status, out);
  Offloads(status, out);
  Snapshots(status, out);
  Counters(status, out);
  Histograms(status, out);
  return out;
}

}  // namespace hedgerow::node
