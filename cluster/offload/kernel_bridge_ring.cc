// SPDX-License-Identifier: Apache-2.0
//
// The ring's way into the log: taken in the ring's order, fed in the log's, released when written (R2).
#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

#include "cluster/offload/kernel_bridge.h"
#include "cluster/raft/check.h"

namespace hedgerow::offload {

void KernelBridge::Drain(bool wait) {
  records_.clear();
  const uint64_t reached = kernel_.Take(kernel_.ProducerPosition(), wait, records_);
  for (const RingRecord& record : records_) Keep(record);
  // Behind the last one there may be records that were discarded.
  if (reached > position_) taken_.push_back({.end = reached, .fed = true, .sequence = 0});
  position_ = reached;
}

void KernelBridge::Keep(const RingRecord& record) {
  const uint64_t number = first_taken_ + taken_.size();
  taken_.push_back({.end = record.end});
  position_ = record.end;
  const raft::Term term(record.head.term);
  const raft::NodeId from(record.head.from);
  if (record.head.kind == HR_NODE_RECORD_VOTE) {
    ++statistics_.votes;
    waiting_.insert({{.term = term}, {.taken = number, .what = raft::KernelVoted{.term = term, .candidate = from}}});
    return;
  }
  ++statistics_.appends;
  std::optional<raft::Message> message = decode_(record.datagram);
  HEDGEROW_CHECK(message.has_value() && message->term == term && message->from == from);
  auto* request = std::get_if<raft::AppendRequest>(&message->body);
  HEDGEROW_CHECK(request != nullptr && request->prev_index.value() == record.head.prev_index);
  const raft::LogIndex last = request->prev_index + request->entries.size();
  waiting_.insert(
      {{.term = term, .append = true, .prev_index = record.head.prev_index},
       {.taken = number,
        .what =
            raft::KernelAppended{
                .leader = from, .term = term, .request = std::move(*request), .arrived_ns = record.head.arrived_ns},
        .last = last}});
}

// R2: in the order of the log. What does not follow yet waits for a record that is still being written.
void KernelBridge::FeedWaiting(kv::Replica& replica, bool votes_too) {
  while (!waiting_.empty()) {
    const Order& order = waiting_.begin()->first;
    if (order.append ? order.prev_index > fed_end_.value() : !votes_too) return;
    FeedFirst(replica);
  }
}

// What was accepted one behind the other is one event: one step and one write for all of it.
void KernelBridge::FeedFirst(kv::Replica& replica) {
  Waiting first = TakeFirst();
  auto* const appended = std::get_if<raft::KernelAppended>(&first.what);
  while (appended != nullptr && !waiting_.empty()) {
    const auto* const next = std::get_if<raft::KernelAppended>(&waiting_.begin()->second.what);
    if (next == nullptr || next->term != appended->term || next->leader != appended->leader ||
        next->request.prev_index != first.last)
      break;
    Waiting more = TakeFirst();
    auto& added = std::get<raft::KernelAppended>(more.what);
    std::move(added.request.entries.begin(), added.request.entries.end(),
              std::back_inserter(appended->request.entries));
    appended->request.commit = std::max(appended->request.commit, added.request.commit);
    appended->arrived_ns = std::max(appended->arrived_ns, added.arrived_ns);
    first.last = more.last;
  }
  fed_end_ = std::max(fed_end_, first.last);
  replica.Feed(std::move(first.what));
}

KernelBridge::Waiting KernelBridge::TakeFirst() {
  const auto first = waiting_.begin();
  Waiting waiting = std::move(first->second);
  taken_[waiting.taken - first_taken_].fed = true;
  waiting_.erase(first);
  return waiting;
}

// R2: a record goes when its entries are in the log. The replica has settled: the last write covers all that
// was fed.
void KernelBridge::Release(const raft::Raft& raft) {
  for (Taken& taken : taken_) {
    if (taken.fed && taken.sequence == kNotYet) taken.sequence = raft.asked_sequence();
  }
  uint64_t end = 0;
  while (!taken_.empty() && taken_.front().fed && taken_.front().sequence <= raft.durable_sequence()) {
    end = taken_.front().end;
    taken_.pop_front();
    ++first_taken_;
  }
  if (end != 0) kernel_.Release(end);
}

}  // namespace hedgerow::offload
