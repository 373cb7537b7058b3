// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/session_table.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cluster/kv/content_hash.h"
#include "cluster/raft/check.h"

namespace hedgerow::kv {

SessionTable::Session& SessionTable::Create(const SessionRecord& record) {
  const uint64_t id = record.name.id;
  Session& session = *sessions_.Emplace(id).first;
  session.token = record.name.token;
  session.nonce = record.nonce;
  session.lowest_unanswered = record.lowest_unanswered;
  session.active_ns = record.active_ns;
  session.wrote = record.wrote;
  session.snapshot = snapshot_;
  session.place = by_activity_.insert(by_activity_.end(), id);
  session.opened = {.code = ResultCode::kOk, .session = id, .token = session.token};
  if (!session.wrote) unwritten_.emplace(session.active_ns, id);
  *by_nonce_.Emplace(session.nonce).first = id;
  content_ += HashSession(record);
  return session;
}

// An id is taken twice once in 2^64 times: its OPEN is refused, and the client's next one draws another.
const Result* SessionTable::Open(uint64_t nonce, const SessionName& name, uint64_t now_ns) {
  if (const Result* known = OpenAnswer(nonce)) return known;
  if (sessions_.size() >= limits_.sessions_max) EvictUnwritten();
  if (sessions_.size() >= limits_.sessions_max || name.id == 0 || sessions_.Contains(name.id)) return nullptr;
  return &Create({.name = name, .nonce = nonce, .active_ns = now_ns}).opened;
}

bool SessionTable::EvictUnwritten() {
  if (unwritten_.empty()) return false;
  End(unwritten_.begin()->second);
  ++evicted_;
  return true;
}

// A wrong token finds no session.
SessionTable::Session* SessionTable::Find(const RequestKey& write) {
  Session* const found = sessions_.Find(write.a);
  if (found == nullptr || !IsSameToken(found->token, write.d)) return nullptr;
  return found;
}

SessionTable::SequenceStatus SessionTable::Arrive(const RequestKey& write, uint64_t lowest_unanswered,
                                                  uint64_t now_ns) {
  const uint64_t id = write.a;
  Session* const found = Find(write);
  if (found == nullptr) return SequenceStatus::kUnknown;
  Session& session = *found;
  Save(id, session);
  content_ -= HashSession(RecordOf(id, session));
  if (!session.wrote) {
    unwritten_.erase({session.active_ns, id});
    unwritten_.emplace(now_ns, id);
  }
  session.active_ns = now_ns;
  by_activity_.splice(by_activity_.end(), by_activity_, session.place);
  if (lowest_unanswered > session.lowest_unanswered) {
    session.lowest_unanswered = lowest_unanswered;
    const auto kept = session.answers.lower_bound(lowest_unanswered);
    for (auto answer = session.answers.begin(); answer != kept; ++answer) {
      content_ -= HashAnswer(id, answer->first, answer->second);
      answer_bytes_ -= ChargeOfAnswer(answer->second.result);
    }
    if (kept != session.answers.begin()) session.spare = session.answers.extract(session.answers.begin());
    session.answers.erase(session.answers.begin(), kept);
  }
  content_ += HashSession(RecordOf(id, session));
  return StatusOf(session, write.b);
}

SessionTable::SequenceStatus SessionTable::StatusOf(const Session& session, uint64_t seq) const {
  if (seq < session.lowest_unanswered) return SequenceStatus::kBelowLowest;
  if (session.answers.contains(seq)) return SequenceStatus::kAnswered;
  return session.answers.size() < limits_.answers_max ? SequenceStatus::kFresh : SequenceStatus::kFull;
}

const Result* SessionTable::Answer(const RequestKey& write) const {
  const Session* const session = const_cast<SessionTable*>(this)->Find(write);
  if (session == nullptr) return nullptr;
  const SessionAnswers& answers = session->answers;
  const auto answer = answers.find(write.b);
  if (answer == answers.end()) return nullptr;
  return IsAnsweredBy(write, answer->second.fingerprint) ? &answer->second.result : &kAnotherRequest;
}

const Result* SessionTable::OpenAnswer(uint64_t nonce) const {
  const uint64_t* id = by_nonce_.Find(nonce);
  return id == nullptr ? nullptr : &sessions_.Find(*id)->opened;
}

// Most clients ask one thing after the other: what is forgotten makes room for what is said.
void SessionTable::Record(const RequestKey& write, const Result& result, bool wrote) {
  Session* const session = Find(write);
  HEDGEROW_CHECK(session != nullptr);
  const uint64_t id = write.a;
  Save(id, *session);
  if (wrote && !session->wrote) {
    content_ -= HashSession(RecordOf(id, *session));
    unwritten_.erase({session->active_ns, id});
    session->wrote = true;
    content_ += HashSession(RecordOf(id, *session));
  }
  SessionAnswers::node_type answer = std::move(session->spare);
  if (answer.empty()) answer = SessionAnswers{{write.b, {}}}.extract(write.b);
  answer.key() = write.b;
  answer.mapped().fingerprint = write.c;
  answer.mapped().result = result;
  content_ += HashAnswer(id, write.b, answer.mapped());
  answer_bytes_ += ChargeOfAnswer(result);
  session->answers.insert(std::move(answer));
}

void SessionTable::Expire(uint64_t now_ns) {
  if (now_ns < none_ends_before_ns_) return;
  while (!by_activity_.empty()) {
    const uint64_t id = by_activity_.front();
    const Session& session = *sessions_.Find(id);
    if (now_ns - session.active_ns < limits_.timeout_ns) {
      none_ends_before_ns_ = session.active_ns + limits_.timeout_ns;
      return;
    }
    End(id);
  }
}

void SessionTable::End(uint64_t id) {
  Session& session = *sessions_.Find(id);
  Save(id, session);
  content_ -= HashSession(RecordOf(id, session));
  for (const auto& [seq, answer] : session.answers) {
    content_ -= HashAnswer(id, seq, answer);
    answer_bytes_ -= ChargeOfAnswer(answer.result);
  }
  if (!session.wrote) unwritten_.erase({session.active_ns, id});
  by_activity_.erase(session.place);
  by_nonce_.Erase(session.nonce);
  sessions_.Erase(id);
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
  return {.name = {.id = id, .token = session.token},
          .nonce = session.nonce,
          .lowest_unanswered = session.lowest_unanswered,
          .active_ns = session.active_ns,
          .wrote = session.wrote};
}

bool SessionTable::ContinueSnapshot() {
  if (writer_ == nullptr) return false;
  if (sessions_.VisitSome(walk_, [this](uint64_t id, Session& session) { Save(id, session); })) return true;
  writer_ = nullptr;
  return false;
}

bool SessionTable::Restore(const SessionRecord& record, SessionAnswers answers) {
  if (record.name.id == 0 || sessions_.Contains(record.name.id) || by_nonce_.Contains(record.nonce)) return false;
  Session& session = Create(record);
  none_ends_before_ns_ = 0;  // it may be the longest idle
  session.answers = std::move(answers);
  for (const auto& [seq, answer] : session.answers) {
    content_ += HashAnswer(record.name.id, seq, answer);
    answer_bytes_ += ChargeOfAnswer(answer.result);
  }
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
