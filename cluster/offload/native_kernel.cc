// SPDX-License-Identifier: Apache-2.0
#include "cluster/offload/native_kernel.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "bpf/raft/control.h"
#include "cluster/raft/check.h"
#include "cluster/raft/seeded_bugs.h"

namespace hedgerow::offload {
namespace {

hr_peer_append PeerAppend(const raft::AppendRequest& request) {
  hr_peer_append append{.prev_index = request.prev_index.value(),
                        .prev_term = request.prev_term.value(),
                        .commit = request.commit.value(),
                        .batch_term = request.entries.empty() ? 0 : request.entries.front().term.value(),
                        .count = static_cast<__u32>(request.entries.size()),
                        .reserved = 0};
  for (const raft::Entry& entry : request.entries) {
    if (entry.term.value() != append.batch_term) append.batch_term = 0;
  }
  return append;
}

raft::AppendReply CoreReply(const hr_peer_append_reply& reply) {
  return {.accepted = reply.accepted != 0,
          .index = raft::LogIndex(reply.index),
          .conflict_term = raft::Term(reply.conflict_term),
          .conflict_index = raft::LogIndex(reply.conflict_index),
          .loop_seq = reply.loop_seq};
}

}  // namespace

uint64_t NativeKernel::Begin(uint64_t now_ns, raft::Message message) {
  const uint64_t number = next_run_++;
  Run& run = runs_[number];
  run.done.message = std::move(message);
  run.done.arrived_ns = now_ns;
  return number;
}

bool NativeKernel::Step(uint64_t number) {
  const auto found = runs_.find(number);
  if (found == runs_.end()) return false;
  Run& run = found->second;
  switch (run.next) {
    case Run::Next::kReserve:
      Reserve(number, run);
      run.next = Run::Next::kDecide;
      return true;
    case Run::Next::kDecide:
      Decide(run);
      run.next = Run::Next::kEnd;
      return true;
    case Run::Next::kEnd: {
      End(run);
      Done done = std::move(run.done);
      runs_.erase(found);
      when_done_(std::move(done));
      return false;
    }
  }
  return false;
}

std::vector<uint64_t> NativeKernel::Running() const {
  std::vector<uint64_t> numbers;
  for (const auto& [number, run] : runs_) numbers.push_back(number);
  return numbers;
}

void NativeKernel::Wipe() {
  view_ = {};
  ring_.clear();
  runs_.clear();
  released_ = taken_ = 0;
}

// Before the lock, and by a look without it: whether there will be something to store.
void NativeKernel::Reserve(uint64_t number, Run& run) {
  const raft::Message& message = run.done.message;
  const auto* vote = std::get_if<raft::VoteRequest>(&message.body);
  const bool append = std::holds_alternative<raft::AppendRequest>(message.body);
  if (append ? !(view_.may & HR_NODE_MAY_APPEND)
             : vote == nullptr || vote->pre_vote || !(view_.may & HR_NODE_MAY_GRANT)) {
    return;
  }
  run.ring_full = ring_.size() >= ring_records_;
  if (run.ring_full) return;
  ring_.emplace_back().run = number;
  run.slot = released_ + ring_.size();
}

void NativeKernel::Decide(Run& run) {
  const raft::Message& message = run.done.message;
  Outcome& outcome = run.done.outcome;
  const auto position = std::find(voters_.begin(), voters_.end(), message.from) - voters_.begin();
  hr_node_taken taken{.term = message.term.value(),
                      .now_ns = run.done.arrived_ns,
                      .from = static_cast<__u32>(message.from.value()),
                      .position = static_cast<__u32>(position),
                      .event = HR_NODE_EVENT_PASSED_KIND,
                      .wake = 0};
  hr_node_reply reply{};
  outcome.verdict = Take(run, taken, reply);
  outcome.event = static_cast<hr_node_event>(taken.event);
  outcome.wake = taken.wake != 0;
  if (outcome.verdict != HR_NODE_ANSWER) return;
  raft::Message answer{.from = self_, .to = message.from, .term = raft::Term(view_.raft.term), .body = {}};
  if (std::holds_alternative<raft::Heartbeat>(message.body)) {
    answer.body = raft::HeartbeatReply{.round = reply.heartbeat.round,
                                       .verified = raft::LogIndex(reply.heartbeat.verified),
                                       .loop_seq = reply.heartbeat.loop_seq};
  } else if (std::holds_alternative<raft::AppendRequest>(message.body)) {
    answer.body = CoreReply(reply.append);
  } else {
    answer.body = raft::VoteReply{.asked_term = raft::Term(reply.vote.asked_term),
                                  .pre_vote = reply.vote.pre_vote != 0,
                                  .granted = reply.vote.granted != 0};
  }
  outcome.answer = std::move(answer);
}

// The critical section of R0.
hr_node_verdict NativeKernel::Take(Run& run, hr_node_taken& taken, hr_node_reply& reply) {
  const raft::Message& message = run.done.message;
  const bool stores = run.slot != 0 || SeededBug(Bug::kAckWithoutStore);
  if (const auto* heartbeat = std::get_if<raft::Heartbeat>(&message.body)) {
    const hr_peer_heartbeat peer{.round = heartbeat->round,
                                 .commit = heartbeat->commit.value(),
                                 .election_timeout_ns = heartbeat->election_timeout_ns};
    return hr_node_take_heartbeat(&view_, &taken, &peer, &reply);
  }
  if (const auto* request = std::get_if<raft::AppendRequest>(&message.body)) {
    const hr_peer_append peer = PeerAppend(*request);
    if (run.ring_full && !stores) return hr_node_pass(&taken, HR_NODE_EVENT_PASSED_RING_FULL);
    if (!stores) return hr_node_pass(&taken, HR_NODE_EVENT_PASSED_FENCED);
    return hr_node_take_append(&view_, &taken, &peer, &reply);
  }
  if (const auto* request = std::get_if<raft::VoteRequest>(&message.body)) {
    const hr_peer_vote_request peer{.asked_term = request->asked_term.value(),
                                    .last_index = request->last_index.value(),
                                    .last_term = request->last_term.value(),
                                    .waived_term = request->waived_term.value(),
                                    .pre_vote = request->pre_vote,
                                    .reserved = 0};
    if (!request->pre_vote && run.slot == 0) {
      // Without room for a record no vote is given; refusals need none.
      const __u32 may = view_.may;
      view_.may &= ~static_cast<__u32>(HR_NODE_MAY_GRANT);
      const hr_node_verdict verdict = hr_node_take_vote_request(&view_, &taken, &peer, &reply);
      view_.may = may;
      return verdict;
    }
    return hr_node_take_vote_request(&view_, &taken, &peer, &reply);
  }
  if (const auto* vote = std::get_if<raft::VoteReply>(&message.body)) {
    const hr_peer_vote_reply peer{
        .asked_term = vote->asked_term.value(), .pre_vote = vote->pre_vote, .granted = vote->granted};
    return hr_node_take_vote_reply(&view_, &taken, &peer);
  }
  if (const auto* ack = std::get_if<raft::AppendReply>(&message.body)) {
    const hr_peer_append_reply peer{.index = ack->index.value(),
                                    .conflict_term = ack->conflict_term.value(),
                                    .conflict_index = ack->conflict_index.value(),
                                    .loop_seq = ack->loop_seq,
                                    .accepted = ack->accepted,
                                    .reserved = 0};
    if (SeededBug(Bug::kAckByIndexAlone)) taken.term = view_.raft.term;
    return hr_node_take_append_reply(&view_, &taken, &peer);
  }
  if (const auto* heard = std::get_if<raft::HeartbeatReply>(&message.body)) {
    const hr_peer_heartbeat_reply peer{
        .round = heard->round, .verified = heard->verified.value(), .loop_seq = heard->loop_seq};
    return hr_node_take_heartbeat_reply(&view_, &taken, &peer);
  }
  return HR_NODE_PASS;
}

void NativeKernel::End(Run& run) {
  if (run.slot == 0) return;
  Slot& slot = At(run.slot);
  const Outcome& outcome = run.done.outcome;
  const raft::Message& message = run.done.message;
  const bool append = outcome.event == HR_NODE_EVENT_APPEND_STORED;
  if (outcome.verdict != HR_NODE_ANSWER || (!append && outcome.event != HR_NODE_EVENT_VOTE_GRANTED)) {
    slot.state = Slot::State::kDiscarded;
    return;
  }
  slot.state = Slot::State::kSubmitted;
  slot.head.kind = append ? HR_NODE_RECORD_APPEND : HR_NODE_RECORD_VOTE;
  slot.head.from = static_cast<__u32>(message.from.value());
  slot.head.term = message.term.value();
  slot.head.arrived_ns = run.done.arrived_ns;
  if (!append) return;
  const auto& request = std::get<raft::AppendRequest>(message.body);
  slot.head.prev_index = request.prev_index.value();
  slot.head.last_index = slot.head.prev_index + request.entries.size();
  slot.message = message;
  slot.datagram = std::to_string(run.slot);
  slot.head.bytes = static_cast<__u32>(slot.datagram.size());
}

void NativeKernel::Control(hr_node_control& request) {
  OtherCpus();
  if (SeededBug(Bug::kPlainUpdate) && request.operation == HR_NODE_LEASE &&
      request.incarnation == view_.incarnation) {
    hr_node_view copy = view_;
    OtherCpus();
    request.result = hr_node_control_view(&copy, &request);
    view_ = copy;
  } else {
    request.result = hr_node_control_view(&view_, &request);
  }
  request.view = view_;
  OtherCpus();
}

uint64_t NativeKernel::ProducerPosition() {
  OtherCpus();
  return released_ + ring_.size();
}

uint64_t NativeKernel::Take(uint64_t until, bool wait, std::vector<RingRecord>& records) {
  OtherCpus();
  while (taken_ < until) {
    const uint64_t run = At(taken_ + 1).run;
    while (wait && At(taken_ + 1).state == Slot::State::kBusy) Step(run);
    const Slot& slot = At(taken_ + 1);
    if (slot.state == Slot::State::kBusy) break;
    ++taken_;
    if (slot.state == Slot::State::kDiscarded) continue;
    records.push_back({.head = slot.head, .datagram = slot.datagram, .end = taken_});
  }
  return taken_;
}

void NativeKernel::Release(uint64_t position) {
  HEDGEROW_CHECK(position >= released_ && position <= taken_);
  while (released_ < position) {
    ring_.pop_front();
    ++released_;
  }
}

std::optional<raft::Message> NativeKernel::Decode(std::string_view datagram) const {
  const uint64_t end = std::stoull(std::string(datagram));
  HEDGEROW_CHECK(end > released_ && end <= released_ + ring_.size());
  return ring_[end - 1 - released_].message;
}

}  // namespace hedgerow::offload
