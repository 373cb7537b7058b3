// SPDX-License-Identifier: Apache-2.0
//
// ReadIndex at leader and follower, and reads that no leader confirms: dissertation section 6.4 and R8.
#include <algorithm>

#include "cluster/raft/raft.h"

namespace hedgerow::raft {

void Raft::On(Context& context, const Read& read) {
  if (waiting_reads() >= options_.reads_max) {
    context.out.refused_reads.push_back({read.tag, RefusalReason::kOverloaded});
    return;
  }
  const LocalRead local{.tag = read.tag, .deadline_ns = read.deadline_ns};
  if (read.up_to.has_value()) {
    AnswerWhenApplied(context, {.up_to = *read.up_to, .local = local, .question = asked_reads_.id().number});
  } else if (role_ == Role::kLeader) {
    led_reads_.Add({.origin = {}, .local = local, .id = {}});
    LeadReads(context);
  } else {
    asked_reads_.Add(local);
    if (!asked_reads_.asking()) AskForReads(context);
  }
}

void Raft::AskForReads(Context& context) {
  if (asked_reads_.size() == 0) return;
  asked_reads_.Ask(context.now_ns);
  SendQuestion(context);
}

// Where there is no leader, the next one has the same time to answer. During a change of members no majority would do.
void Raft::SendQuestion(Context& context) {
  const ReadIndexRequest question{.id = asked_reads_.id()};
  if (asked_reads_.asks_all() && configuration_committed()) {
    ForEach(peers_, [&](size_t member) { Send(context, NodeAt(member), question); });
  } else if (leader_.IsSet()) {
    Send(context, leader_, question);
  }
}

// The leader has not answered, or no majority has.
void Raft::AskAgain(Context& context) {
  if (asked_reads_.asks_all()) return AskForReads(context);
  asked_reads_.SetAsksAll(true);
  SendQuestion(context);
}

uint64_t Raft::AskAgain_ns() const {
  if (!asked_reads_.asking()) return UINT64_MAX;
  return asked_reads_.asked_ns() + (asked_reads_.asks_all() ? 2 * HeartbeatInterval_ns() : LeaderWait_ns());
}

// A leader at another site answers later than one at the next port.
uint64_t Raft::LeaderWait_ns() const {
  return std::clamp(2 * asked_reads_.leader_took_ns(), options_.read_leader_ns,
                    std::max(options_.read_leader_ns, 2 * HeartbeatInterval_ns()));
}

void Raft::Handle(Context& context, const Message& message, const ReadIndexRequest& request) {
  if (role_ != Role::kLeader) {
    Send(context, message.from, LastEntry{.id = request.id, .last = log_.last()});
    return;
  }
  if (waiting_reads() >= options_.reads_max) return;  // it asks again
  led_reads_.Add({.origin = message.from, .local = {}, .id = request.id});
  LeadReads(context);
}

// A round for reads that wait, unless one for earlier reads is under way: then they share the next. A round
// that is lost is followed by the next heartbeat's.
void Raft::LeadReads(Context& context) {
  if (led_reads_.waiting() && !led_reads_.confirming() && commit_ >= term_start_) StartHeartbeatRound(context);
}

void Raft::ConfirmReads(Context& context) {
  Reached reached{};
  ForEach(peers_, [&](size_t member) { reached[member] = progress_[member].round(); });
  reached[self_] = round_;
  for (const LedRead& read : led_reads_.TakeConfirmed(QuorumValue(reached))) {
    if (read.origin.IsSet()) {
      Send(context, read.origin, ReadIndexReply{.id = read.id, .index = read.index});
    } else {
      AnswerWhenApplied(context, {.up_to = {.index = read.index, .term = term_}, .local = read.local});
    }
  }
  LeadReads(context);
}

// AdoptTerm has made sure that the term is ours; the question was to this leader, or it is forgotten.
void Raft::Handle(Context& context, const Message& message, const ReadIndexReply& reply) {
  if (role_ != Role::kFollower || message.from != leader_) return;
  asked_reads_.LeaderAnswered(reply.id, context.now_ns, 2 * LeaderWait_ns());
  asked_reads_.SetAsksAll(false);
  const EntryId up_to{.index = reply.index, .term = term_};
  for (const LocalRead& read : asked_reads_.TakeAnswered(reply.id)) {
    AnswerWhenApplied(context, {.up_to = up_to, .local = read});
  }
  // Also what a majority has confirmed meanwhile: it waits for entries that may never be committed.
  for (UnappliedRead& waiting : unapplied_reads_) {
    const bool newer = reply.id.incarnation == asked_reads_.id().incarnation && reply.id.number >= waiting.question;
    if (newer && reply.index < waiting.up_to.index) waiting.up_to = up_to;
  }
  ReleaseReads(context);
  // The leader has committed this much; what we know to be equal to its log need not wait for a heartbeat.
  AdvanceCommit(context, std::min(reply.index, matched_));
  if (!asked_reads_.asking()) AskForReads(context);
}

// What was committed when the read came is in the logs of a majority since, so one of any majority of the same
// configuration shows at least that. This log's end is compared as it is now, with what its kernel part had accepted
// (R1). Only a configuration that is known to be committed has such majorities (docs/SAFETY.md, R8).
void Raft::Handle(Context& context, const Message& message, const LastEntry& answer) {
  const size_t member = MemberOf(message.from);
  if (answer.last.term > message.term || (answer.last.index.value() >> 63) != 0) {
    ++counters_.impossible;
    return;
  }
  if (role_ == Role::kLeader || !IsPeer(member) || message.config_epoch != configuration().epoch) return;
  asked_reads_.Heard(answer.id, member, answer.last);
  if (!configuration_committed() || !IsQuorum(asked_reads_.heard() | 1u << self_)) return;
  const EntryId up_to = Further(asked_reads_.furthest(), log_.last());
  for (const LocalRead& read : asked_reads_.TakeAnswered(answer.id)) {
    ++counters_.majority_reads;
    if (up_to == log_.last() && !HasApplied(up_to)) {
      context.out.tail_reads.push_back({.tag = read.tag, .deadline_ns = read.deadline_ns, .up_to = up_to});
    } else {
      AnswerWhenApplied(context, {.up_to = up_to, .local = read, .question = answer.id.number});
    }
  }
  if (!asked_reads_.asking()) AskForReads(context);
}

void Raft::LeaderChangedForReads(Context& context) {
  if (role_ == Role::kLeader) {
    for (const LocalRead& read : asked_reads_.TakeAll()) led_reads_.Add({.origin = {}, .local = read, .id = {}});
    return;
  }
  for (const LocalRead& read : led_reads_.TakeLocal()) asked_reads_.Add(read);
  asked_reads_.Forget();
  AskForReads(context);
}

// Everything up to this entry that is committed, be it the entry itself or not: what is applied of a later term follows
// all of it (Leader Completeness, Raft section 5.4).
bool Raft::HasApplied(const EntryId& up_to) const {
  return applied_ >= up_to.index || log_.TermAt(applied_) > up_to.term;
}

void Raft::AnswerWhenApplied(Context& context, UnappliedRead read) {
  if (HasApplied(read.up_to)) {
    context.out.reads_ready.push_back({.tag = read.local.tag, .index = read.up_to.index});
  } else {
    unapplied_reads_.push_back(read);
  }
}

void Raft::ReleaseReads(Context& context) {
  std::erase_if(unapplied_reads_, [this, &context](const UnappliedRead& waiting) {
    if (!HasApplied(waiting.up_to)) return false;
    context.out.reads_ready.push_back({.tag = waiting.local.tag, .index = waiting.up_to.index});
    return true;
  });
}

void Raft::ExpireReads(Context& context) {
  for (const LocalRead& read : asked_reads_.TakeExpired(context.now_ns)) {
    context.out.refused_reads.push_back({read.tag, RefusalReason::kExpired});
  }
  std::erase_if(unapplied_reads_, [&context](const UnappliedRead& waiting) {
    if (waiting.local.deadline_ns > context.now_ns) return false;
    context.out.refused_reads.push_back({waiting.local.tag, RefusalReason::kExpired});
    return true;
  });
  // No answer would put the next question where the reads of the last one are gone.
  if (role_ != Role::kLeader && !asked_reads_.asking()) AskForReads(context);
}

}  // namespace hedgerow::raft
