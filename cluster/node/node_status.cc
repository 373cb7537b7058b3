// SPDX-License-Identifier: Apache-2.0
//
// Node, the part that reports: one NodeStatus with the state of its parts, the problems that they see, and their
// counters. Some parts add their own (AddTo). The counters' names are documented in docs/metrics.md.
#include <algorithm>
#include <bit>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "cluster/node/host/node_memory.h"
#include "cluster/node/node.h"
#include "cluster/node/status/stall_problem.h"
#include "cluster/node/status/state_problem.h"
#include "cluster/node/status/status_message.h"
#include "operate/admin_socket.h"

namespace hedgerow::node {
namespace {

void AddSocket(NodeStatus& status, const std::string& prefix, const UdpSocket::Counters& counters) {
  status.counters.emplace_back(prefix + "_datagrams_received", counters.received);
  status.counters.emplace_back(prefix + "_datagrams_sent", counters.sent);
  status.counters.emplace_back(prefix + "_send_failed", counters.send_failed);
  status.counters.emplace_back(prefix + "_truncated", counters.truncated);
  status.counters.emplace_back(prefix + "_receive_overflow", counters.receive_overflow);
}

// An enum's reasons, but for the one that means none.
template <typename Reason, size_t kCount>
void AddReasons(NodeStatus& status, const std::string& name, const std::array<uint64_t, kCount>& counts, size_t first) {
  for (size_t i = first; i < kCount; ++i) {
    status.counters.emplace_back(name, counts[i], std::string(Name(static_cast<Reason>(i))));
  }
}

void AddReplication(NodeStatus& status, const raft::Raft::Counters& counters) {
  AddCounts(status, "appends_early", {{"kept", counters.reordered_kept}, {"stored", counters.reordered_stored}});
  AddCounts(status, "append_gaps",
            {{"waited", counters.holes_in_flight},
             {"sent_again", counters.holes_sent_again},
             {"probed", counters.probes},
             {"restarted", counters.restarts_seen}});
  status.counters.emplace_back("leader_quorum_checks", counters.quorum_checks);
  status.counters.emplace_back("terms_given_up", counters.terms_given_up);
  status.counters.emplace_back("majority_reads", counters.majority_reads);
  status.counters.emplace_back("peer_impossible", counters.impossible);
  AddCounts(status, "leader_step_downs",
            {{"own_disk", counters.step_downs_own_disk}, {"replication", counters.step_downs_replication}});
}

void AddDesk(NodeStatus& status, const kv::Replica& replica) {
  const kv::ProposalQueue::Counters& proposals = replica.proposals().counters;
  AddCounts(status, "proposals_not_made",
            {{"in_log", proposals.known},
             {"unwanted", proposals.unwanted},
             {"not_known_to_all", proposals.not_known_to_all}});
  status.counters.emplace_back("proposals_queued", proposals.queued);
  status.counters.emplace_back("sessions_evicted", replica.state().sessions_evicted());
  status.counters.emplace_back("forwards", replica.router().counters().forwards);
  status.counters.emplace_back("forwards_queued", replica.router().counters().forwards_queued);
  status.counters.emplace_back("requests_overloaded", replica.router().counters().overloaded);
  status.counters.emplace_back("requests_superseded", replica.router().counters().superseded);
  status.counters.emplace_back("standstills", replica.router().counters().standstills);
  status.counters.emplace_back("requests_after_standstill", replica.router().counters().after_standstill);
}

void AddChecks(NodeStatus& status, const kv::Replica& replica) {
  const kv::StateChecks& checks = replica.checks();
  const kv::StateChecks::Counters& counters = checks.counters();
  AddCounts(status, "state_checks",
            {{"equal", counters.equal},
             {"differ", counters.differ},
             {"skipped", counters.skipped},
             {"not_proposed", counters.not_proposed}});
  status.counters.emplace_back("state_faults", counters.faults);
  status.counters.emplace_back("state_mended", counters.mended);
  status.outside_majority = checks.wrong_since() != raft::LogIndex();
  status.diverged = DivergedProblem(checks);
  if (replica.unreadable() != raft::LogIndex()) status.unreadable = UnreadableProblem(replica.unreadable());
}

void AddStorage(NodeStatus& status, const storage::StorageStatistics& statistics) {
  status.counters.emplace_back("storage_writes", statistics.writes);
  status.counters.emplace_back("storage_batches", statistics.batches);
  status.counters.emplace_back("storage_batches_here", statistics.batches_here);
  status.counters.emplace_back("storage_entries", statistics.entries);
  status.counters.emplace_back("storage_bytes", statistics.bytes);
  status.counters.emplace_back("storage_queue_over_bound", statistics.queue_over_bound);
  status.counters.emplace_back("storage_full_disk_retries", statistics.full_disk_retries);
  statistics.syncs.AddTo(status.histograms, "storage_sync");
}

void AddMemory(const kv::StateMachine& state, v1::Memory& out) {
  const kv::MemoryUse used = state.memory();
  out.set_limit_bytes(state.settings().memory_bytes);
  out.set_values_bytes(used.values);
  out.set_sessions_bytes(used.sessions);
  out.set_answers_bytes(used.answers);
  out.set_items_bytes(used.items);
  out.set_requests_bytes(used.requests);
  out.set_resident_bytes(ResidentMemory_bytes());
  out.set_full(kv::IsNearlyFull(used.total(), out.limit_bytes()));
}

void AddMemcached(NodeStatus& status, const MemcachedFrontEnd& front_end, const kv::MemcachedState& state,
                  uint64_t now_ns) {
  const MemcachedFrontEnd::Counters& counters = front_end.counters();
  status.memcached = front_end.StatusOf(state);
  front_end.refused_lately().Report(now_ns, status.notes, status.refused);
  AddReasons<memcached::Verb>(status, "memcached_requests", counters.requests, 1);
  AddReasons<memcached::Outcome>(status, "memcached_answers", counters.answers, 1);
  status.counters.emplace_back("memcached_unwanted_answers", counters.no_reply);
  status.counters.emplace_back("memcached_paced_answers", front_end.paced_counters().paced);
  status.counters.emplace_back("memcached_paced_refused", front_end.paced_counters().refused);
  AddReasons<memcached::Refusal>(status, "memcached_refused", counters.refusals, 1);
  AddReasons<memcached::Drop>(status, "memcached_dropped", counters.drops, 1);
  AddSocket(status, "memcached", front_end.socket_counters());
}

}  // namespace

// What the kernel works off never reaches the transport: the core knows of it by what the kernel part has heard
// and counted. 0: nothing that says so.
uint64_t Node::HeardByCore_ns(raft::NodeId peer) const {
  const raft::Raft& raft = replica_.raft();
  if (raft.role() == raft::Role::kFollower) return raft.leader() == peer ? raft.detector().leader_heard_ns() : 0;
  if (raft.role() != raft::Role::kLeader) return 0;
  const size_t slot = raft.configuration().SlotOf(peer);
  if (slot == raft::Configuration::kNoSlot) return 0;
  const uint64_t contact_ns = raft.detector().peer_heard_ns(slot);
  return contact_ns > led_since_ns_ ? contact_ns : 0;  // it begins with when this node began to lead
}

NodeStatus Node::StatusNow() {
  const raft::Raft& raft = replica_.raft();
  NodeStatus status;
  status.node = config_.self;
  status.role = raft.role();
  status.term = raft.term();
  status.leader = raft.leader();
  status.ready = readiness_.Observe(raft.leader(), raft.commit(), raft.applied()) && replica_.serves();
  status.commit = raft.commit();
  status.applied = raft.applied();
  status.last_index = raft.log().last_index();
  status.durable_index = raft.durable();
  status.election_timeout_ns = raft.detector().timeout_ns();
  if (status.role == raft::Role::kLeader) status.led_since_ns = led_since_ns_;
  status.sessions = replica_.state().sessions();
  status.waiting = replica_.router().waiting();
  status.storage = std::string(storage_->health().message());
  if (status.storage.empty()) status.storage = std::string(peers_.recorded().message());
  status.uptime_ns = now_ns_ - started_ns_;
  if (leaderless_since_ns_ != 0) status.leaderless_ns = now_ns_ - leaderless_since_ns_;
  status.commit_stalled_ns = raft.commit_stalled_ns(now_ns_);
  status.disk_stalled_ns = raft.disk_stalled_ns(now_ns_);
  if (status.storage.empty()) status.storage = DiskProblem(status.disk_stalled_ns);
  const kv::RequestRouter::Failing& failing = replica_.router().failing();
  if (failing.writes > 0 && now_ns_ < failing.last_ns + kFailingLately_ns) {
    status.failing_writes = failing.writes;
    status.failing_ns = failing.last_ns - failing.since_ns;
  }
  status.full = FullProblems(replica_.state());
  status.keys = KeysNow();
  AddMemory(replica_.state(), status.memory);
  status.memory.set_available_bytes(available_memory_bytes_ == UINT64_MAX ? 0 : available_memory_bytes_);
  status.cluster_epoch = config_.cluster_epoch;
  status.recovery_nonce = config_.recovery_nonce;
  for (const PeerState& peer : peers_.states()) {
    v1::Peer& reported = AddPeer(status, peer.id, peer.address);
    if (peer.answers_at.port != 0) reported.set_answers_at(peer.answers_at.ToString());
    if (const uint64_t incarnation = peers_.IncarnationOf(peer.id); incarnation != 0) {
      reported.set_life(absl::StrFormat("%016x", incarnation));
      reported.set_build(peer.build);
    }
    const uint64_t heard_ns = std::max(peer.heard_ns, HeardByCore_ns(peer.id));
    if (peer.IsExcluded(heard_ns, now_ns_)) reported.set_excluded_at(peer.excluded_at.ToString());
    if (heard_ns != 0) reported.set_heard_ago_ns(static_cast<int64_t>(now_ns_ - std::min(now_ns_, heard_ns)));
    reported.set_lost(peer.ReportsLost(now_ns_));
    if (peer.IsIncompatible(now_ns_)) reported.set_incompatible(peer.incompatible);
    if (peer.told_keys_ns != 0 && now_ns_ < peer.told_keys_ns + kKeysFresh_ns) {
      reported.set_sealing_key(KeyIdText(peer.sealing_key));
      reported.set_other_key(KeyIdText(peer.other_key));
    }
    if (peer.slot >= HR_RAFT_MAX_MEMBERS) continue;
    if (const uint64_t mean_ns = raft.detector().round_trip_ns(peer.slot); mean_ns != 0)
      reported.set_round_trip_ns(static_cast<int64_t>(mean_ns));
    if (raft.role() == raft::Role::kLeader) reported.set_match_index(raft.progress()[peer.slot].match().value());
  }
  AddMembersTo(status);
  AddSettingsTo(status);
  for (const PeerState& peer : peers_.states())
    status.counters.emplace_back("hellos_refused", peers_.HellosRefused(peer.id), "", peer.id);
  status.counters.emplace_back("unknown_hellos_refused", peers_.HellosRefused(raft::NodeId()));
  status.counters.emplace_back("key_changes", key_changes_);
  using operate::AdminSocket;
  AddCounts(status, "admin_refused",
            {{"admin", AdminSocket::Refused(AdminSocket::For::kOwner)},
             {"monitor", AdminSocket::Refused(AdminSocket::For::kGroup)}});
  status.counters.emplace_back("elections_won", elections_won_);
  status.counters.emplace_back("resigns_heard", resigns_heard_);
  status.counters.emplace_back("stalls_heard", stalls_heard_);
  status.counters.emplace_back("loop_turns", turns_.worked, "true").label = "worked";
  status.counters.emplace_back("loop_turns", turns_.idle, "false").label = "worked";
  status.counters.emplace_back("announcements_sent", announcer_.sent());
  front_end_.refused_lately().Report(now_ns_, status.notes, status.refused);
  status.counters.emplace_back("hkv_requests", front_end_.counters().requests);
  AddReasons<wire::HkvDrop>(status, "hkv_dropped", front_end_.counters().drops, 1);
  AddReasons<wire::HkvStatus>(status, "hkv_answers", front_end_.counters().answers, 0);
  status.counters.emplace_back("hkv_authenticated", front_end_.counters().authenticated);
  AddReasons<wire::HkvDenial>(status, "hkv_denied", front_end_.counters().denied, 1);
  AddCounts(
      status, "hkv_pushbacks",
      {{"never", front_end_.counters().asked_for_no_hedge}, {"later", front_end_.counters().asked_for_later_hedge}});
  AddSocket(status, "client", client_socket_->counters());
  AddCounts(status, "sources_limited",
            {{"bytes", sources_->counters().bytes_over},
             {"opens", sources_->counters().opens_over},
             {"window", sources_->counters().window_over},
             {"reads", sources_->counters().reads_over},
             {"table_full", sources_->counters().table_full}});
  if (memcached_ != nullptr) AddMemcached(status, *memcached_, replica_.state().memcached(), now_ns_);
  AddReasons<wire::DropReason>(status, "peer_dropped", peers_.counters().drops, 1);
  status.counters.emplace_back("peer_unsealable", peers_.counters().too_large);
  status.counters.emplace_back("peer_nowhere", peers_.counters().nowhere);
  status.counters.emplace_back("peer_bad_commands", peers_.counters().bad_commands);
  AddCounts(status, "peer_pieces",
            {{"sent", peers_.counters().pieces}, {"received", peers_.received_pieces().received}});
  AddCounts(status, "peer_split_messages",
            {{"sent", peers_.counters().split},
             {"received", peers_.received_pieces().completed},
             {"incomplete", peers_.received_pieces().incomplete}});
  AddSocket(status, "peer", peer_socket_->counters());
  status.counters.emplace_back("peer_broadcasts", peers_.counters().broadcasts);
  AddReplication(status, raft.counters());
  AddDesk(status, replica_);
  AddChecks(status, replica_);
  AddStorage(status, storage_->statistics());
  election_spans_.AddTo(status);
  incidents_.AddTo(now_ns_, status);
  offloads_->AddTo(status);
  status.cluster_lost = WhyClusterLost(status, static_cast<size_t>(std::popcount(raft.configuration().voters)));
  snapshots_->AddTo(now_ns_, absl::ToUnixSeconds(absl::Now()), raft, status);
  return status;
}

}  // namespace hedgerow::node
