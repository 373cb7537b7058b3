// SPDX-License-Identifier: Apache-2.0
#include "cluster/raft/invariants.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <string_view>
#include <variant>

#include "absl/strings/str_join.h"
#include "cluster/raft/configuration.h"

namespace hedgerow::raft {
namespace {

uint64_t ContentOf(const Entry& entry) {
  return std::hash<std::string_view>()(entry.payload.view()) * 4 + static_cast<uint64_t>(entry.kind);
}

// Terms and indices of a run stay far below 2^32.
uint64_t Key(LogIndex index, Term term) { return index.value() << 32 | term.value(); }

// Empty: a majority of the configuration is so, of each if it is joint. Else which are.
std::string NoMajority(const Configuration& configuration, const std::function<bool(NodeId)>& is_so) {
  for (const uint32_t mask : {configuration.voters, configuration.next_voters}) {
    size_t voters = 0;
    std::vector<uint64_t> found;
    for (const Member& member : configuration.members) {
      if (((mask >> member.slot) & 1) == 0) continue;
      ++voters;
      if (is_so(member.id)) found.push_back(member.id.value());
    }
    const bool counts = mask == configuration.voters || configuration.joint();
    if (!counts || found.size() > voters / 2) continue;
    return absl::StrCat(found.size(), " of ", voters, " voters of configuration ", configuration.epoch, " (",
                        absl::StrJoin(found, " "), ")");
  }
  return {};
}

}  // namespace

void InvariantChecker::Started(const Raft& node, NodeId id) {
  Node& seen = nodes_[id];
  const EntryId& start = node.log().start();
  const EntryId& snapshot = node.snapshot().last;
  if (!IsCommitted(start) || !IsCommitted(snapshot) || snapshot.index < start.index) {
    Fail("node ", id.value(), " starts with a log after ", start.index.value(), "/", start.term.value(),
         " and a snapshot at ", snapshot.index.value(), "/", snapshot.term.value());
    return;
  }
  seen.log.assign(committed_.begin(), committed_.begin() + static_cast<ptrdiff_t>(start.index.value()));
  seen.commit = seen.applied = snapshot.index;
  seen.leads = false;
  if (!node.options().initial.members.empty()) {
    committed_configurations_.try_emplace(LogIndex(), node.options().initial);
  }
  if (snapshot.index > LogIndex()) SnapshotHas(id, node.snapshot());
  seen.configurations = {
      {snapshot.index, snapshot.index > LogIndex() ? node.snapshot().configuration : node.options().initial}};
  seen.term = node.term();
  if (node.term() < seen.process_term) {
    Fail("monotone terms: node ", id.value(), " starts in term ", node.term().value(), " after it promised in term ",
         seen.process_term.value());
  }
  for (LogIndex index = start.index.Next(); node.log().Has(index); index = index.Next()) {
    Append(seen, id, node.log().At(index));
  }
  ConfigurationFollowed(seen, id, node);
}

void InvariantChecker::Stepped(const Raft& node, NodeId id, const Outputs& outputs) {
  Node& seen = nodes_[id];
  if (node.counters().impossible != 0) Fail("node ", id.value(), " was sent what no member sends");
  if (node.term() < seen.term) Fail("monotone terms: node ", id.value(), " went back to ", node.term().value());
  const bool led = seen.leads;
  // What a leader commits was in its log before this step, and counts by the configuration that it held then;
  // it may lead no more after it.
  if (led && node.term() == seen.term && node.commit() != seen.commit) Committed(seen, id, node.commit());
  seen.term = node.term();
  seen.leads = node.role() == Role::kLeader;
  // Leader Append-Only (Raft section 5.3).
  const Persist* const persist = outputs.persist.has_value() ? &*outputs.persist : nullptr;
  const bool empties = persist != nullptr && persist->new_start.has_value() && persist->new_start->empties;
  if (led && seen.leads && persist != nullptr && (persist->truncate_from.has_value() || empties)) {
    Fail("Leader Append-Only: node ", id.value(), " truncates while it leads");
  }
  if (persist != nullptr) LogChanged(seen, id, *persist);
  if (LogIndex(seen.log.size()) != node.log().last_index()) {
    Fail("node ", id.value(), " changed its log without persisting it");
  }
  for (const Message& message : outputs.send) Said(seen, id, message);
  if (outputs.install.has_value()) {
    SnapshotHas(id, *outputs.install);
    seen.commit = seen.applied = outputs.install->last.index;
  }
  ConfigurationFollowed(seen, id, node);
  if (seen.leads && (!led || !leaders_.contains(node.term()))) BecameLeader(seen, id);
  if (node.commit() != seen.commit) Committed(seen, id, node.commit());
  Applied(seen, id, outputs.apply);
  if (!seen.leads) return;
  for (size_t member = 0; member < node.progress().size(); ++member) {
    const char* const broken = node.progress()[member].BrokenRule(node.log().last_index());
    if (broken != nullptr) Fail("progress: node ", id.value(), " of slot ", member, ": ", broken);
  }
}

void InvariantChecker::KernelDecided(NodeId id, const Message& answer) {
  Node& node = nodes_[id];
  const auto* vote = std::get_if<VoteReply>(&answer.body);
  const auto* append = std::get_if<AppendReply>(&answer.body);
  if (vote != nullptr) {
    if (vote->granted && !vote->pre_vote) Voted(node, id, vote->asked_term, answer.to);
    return;
  }
  // Both prove to a leader that this node is in no later term.
  if (answer.term < node.promised_term) {
    Fail("fence before promise: the kernel part of node ", id.value(), " answers in term ", answer.term.value(),
         " after a promise in term ", node.promised_term.value());
  }
  if (append == nullptr || !append->accepted) return;
  node.promised_term = answer.term;
  node.acknowledged = {.index = append->index, .term = answer.term};
  node.installed.clear();  // a kernel part that is open stands on what is on the disk
}

void InvariantChecker::Adopted(NodeId id) {
  Node& node = nodes_[id];
  if (node.term < node.promised_term) {
    Fail("monotone terms: node ", id.value(), " goes on in term ", node.term.value(),
         " after its kernel part promised in term ", node.promised_term.value());
  }
  // A snapshot that had not reached the disk is not there, and what it would have replaced must be.
  const auto lost = std::find_if(node.installed.begin(), node.installed.end(),
                                 [&](const auto& one) { return one.first.value() > node.log.size(); });
  const EntryId acknowledged = lost == node.installed.end() ? node.acknowledged : lost->second;
  node.installed.clear();
  node.acknowledged = acknowledged;
  if (acknowledged.index == LogIndex()) return;
  const uint64_t index = acknowledged.index.value();
  if (index <= node.log.size() && node.log[index - 1].term == acknowledged.term) return;
  Fail("node ", id.value(), " starts without entry ", index, ", which its kernel part has acknowledged in term ",
       acknowledged.term.value());
}

bool InvariantChecker::IsCommitted(const EntryId& entry) const {
  if (entry.index == LogIndex()) return entry.term == Term();
  return entry.index.value() <= committed_.size() && committed_[entry.index.value() - 1].term == entry.term;
}

// Raft section 7: a snapshot stands for what is committed and nothing else, and the log begins no later than
// the last one.
void InvariantChecker::StartsAfter(Node& node, NodeId id, const NewStart& start) {
  if (!IsCommitted(start.after) || !IsCommitted(start.snapshot) || start.after.index > start.snapshot.index ||
      (!start.empties && start.snapshot.index > node.applied)) {
    Fail("log compaction: the log of node ", id.value(), ", which has applied ", node.applied.value(),
         ", begins after ", start.after.index.value(), "/", start.after.term.value(), " with a snapshot at ",
         start.snapshot.index.value(), "/", start.snapshot.term.value());
    return;
  }
  if (!start.empties) return;
  node.log.assign(committed_.begin(), committed_.begin() + static_cast<ptrdiff_t>(start.after.index.value()));
  if (const Configuration* const known = CommittedConfiguration(start.after.index); known != nullptr) {
    node.configurations = {{start.after.index, *known}};
  }
  if (node.acknowledged.index == LogIndex()) return;
  node.installed.emplace_back(start.after.index, node.acknowledged);
  node.acknowledged = start.after;
}

void InvariantChecker::LogChanged(Node& node, NodeId id, const Persist& persist) {
  if (persist.new_start.has_value()) StartsAfter(node, id, *persist.new_start);
  if (persist.truncate_from.has_value()) {
    node.log.resize(std::min<size_t>(node.log.size(), persist.truncate_from->value() - 1));
    while (node.configurations.size() > 1 && node.configurations.back().first >= *persist.truncate_from) {
      node.configurations.pop_back();
    }
    if (node.acknowledged.index >= *persist.truncate_from) {
      node.acknowledged = {.index = persist.truncate_from->Previous(),
                           .term = node.log.empty() ? Term() : node.log.back().term};
    }
  }
  for (const Entry& entry : persist.entries) Append(node, id, entry);
}

void InvariantChecker::Append(Node& node, NodeId id, const Entry& entry) {
  if (entry.index != LogIndex(node.log.size() + 1)) {
    Fail("node ", id.value(), " appends index ", entry.index.value(), " after ", node.log.size());
    return;
  }
  const Term previous = node.log.empty() ? Term() : node.log.back().term;
  const Identity identity{.term = entry.term, .content = ContentOf(entry)};
  node.log.push_back(identity);
  const auto [known, fresh] = entries_.try_emplace(Key(entry.index, entry.term), Fixed{identity.content, previous});
  if (!fresh && (known->second.content != identity.content || known->second.previous != previous)) {
    Fail("Log Matching: node ", id.value(), " has another entry ", entry.index.value(), " of term ", entry.term.value(),
         " than was seen before");
  }
  if (entry.kind == EntryKind::kConfiguration) ConfigurationAppended(node, id, entry, fresh);
}

void InvariantChecker::Committed(Node& node, NodeId id, LogIndex commit) {
  if (commit < node.commit) {
    Fail("monotone commit: node ", id.value(), " went from ", node.commit.value(), " to ", commit.value());
    return;
  }
  if (commit.value() > node.log.size()) {
    Fail("node ", id.value(), " commits ", commit.value(), " beyond its log");
    return;
  }
  if (node.leads && commit.value() > committed_.size()) MajorityHas(node, id, commit);
  for (uint64_t i = node.commit.value(); i < commit.value(); ++i) {
    if (i < committed_.size()) {
      if (committed_[i] == node.log[i]) continue;
      Fail("State Machine Safety: node ", id.value(), " commits at ", i + 1, " an entry of term ",
           node.log[i].term.value(), ", but one of term ", committed_[i].term.value(), " was committed");
      return;
    }
    committed_.push_back(node.log[i]);
    for (const auto& [index, configuration] : node.configurations) {
      if (index == LogIndex(i + 1)) committed_configurations_[index] = configuration;
    }
    for (const auto& [other, leader] : nodes_) {
      if (leader.leads && leader.term >= node.term) LeaderHasCommitted(leader, other, i);
    }
  }
  node.commit = commit;
}

// Raft section 5.3: what a leader commits is stored on a majority, and stays there. A kernel part holds it
// before its process does; with Log Matching, an acknowledgement of the leader's term is of the leader's log.
void InvariantChecker::MajorityHas(const Node& leader, NodeId id, LogIndex commit) {
  const Identity& entry = leader.log[commit.value() - 1];
  const std::string missed = NoMajority(leader.configuration(), [&](NodeId member) {
    const auto found = nodes_.find(member);
    if (found == nodes_.end()) return false;
    const Node& node = found->second;
    const bool in_log = commit.value() <= node.log.size() && node.log[commit.value() - 1] == entry;
    return in_log || (node.acknowledged.index >= commit && node.acknowledged.term == leader.term);
  });
  if (missed.empty()) return;
  Fail("commitment: node ", id.value(), " commits entry ", commit.value(), " of term ", entry.term.value(),
       ", which only ", missed, " hold");
}

// Raft section 5.2, dissertation section 4.3. Everybody's vote is known by the time that it is counted.
void InvariantChecker::MajorityVoted(const Node& leader, NodeId id) {
  const std::string missed = NoMajority(leader.configuration(), [&](NodeId member) {
    const auto vote = votes_.find({member, leader.term});
    return member == id || (vote != votes_.end() && vote->second == id);
  });
  if (missed.empty()) return;
  Fail("election: node ", id.value(), " leads term ", leader.term.value(), ", for which only ", missed, " voted");
}

const Configuration* InvariantChecker::CommittedConfiguration(LogIndex index) const {
  const auto after = committed_configurations_.upper_bound(index);
  return after == committed_configurations_.begin() ? nullptr : &std::prev(after)->second;
}

void InvariantChecker::SnapshotHas(NodeId id, const Snapshot& snapshot) {
  const Configuration* const known = CommittedConfiguration(snapshot.last.index);
  if (known != nullptr && *known == snapshot.configuration) return;
  Fail("the snapshot of node ", id.value(), " at ", snapshot.last.index.value(), " has configuration ",
       snapshot.configuration.epoch, ", which is not the committed one");
}

// Dissertation sections 4.1 and 4.3: from one configuration to the next a majority of each is a majority of the
// other, and there is but one that is not committed.
void InvariantChecker::ConfigurationAppended(Node& node, NodeId id, const Entry& entry, bool fresh) {
  if (entry.index <= node.configurations.back().first) return;  // before its snapshot
  const std::optional<Configuration> next = DecodeConfiguration(entry.payload.view());
  if (!next.has_value()) {
    Fail("node ", id.value(), " appends a configuration at ", entry.index.value(), " that is none");
    return;
  }
  const auto [last_index, last] = node.configurations.back();
  node.configurations.emplace_back(entry.index, *next);
  if (!fresh || last.members.empty()) return;  // judged where it was made
  const uint32_t voters = last.joint() ? last.next_voters : last.voters;
  bool steps = next->epoch == last.epoch + 1 && next->voters == voters && !(last.joint() && next->joint());
  for (const Member& member : last.members) {
    const Member* const kept = next->Find(member.id);
    const bool returns = ((last.leaving >> member.slot) & 1) != 0;
    steps = steps && (kept == nullptr || returns || kept->slot == member.slot);
  }
  if (!steps) Fail("configuration: node ", id.value(), " goes from ", last.epoch, " to ", next->epoch, " in one step");
  if (last_index.value() > committed_.size()) {
    Fail("configuration: node ", id.value(), " makes configuration ", next->epoch, " at ", entry.index.value(),
         " before that at ", last_index.value(), " is committed");
  }
}

// Dissertation section 4.1: a node goes by the latest configuration of its log; section 4.2: only voters stand,
// and nodes that are not known to have left.
void InvariantChecker::ConfigurationFollowed(const Node& seen, NodeId id, const Raft& node) {
  const Configuration& held = seen.configuration();
  if (node.configuration() != held) {
    Fail("configuration: node ", id.value(), " goes by ", node.configuration().epoch, ", and its log holds ",
         held.epoch);
  }
  const Member* const self = held.Find(id);
  const bool votes = self != nullptr && ((held.deciding() >> self->slot) & 1) != 0;
  const bool leaves = self != nullptr && ((held.leaving >> self->slot) & 1) != 0;
  const bool has_left = seen.configurations.back().first <= node.commit();
  if (node.role() == Role::kFollower || votes || (leaves && !has_left)) return;
  Fail("configuration: node ", id.value(), " is no voter, and yet no follower");
}

void InvariantChecker::Applied(Node& node, NodeId id, const std::vector<Entry>& entries) {
  for (const Entry& entry : entries) {
    const uint64_t at = node.applied.value();
    if (entry.index != node.applied.Next() || at >= committed_.size() ||
        committed_[at] != Identity{.term = entry.term, .content = ContentOf(entry)}) {
      Fail("State Machine Safety: node ", id.value(), " applies an entry at ", entry.index.value(),
           " that is not the committed one");
      return;
    }
    node.applied = entry.index;
  }
}

void InvariantChecker::BecameLeader(Node& node, NodeId id) {
  const auto [leader, fresh] = leaders_.try_emplace(node.term, id);
  if (!fresh && leader->second != id) {
    Fail("Election Safety: nodes ", leader->second.value(), " and ", id.value(), " both lead term ", node.term.value());
  }
  MajorityVoted(node, id);
  if (!committed_.empty()) LeaderHasCommitted(node, id, committed_.size() - 1);
}

// Raft figure 3, Leader Completeness. With Log Matching, the last committed entry stands for all before it.
void InvariantChecker::LeaderHasCommitted(const Node& leader, NodeId id, uint64_t from) {
  if (from < leader.log.size() && leader.log[from] == committed_[from]) return;
  // An old leader that has not heard of the newer term may lack what is committed in it.
  if (committed_[from].term > leader.term) return;
  Fail("Leader Completeness: node ", id.value(), " leads term ", leader.term.value(), " without the committed entry ",
       from + 1, " of term ", committed_[from].term.value());
}

void InvariantChecker::Said(Node& node, NodeId id, const Message& message) {
  if (std::holds_alternative<AppendRequest>(message.body) || std::holds_alternative<Heartbeat>(message.body)) {
    const auto& [index, configuration] = node.configurations.back();
    const Member* const to = configuration.Find(message.to);
    const bool left = to != nullptr && ((configuration.leaving >> to->slot) & 1) != 0 && index <= node.commit;
    if (to == nullptr || left) {
      Fail("configuration: node ", id.value(), " leads node ", message.to.value(), ", which is no member");
    }
  }
  Term promised;
  if (const auto* reply = std::get_if<VoteReply>(&message.body)) {
    if (!reply->granted || reply->pre_vote) return;
    promised = reply->asked_term;
    Voted(node, id, promised, message.to);
  } else if (const auto* request = std::get_if<VoteRequest>(&message.body)) {
    if (request->pre_vote) return;
    promised = request->asked_term;
    Voted(node, id, promised, id);
  } else if (const auto* append = std::get_if<AppendReply>(&message.body)) {
    if (!append->accepted) return;
    promised = message.term;
  }
  node.process_term = std::max(node.process_term, promised);
  node.promised_term = std::max(node.promised_term, promised);
}

void InvariantChecker::Voted(Node& node, NodeId id, Term term, NodeId candidate) {
  node.promised_term = std::max(node.promised_term, term);
  const auto [vote, fresh] = votes_.try_emplace({id, term}, candidate);
  if (!fresh && vote->second != candidate) {
    Fail("one vote a term: node ", id.value(), " voted for ", vote->second.value(), " and ", candidate.value(),
         " in term ", term.value());
  }
}

// The votes that it gave, and the entries that were committed with its help, stay what they are.
void InvariantChecker::Emptied(NodeId id) { nodes_[id] = {}; }

// All of the log, from index 1; nothing if a committed entry is not in it.
std::vector<InvariantChecker::Identity> InvariantChecker::WithCommitted(const RestoredState& log) const {
  const uint64_t before = std::min<uint64_t>(committed_.size(), log.start.index.value());
  std::vector<Identity> all(committed_.begin(), committed_.begin() + static_cast<ptrdiff_t>(before));
  for (const Entry& entry : log.entries) all.push_back({.term = entry.term, .content = ContentOf(entry)});
  if (all.size() < committed_.size() || !std::equal(committed_.begin(), committed_.end(), all.begin())) return {};
  return all;
}

void InvariantChecker::Recovers(const RestoredState& log) {
  std::vector<Identity> all = WithCommitted(log);
  if (all.empty()) {
    Fail("recovery: what the cluster is recovered from does not hold all of the ", committed_.size(),
         " entries that were committed");
    return;
  }
  committed_ = std::move(all);
  nodes_.clear();
  leaders_.clear();
  votes_.clear();
  entries_.clear();
}

}  // namespace hedgerow::raft
