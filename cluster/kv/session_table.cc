// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/session_table.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cluster/kv/content_hash.h"
#include "cluster/raft/check.h"

namespace hedgerow::kv {

SessionTable::Session& SessionTable::Create(uint64_t nonce, uint64_t id, uint64_t now_ns) {
  Session& session = *sessions_.Emplace(id).first;
  session.nonce = nonce;
  session.snapshot = snapshot_;
  session.active_ns = now_ns;
  session.place = by_activity_.insert(by_activity_.end(), id);
  session.opened = {.code = ResultCode::kOk, .session = id, .values = {}};
  *by_nonce_.Emplace(nonce).first = id;
  content_ += HashSession(RecordOf(id, session));
  return session;
}

uint64_t SessionTable::Open(uint64_t nonce, uint64_t id, uint64_t now_ns) {
  if (const uint64_t* known = by_nonce_.Find(nonce)) return *known;
  if (sessions_.size() >= limits_.sessions_max) return 0;
  HEDGEROW_CHECK(!sessions_.Contains(id));
  Create(nonce, id, now_ns);
  return id;
}

SessionTable::SequenceStatus SessionTable::Arrive(uint64_t id, uint64_t seq, uint64_t lowest_unanswered,
                                            uint64_t now_ns) {
  Session* const found = sessions_.Find(id);
  if (found == nullptr) return SequenceStatus::kUnknown;
  Session& session = *found;
  Save(id, session);
  content_ -= HashSession(RecordOf(id, session));
  session.active_ns = now_ns;
  by_activity_.splice(by_activity_.end(), by_activity_, session.place);
  if (lowest_unanswered > session.lowest_unanswered) {
    session.lowest_unanswered = lowest_unanswered;
    const auto kept = session.answers.lower_bound(lowest_unanswered);
    for (auto answer = session.answers.begin(); answer != kept; ++answer)
      content_ -= HashAnswer(id, answer->first, answer->second);
    if (kept != session.answers.begin()) session.spare = session.answers.extract(session.answers.begin());
    session.answers.erase(session.answers.begin(), kept);
  }
  content_ += HashSession(RecordOf(id, session));
  return StatusOf(session, seq);
}

SessionTable::SequenceStatus SessionTable::StatusOf(const Session& session, uint64_t seq) const {
  if (seq < session.lowest_unanswered) return SequenceStatus::kBelowLowest;
  if (session.answers.contains(seq)) return SequenceStatus::kAnswered;
  return session.answers.size() < limits_.answers_max ? SequenceStatus::kFresh : SequenceStatus::kFull;
}

const Result* SessionTable::Answer(uint64_t id, uint64_t seq) const {
  const Session* session = sessions_.Find(id);
  if (session == nullptr) return nullptr;
  const std::map<uint64_t, Result>& answers = session->answers;
  const auto answer = answers.find(seq);
  if (answer != answers.end()) return &answer->second;
  return nullptr;
}

const Result* SessionTable::OpenAnswer(uint64_t nonce) const {
  const uint64_t* id = by_nonce_.Find(nonce);
  return id == nullptr ? nullptr : &sessions_.Find(*id)->opened;
}

// Most clients ask one thing after the other: what is forgotten makes room for what is said.
void SessionTable::Record(uint64_t id, uint64_t seq, const Result& result) {
  Session* const session = sessions_.Find(id);
  HEDGEROW_CHECK(session != nullptr);
  Save(id, *session);
  content_ += HashAnswer(id, seq, result);
  if (session->spare.empty()) {
    session->answers.emplace(seq, result);
    return;
  }
  session->spare.key() = seq;
  session->spare.mapped() = result;
  session->answers.insert(std::move(session->spare));
}

void SessionTable::Expire(uint64_t now_ns) {
  if (now_ns < none_ends_before_ns_) return;
  while (!by_activity_.empty()) {
    const uint64_t id = by_activity_.front();
    Session& session = *sessions_.Find(id);
    if (now_ns - session.active_ns < limits_.timeout_ns) {
      none_ends_before_ns_ = session.active_ns + limits_.timeout_ns;
      return;
    }
    Save(id, session);
    content_ -= HashSession(RecordOf(id, session));
    for (const auto& [seq, result] : session.answers) content_ -= HashAnswer(id, seq, result);
    by_nonce_.Erase(session.nonce);
    sessions_.Erase(id);
    by_activity_.pop_front();
  }
}

void SessionTable::BeginSnapshot(SnapshotWriter* writer) {
  ++snapshot_;
  writer_ = writer;
  walk_ = {};
}

void SessionTable::Save(uint64_t id, Session& session) {
  if (writer_ == nullptr || session.snapshot == snapshot_) return;
  session.snapshot = snapshot_;
  writer_->Session(RecordOf(id, session), session.answers);
}

SessionRecord SessionTable::RecordOf(uint64_t id, const Session& session) {
  return {.id = id,
          .nonce = session.nonce,
          .lowest_unanswered = session.lowest_unanswered,
          .active_ns = session.active_ns};
}

bool SessionTable::ContinueSnapshot() {
  if (writer_ == nullptr) return false;
  if (sessions_.VisitSome(walk_, [this](uint64_t id, Session& session) { Save(id, session); })) return true;
  writer_ = nullptr;
  return false;
}

bool SessionTable::Restore(const SessionRecord& record, std::map<uint64_t, Result> answers) {
  if (sessions_.Contains(record.id) || by_nonce_.Contains(record.nonce)) return false;
  Session& session = Create(record.nonce, record.id, record.active_ns);
  none_ends_before_ns_ = 0;  // it may be the longest idle
  content_ -= HashSession(RecordOf(record.id, session));
  session.lowest_unanswered = record.lowest_unanswered;
  session.answers = std::move(answers);
  content_ += HashSession(record);
  for (const auto& [seq, result] : session.answers) content_ += HashAnswer(record.id, seq, result);
  return true;
}

// Sessions that were active at the same committed time end at the same one, in whatever order.
void SessionTable::FinishRestore() {
  std::vector<std::pair<uint64_t, std::list<uint64_t>::iterator>> order;
  order.reserve(sessions_.size());
  for (auto place = by_activity_.begin(); place != by_activity_.end(); ++place) {
    order.emplace_back(sessions_.Find(*place)->active_ns, place);
  }
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [active_ns, place] : order) by_activity_.splice(by_activity_.end(), by_activity_, place);
}

}  // namespace hedgerow::kv
