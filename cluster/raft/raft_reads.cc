// SPDX-License-Identifier: Apache-2.0
//
// ReadIndex at leader and follower: dissertation section 6.4 and R8.
#include <algorithm>

#include "cluster/raft/raft.h"

namespace hedgerow::raft {

size_t Raft::ReadCount() const { return led_reads_.size() + asked_reads_.size() + unapplied_reads_.size(); }

void Raft::On(Context& context, const Read& read) {
  if (ReadCount() >= options_.reads_max) {
    context.out.refused_reads.push_back({read.tag, RefusalReason::kOverloaded});
    return;
  }
  const LocalRead local{.tag = read.tag, .deadline_ns = read.deadline_ns};
  if (role_ == Role::kLeader) {
    led_reads_.Add({.origin = {}, .local = local, .id = {}});
    LeadReads(context);
  } else {
    asked_reads_.Add(local);
    if (!asked_reads_.asking()) AskLeader(context);
  }
}

void Raft::AskLeader(Context& context) {
  if (!leader_.IsSet() || leader_ == options_.self) return;
  if (asked_reads_.size() == 0) return;
  Send(context, leader_, ReadIndexRequest{.id = asked_reads_.Ask(context.now_ns)});
}

void Raft::Handle(Context& context, const Message& message, const ReadIndexRequest& request) {
  if (role_ != Role::kLeader || ReadCount() >= options_.reads_max) return;  // it asks again
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
      AnswerWhenApplied(context, read.local, read.index);
    }
  }
  LeadReads(context);
}

// AdoptTerm has made sure that the term is ours; the question was to this leader, or it is forgotten.
void Raft::Handle(Context& context, const Message& message, const ReadIndexReply& reply) {
  if (role_ != Role::kFollower || message.from != leader_) return;
  for (const LocalRead& read : asked_reads_.TakeAnswered(reply.id)) AnswerWhenApplied(context, read, reply.index);
  // The leader has committed this much; what we know to be equal to its log need not wait for a heartbeat.
  AdvanceCommit(context, std::min(reply.index, matched_));
  if (!asked_reads_.asking()) AskLeader(context);
}

void Raft::LeaderChangedForReads(Context& context) {
  if (role_ == Role::kLeader) {
    for (const LocalRead& read : asked_reads_.TakeAll()) led_reads_.Add({.origin = {}, .local = read, .id = {}});
    return;
  }
  for (const LocalRead& read : led_reads_.TakeLocal()) asked_reads_.Add(read);
  asked_reads_.Forget();
  AskLeader(context);
}

void Raft::AnswerWhenApplied(Context& context, LocalRead read, LogIndex index) {
  if (applied_ >= index) {
    context.out.reads_ready.push_back({.tag = read.tag, .index = index});
  } else {
    unapplied_reads_.emplace_back(index, read);
  }
}

void Raft::ReleaseReads(Context& context) {
  std::erase_if(unapplied_reads_, [this, &context](const auto& waiting) {
    if (waiting.first > applied_) return false;
    context.out.reads_ready.push_back({.tag = waiting.second.tag, .index = waiting.first});
    return true;
  });
}

void Raft::ExpireReads(Context& context) {
  for (const LocalRead& read : asked_reads_.TakeExpired(context.now_ns)) {
    context.out.refused_reads.push_back({read.tag, RefusalReason::kExpired});
  }
  std::erase_if(unapplied_reads_, [&context](const auto& waiting) {
    if (waiting.second.deadline_ns > context.now_ns) return false;
    context.out.refused_reads.push_back({waiting.second.tag, RefusalReason::kExpired});
    return true;
  });
}

}  // namespace hedgerow::raft
