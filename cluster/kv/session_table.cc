// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/session_table.h"

#include <utility>

#include "cluster/raft/check.h"
#include "cluster/raft/seeded_bugs.h"

namespace hedgerow::kv {

SessionTable::Session& SessionTable::Create(uint64_t nonce, uint64_t id, uint64_t now_ns) {
  Session& session = sessions_[id];
  session.nonce = nonce;
  session.active_ns = now_ns;
  session.place = by_activity_.insert(by_activity_.end(), id);
  session.opened = {.code = ResultCode::kOk, .session = id, .values = {}};
  by_nonce_[nonce] = id;
  return session;
}

uint64_t SessionTable::Open(uint64_t nonce, uint64_t id, uint64_t now_ns) {
  const auto known = by_nonce_.find(nonce);
  if (known != by_nonce_.end()) return known->second;
  if (sessions_.size() >= limits_.sessions_max) return 0;
  HEDGEROW_CHECK(!sessions_.contains(id));
  Create(nonce, id, now_ns);
  return id;
}

SessionTable::Standing SessionTable::Arrive(uint64_t id, uint64_t seq, uint64_t lowest_unanswered,
                                            uint64_t now_ns) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) {
    if (!SeededBug(Bug::kSessionRecreation)) return Standing::kUnknown;
    Create(id, id, now_ns);
    return Standing::kFresh;
  }
  Session& session = found->second;
  session.active_ns = now_ns;
  by_activity_.splice(by_activity_.end(), by_activity_, session.place);
  if (lowest_unanswered > session.lowest_unanswered) {
    session.lowest_unanswered = lowest_unanswered;
    session.answers.erase(session.answers.begin(), session.answers.lower_bound(lowest_unanswered));
  }
  return Look(session, seq);
}

SessionTable::Standing SessionTable::Look(uint64_t id, uint64_t seq) const {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? Standing::kUnknown : Look(found->second, seq);
}

SessionTable::Standing SessionTable::Look(const Session& session, uint64_t seq) const {
  if (seq < session.lowest_unanswered && !SeededBug(Bug::kApplyBelowLowestUnanswered)) {
    return Standing::kBelowLowest;
  }
  if (session.answers.contains(seq)) return Standing::kAnswered;
  if (SeededBug(Bug::kLatestSeqOnlyDedupe) && !session.answers.empty() &&
      seq < session.answers.rbegin()->first) {
    return Standing::kAnswered;
  }
  return session.answers.size() < limits_.answers_max ? Standing::kFresh : Standing::kFull;
}

const Result* SessionTable::Answer(uint64_t id, uint64_t seq) const {
  const auto session = sessions_.find(id);
  if (session == sessions_.end()) return nullptr;
  const std::map<uint64_t, Result>& answers = session->second.answers;
  const auto answer = answers.find(seq);
  if (answer != answers.end()) return &answer->second;
  if (SeededBug(Bug::kLatestSeqOnlyDedupe) && !answers.empty()) return &answers.rbegin()->second;
  return nullptr;
}

const Result* SessionTable::OpenAnswer(uint64_t nonce) const {
  const auto id = by_nonce_.find(nonce);
  return id == by_nonce_.end() ? nullptr : &sessions_.at(id->second).opened;
}

void SessionTable::Record(uint64_t id, uint64_t seq, Result result) {
  sessions_.at(id).answers.emplace(seq, std::move(result));
}

void SessionTable::Expire(uint64_t now_ns) {
  while (!by_activity_.empty()) {
    const auto session = sessions_.find(by_activity_.front());
    if (now_ns - session->second.active_ns < limits_.timeout_ns) return;
    by_nonce_.erase(session->second.nonce);
    sessions_.erase(session);
    by_activity_.pop_front();
  }
}

}  // namespace hedgerow::kv
