// SPDX-License-Identifier: Apache-2.0
//
// Laying out a node's status; see the header. What is wrong comes first, counters that are zero are left out.

#include "cluster/node/status/status_text.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "config/scalar.h"
#include "operate/http_access.h"

namespace hedgerow::node {
namespace {

std::string LeaderText(const v1::NodeStatus& status) {
  if (status.leader() == 0) return "no leader is known";
  if (status.leader() == status.node()) return "this node leads";
  // Followers have nothing to say to each other.
  return absl::StrCat("node ", status.leader(), " leads, and knows which members are silent");
}

// The role is told by the leader's line, unless an election is under way.
std::string RoleText(const v1::NodeStatus& status) {
  return status.role() == "pre_candidate" ? "candidate (asking whether it may stand)" : status.role();
}

std::string MatchText(const v1::NodeStatus& status, const v1::Peer& peer) {
  if (status.role() != "leader") return "-";
  if (peer.match_index() >= status.last_index()) return absl::StrCat(peer.match_index());
  return absl::StrCat(peer.match_index(), " (", status.last_index() - peer.match_index(), " behind)");
}

// Of a cluster that never changed nothing is said that the table of peers does not say.
void Membership(const v1::NodeStatus& status, std::string& out) {
  if (status.members().empty()) {
    absl::StrAppend(&out, "  members      none known: this node joins, and waits to be added\n");
    return;
  }
  if (status.config_epoch() == 0) return;
  std::map<std::string, std::vector<std::string>> by_role;
  for (const v1::Member& member : status.members()) by_role[member.role()].push_back(absl::StrCat(member.id()));
  std::vector<std::string> parts;
  for (const auto& [role, ids] : by_role) parts.push_back(absl::StrCat(role, " ", absl::StrJoin(ids, ", ")));
  absl::StrAppend(&out, "  members      ", absl::StrJoin(parts, "; "), " (configuration ", status.config_epoch(),
                  status.committed_epoch() == status.config_epoch() ? ")\n" : ", not committed yet)\n");
}

void Peers(const v1::NodeStatus& status, std::string& out) {
  if (status.peers().empty() && status.members().empty()) return;
  if (status.peers().empty()) {
    absl::StrAppend(&out, "  peers        none: this node is the whole cluster\n");
    return;
  }
  absl::StrAppendFormat(&out, "\n  %-6s %-28s %-10s %-16s %-12s %-10s %s\n", "node", "address", "build", "incarnation",
                        "last heard", "round trip", "log");
  for (const v1::Peer& peer : status.peers()) {
    const std::string heard =
        peer.heard_ago_ns() < 0 ? "never" : absl::StrCat(config::RoundedDurationNs(peer.heard_ago_ns()), " ago");
    absl::StrAppendFormat(&out, "  %-6d %-28s %-10s %-16s %-12s %-10s %s\n", peer.id(), peer.address(),
                          peer.build().empty() ? "-" : peer.build(), peer.life().empty() ? "unknown" : peer.life(),
                          heard, peer.round_trip_ns() < 0 ? "-" : config::RoundedDurationNs(peer.round_trip_ns()),
                          MatchText(status, peer));
  }
}

// Offloads that share a detail share a line.
void Offloads(const v1::NodeStatus& status, std::string& out) {
  std::map<std::string, std::vector<std::string>> by_detail;
  for (const v1::Offload& offload : status.offloads())
    by_detail[absl::StrCat(offload.on() ? "on: " : "off: ", offload.detail())].push_back(offload.name());
  const char* title = "offloads";
  for (const auto& [detail, names] : by_detail) {
    absl::StrAppendFormat(&out, "  %-12s %s %s\n", title, absl::StrJoin(names, ", "), detail);
    title = "";
  }
}

std::string SizeText(uint64_t bytes) {
  if (bytes < 10 * 1024) return absl::StrCat(bytes, " bytes");
  if (bytes < 10 * 1024 * 1024) return absl::StrCat(bytes / 1024, " KiB");
  return absl::StrCat(bytes / (1024 * 1024), " MiB");
}

void Snapshots(const v1::NodeStatus& status, std::string& out) {
  const v1::Snapshots& snapshots = status.snapshots();
  std::string text = "none yet";
  if (snapshots.last_index() != 0) {
    text = absl::StrCat("last at ", snapshots.last_index(), ", ", SizeText(snapshots.size_bytes()), ", ",
                        config::AgeText(snapshots.age_ns()), " old, log from ", snapshots.log_start() + 1);
  }
  if (snapshots.taking()) absl::StrAppend(&text, ", one is being taken");
  absl::StrAppendFormat(&out, "  %-12s %s\n", "snapshots", text);
  for (const v1::SnapshotTransfer& transfer : snapshots.transfers()) {
    absl::StrAppendFormat(&out, "  %-12s %s %s node %d: %.0f %% of the snapshot at %d, %s\n", "", transfer.direction(),
                          transfer.direction() == "sends" ? "to" : "from", transfer.peer(), transfer.percent(),
                          transfer.index(), SizeText(transfer.size_bytes()));
  }
}

void Incidents(const v1::NodeStatus& status, std::string& out) {
  const char* title = "lately";
  for (const v1::Incident& incident : status.incidents()) {
    absl::StrAppendFormat(&out, "  %-12s %s ago: %s\n", title, config::AgeText(static_cast<int64_t>(incident.ago_ns())),
                          incident.what());
    title = "";
  }
}

void Counters(const v1::NodeStatus& status, std::string& out) {
  const std::map<std::string, uint64_t> sorted(status.counters().begin(), status.counters().end());
  bool any = false;
  for (const auto& [name, value] : sorted) {
    if (value == 0) continue;
    if (!any) absl::StrAppend(&out, "\n");
    any = true;
    absl::StrAppendFormat(&out, "  %-36s %14d\n", name, value);
  }
}

}  // namespace

std::string MembersText(const v1::NodeStatus& status) {
  std::string out = absl::StrFormat("  %-6s %-28s %-9s %s\n", "node", "address", "role", "");
  for (const v1::Member& member : status.members()) {
    absl::StrAppendFormat(&out, "  %-6d %-28s %-9s %s\n", member.id(),
                          member.address().empty() ? "(configuration file)" : member.address(), member.role(),
                          member.role() == "learner" && member.caught_up() ? "caught up" : "");
  }
  absl::StrAppend(&out, "  configuration ", status.config_epoch(),
                  status.committed_epoch() == status.config_epoch() ? "" : ", not committed yet",
                  status.joint() ? ", old and new voters decide together" : "", "\n");
  return out;
}

std::string SettingsText(const v1::NodeStatus& status) {
  std::string out = absl::StrFormat("  %-22s %-10s %-18s %s\n", "setting", "value", "may be", "");
  for (const v1::Setting& setting : status.settings()) {
    absl::StrAppendFormat(&out, "  %-22s %-10s %-18s %s\n", setting.name(), setting.value(), setting.range(),
                          setting.meaning());
    if (setting.in_file().empty()) continue;
    absl::StrAppendFormat(&out, "  %-22s the file of this node says %s, which only seeds a new cluster\n", "",
                          setting.in_file());
  }
  absl::StrAppend(&out, "  version ", status.settings_version(),
                  status.settings_version() == 0 ? ": defaults, until a leader has set what its file says\n" : "\n");
  return out;
}

std::string StatusText(const v1::NodeStatus& status) {
  std::string out = absl::StrCat("hedgerow-node ", status.version(), "  cluster ", status.cluster_id(), "  node ",
                                 status.node(), "  ", RoleText(status), "  ", status.ready() ? "ready" : "NOT READY",
                                 "  pid ", status.pid(), "  up ", config::AgeText(status.uptime_ns()), "\n");
  if (status.cluster_epoch() != 0) {
    absl::StrAppend(&out, "  epoch        ", status.cluster_epoch(), "/", status.beginning(), "\n");
  }
  for (const std::string& problem : status.problems()) absl::StrAppend(&out, "  PROBLEM: ", problem, "\n");
  for (const std::string& note : status.notes()) absl::StrAppend(&out, "  note: ", note, "\n");
  if (!status.starting().empty()) {
    absl::StrAppend(&out, "  starting     ", status.starting(), "\n");
    if (!status.metrics().empty())
      absl::StrAppend(&out, "  metrics      ", operate::PageText(status.metrics(), "/metrics"), "\n");
    return out;
  }
  absl::StrAppend(&out, "  term         ", status.term(), ", ", LeaderText(status), ", election timeout ",
                  config::RoundedDurationNs(status.election_timeout_ns()), "\n");
  absl::StrAppend(&out, "  log          last ", status.last_index(), ", durable here ", status.durable_index(),
                  ", committed ", status.commit(), ", applied ", status.applied(), "\n");
  absl::StrAppend(&out, "  durability   ", status.durability(), "\n");
  absl::StrAppend(&out, "  clients      ", status.serve(), ", ", status.sessions(), " sessions, ", status.waiting(),
                  " requests waiting\n");
  if (status.memory().limit_bytes() != 0) {
    const v1::Memory& memory = status.memory();
    const uint64_t used = memory.values_bytes() + memory.sessions_bytes() + memory.answers_bytes() +
                          memory.items_bytes() + memory.requests_bytes();
    absl::StrAppend(&out, "  memory       ", SizeText(used), " of ", SizeText(memory.limit_bytes()), " stored",
                    memory.full() ? ", full" : "", "; the process has ", SizeText(memory.resident_bytes()), "\n");
  }
  if (status.has_memcached()) {
    const v1::Memcached& memcached = status.memcached();
    absl::StrAppend(&out, "  memcached    ", memcached.listen(), ", ", memcached.items(), " items (",
                    memcached.item_bytes(), " bytes), ", memcached.window_requests(), " requests in the window, ",
                    memcached.clients(), " clients, at most ", memcached.rate_per_s(), "/s each\n");
  }
  if (!status.metrics().empty())
    absl::StrAppend(&out, "  metrics      ", operate::PageText(status.metrics(), "/metrics"), "\n");
  Snapshots(status, out);
  Membership(status, out);
  Offloads(status, out);
  Incidents(status, out);
  Peers(status, out);
  Counters(status, out);
  return out;
}

}  // namespace hedgerow::node
