// SPDX-License-Identifier: Apache-2.0
#include "cluster/offload/testing/native_kernel.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>
#include <variant>

#include "bpf/node/raft/control.h"
#include "bpf/node/raft/datagram.h"
#include "cluster/raft/check.h"
#include "cluster/wire/peer_body.h"

namespace hedgerow::offload {
namespace {

// The body as its datagram has it, and its kind.
uint32_t PutBody(const raft::Message& message, uint32_t append_flags, hr_node_body& to) {
  return std::visit(
      [&](const auto& body) {
        ByteWriter writer(wire::BodySize_bytes(body));
        wire::PutBody(writer, body);
        std::memcpy(&to, writer.view().data(), std::min(sizeof(to), writer.view().size()));
        const uint32_t kind = wire::KindOf<std::decay_t<decltype(body)>>();
        if (kind == HR_PEER_APPEND) to.append.flags = append_flags;
        return kind;
      },
      message.body);
}

bool HoldsConfiguration(const raft::Message& message) {
  const auto* const append = std::get_if<raft::AppendRequest>(&message.body);
  return append != nullptr && std::any_of(append->entries.begin(), append->entries.end(), [](const raft::Entry& entry) {
           return entry.kind == raft::EntryKind::kConfiguration;
         });
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
  shared_ = {};
  ring_.clear();
  runs_.clear();
  released_ = taken_ = 0;
}

// Before the lock, by reads without it: the sender, and whether there will be something to store.
void NativeKernel::Reserve(uint64_t number, Run& run) {
  const raft::Message& message = run.done.message;
  run.slot = static_cast<size_t>(std::find(members_.begin(), members_.end(), message.from) - members_.begin());
  if (run.slot >= members_.size()) run.slot = HR_NODE_NO_MEMBER;
  const auto* vote = std::get_if<raft::VoteRequest>(&message.body);
  const bool append = std::holds_alternative<raft::AppendRequest>(message.body);
  if (append ? !(shared_.capabilities & HR_NODE_CAN_APPEND)
             : vote == nullptr || vote->pre_vote || !(shared_.capabilities & HR_NODE_CAN_GRANT)) {
    return;
  }
  if (ring_.size() >= ring_records_) return;
  ring_.emplace_back().run = number;
  run.record_end = released_ + ring_.size();
}

// The critical section of R0.
void NativeKernel::Decide(Run& run) {
  const raft::Message& message = run.done.message;
  Outcome& outcome = run.done.outcome;
  hr_node_body body{};
  hr_node_reply reply{};
  hr_node_spoken spoken{};
  const uint32_t kind = PutBody(message, append_flags_ ? append_flags_() : 0, body);
  hr_node_taken taken{.term = message.term.value(),
                      .now_ns = run.done.arrived_ns,
                      .sent_index = sent_index_,
                      .sent_round = sent_round_,
                      .from = static_cast<__u32>(message.from.value()),
                      .slot = static_cast<__u32>(run.slot),
                      .event = HR_NODE_EVENT_PASSED_KIND};
  const bool room = run.record_end != 0;
  if (HoldsConfiguration(message)) {
    taken.event = HR_NODE_EVENT_PASSED_CONFIGURATION;  // as hr_node_entries_fault has it
  } else {
    outcome.verdict = hr_node_decide(&shared_, kind, &taken, message.config_epoch, &body, room, &reply, &spoken);
  }
  outcome.event = static_cast<hr_node_event>(taken.event);
  run.keeps_record = hr_node_keeps_record(outcome.verdict, &taken) != 0;
  if (outcome.verdict == HR_NODE_ANSWER) {
    ByteReader reader({reinterpret_cast<const char*>(&reply), sizeof(reply)});
    wire::Opened answer{
        .header = {.from = self_, .term = raft::Term(spoken.term), .config_epoch = spoken.config_epoch},
        .body = wire::GetBody(reader, static_cast<hr_peer_kind>(kind + 1))};  // a reply's kind follows its request's
    outcome.answer = wire::TakeMessage(message.from, answer);
  }
  if (when_decided_) when_decided_(run.done);
}

void NativeKernel::End(Run& run) {
  Outcome& outcome = run.done.outcome;
  if (outcome.verdict == HR_NODE_PASS && hr_node_only_wakes(outcome.event)) {
    ++moved_;
    if (awake_) {
      outcome.verdict = HR_NODE_CONSUMED;
      outcome.event = HR_NODE_EVENT_DOORBELL;
    }
  }
  if (run.record_end == 0) return;
  Place& place = At(run.record_end);
  if (!run.keeps_record) {
    place.state = Place::State::kDiscarded;
    return;
  }
  const raft::Message& message = run.done.message;
  const bool append = std::holds_alternative<raft::AppendRequest>(message.body);
  place.state = Place::State::kSubmitted;
  place.head.kind = append ? HR_NODE_RECORD_APPEND : HR_NODE_RECORD_VOTE;
  place.head.from = static_cast<__u32>(message.from.value());
  place.head.term = message.term.value();
  place.head.arrived_ns = run.done.arrived_ns;
  if (!append) return;
  const auto& request = std::get<raft::AppendRequest>(message.body);
  place.head.prev_index = request.prev_index.value();
  place.head.last_index = place.head.prev_index + request.entries.size();
  place.message = message;
  place.datagram = std::to_string(run.record_end);
  place.head.bytes = static_cast<__u32>(place.datagram.size());
}

void NativeKernel::Control(hr_node_control& request) {
  OtherCpus();
  request.result = hr_node_control_shared(&shared_, &request);
  request.shared = shared_;
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
    while (wait && At(taken_ + 1).state == Place::State::kBusy) Step(run);
    const Place& place = At(taken_ + 1);
    if (place.state == Place::State::kBusy) break;
    ++taken_;
    if (place.state == Place::State::kDiscarded) continue;
    records.push_back({.head = place.head, .datagram = place.datagram, .end = taken_});
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

void NativeKernel::SetAwake(bool awake) {
  awake_ = awake;
  OtherCpus();
}

uint64_t NativeKernel::Moved() { return moved_; }

std::optional<raft::Message> NativeKernel::Decode(std::string_view datagram) const {
  const uint64_t end = std::stoull(std::string(datagram));
  HEDGEROW_CHECK(end > released_ && end <= released_ + ring_.size());
  return ring_[end - 1 - released_].message;
}

}  // namespace hedgerow::offload
