// SPDX-License-Identifier: Apache-2.0
#include "cluster/raft/invariants.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <variant>

namespace hedgerow::raft {
namespace {

uint64_t ContentOf(const Entry& entry) {
  return std::hash<std::string_view>()(entry.payload.view()) * 2 + (entry.kind == EntryKind::kNoOp ? 1 : 0);
}

// Terms and indices of a run stay far below 2^32.
uint64_t Key(LogIndex index, Term term) { return index.value() << 32 | term.value(); }

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
  seen.term = node.term();
  // R9: who starts with a reservation says nothing in that term and below.
  if (std::max(node.term(), node.reserved()) < seen.said_term) {
    Fail("monotone terms: node ", id.value(), " starts in term ", node.term().value(),
         " after it promised in term ", seen.said_term.value());
  }
  for (LogIndex index = start.index.Next(); node.log().Has(index); index = index.Next()) {
    Append(seen, id, node.log().At(index));
  }
}

void InvariantChecker::Stepped(const Raft& node, NodeId id, const Outputs& outputs) {
  Node& seen = nodes_[id];
  if (node.term() < seen.term) Fail("monotone terms: node ", id.value(), " went back to ", node.term().value());
  seen.term = node.term();
  const bool led = seen.leads;
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
  if (outputs.install.has_value()) seen.commit = seen.applied = outputs.install->last.index;
  if (seen.leads && (!led || !leaders_.contains(node.term()))) BecameLeader(seen, id);
  if (node.commit() != seen.commit) Committed(seen, id, node.commit());
  Applied(seen, id, outputs.apply);
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
  node.acknowledged = append->index;
  node.acknowledged_term = answer.term;
}

void InvariantChecker::Adopted(NodeId id) {
  const Node& node = nodes_[id];
  if (node.term < node.promised_term) {
    Fail("monotone terms: node ", id.value(), " goes on in term ", node.term.value(),
         " after its kernel part promised in term ", node.promised_term.value());
  }
  if (node.acknowledged == LogIndex()) return;
  const uint64_t index = node.acknowledged.value();
  if (index <= node.log.size() && node.log[index - 1].term == node.acknowledged_term) return;
  Fail("node ", id.value(), " starts without entry ", index,
       ", which its kernel part has acknowledged in term ", node.acknowledged_term.value());
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
  if (node.acknowledged == LogIndex()) return;
  node.acknowledged = start.after.index;
  node.acknowledged_term = start.after.term;
}

void InvariantChecker::LogChanged(Node& node, NodeId id, const Persist& persist) {
  if (persist.new_start.has_value()) StartsAfter(node, id, *persist.new_start);
  if (persist.truncate_from.has_value()) {
    node.log.resize(std::min<size_t>(node.log.size(), persist.truncate_from->value() - 1));
    if (node.acknowledged >= *persist.truncate_from) {
      node.acknowledged = persist.truncate_from->Previous();
      node.acknowledged_term = node.log.empty() ? Term() : node.log.back().term;
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
  const auto [known, fresh] =
      entries_.try_emplace(Key(entry.index, entry.term), Fixed{identity.content, previous});
  if (!fresh && (known->second.content != identity.content || known->second.previous != previous)) {
    Fail("Log Matching: node ", id.value(), " has another entry ", entry.index.value(), " of term ",
         entry.term.value(), " than was seen before");
  }
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
  size_t holders = 0;
  for (const auto& [other, node] : nodes_) {
    const bool in_log = commit.value() <= node.log.size() && node.log[commit.value() - 1] == entry;
    const bool in_ring = node.acknowledged >= commit && node.acknowledged_term == leader.term;
    holders += in_log || in_ring;
  }
  if (holders > nodes_.size() / 2) return;
  Fail("commitment: node ", id.value(), " commits entry ", commit.value(), " of term ", entry.term.value(),
       ", which ", holders, " of ", nodes_.size(), " nodes hold");
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
    Fail("Election Safety: nodes ", leader->second.value(), " and ", id.value(), " both lead term ",
         node.term.value());
  }
  if (!committed_.empty()) LeaderHasCommitted(node, id, committed_.size() - 1);
}

// Raft figure 3, Leader Completeness. With Log Matching, the last committed entry stands for all before it.
void InvariantChecker::LeaderHasCommitted(const Node& leader, NodeId id, uint64_t from) {
  if (from < leader.log.size() && leader.log[from] == committed_[from]) return;
  // An old leader that has not heard of the newer term may lack what is committed in it.
  if (committed_[from].term > leader.term) return;
  Fail("Leader Completeness: node ", id.value(), " leads term ", leader.term.value(),
       " without the committed entry ", from + 1, " of term ", committed_[from].term.value());
}

void InvariantChecker::Said(Node& node, NodeId id, const Message& message) {
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
  node.said_term = std::max(node.said_term, promised);
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

// All of the log, from index 1; nothing if a committed entry is not in it.
std::vector<InvariantChecker::Identity> InvariantChecker::WithCommitted(const RestoredState& log) const {
  const uint64_t before = std::min<uint64_t>(committed_.size(), log.start.index.value());
  std::vector<Identity> all(committed_.begin(), committed_.begin() + static_cast<ptrdiff_t>(before));
  for (const Entry& entry : log.entries) all.push_back({.term = entry.term, .content = ContentOf(entry)});
  if (all.size() < committed_.size() || !std::equal(committed_.begin(), committed_.end(), all.begin()))
    return {};
  return all;
}

void InvariantChecker::BeginsAnew(const RestoredState& log) {
  std::vector<Identity> all = WithCommitted(log);
  if (all.empty()) {
    Fail("recovery: what the cluster begins anew with does not hold all of the ", committed_.size(),
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
