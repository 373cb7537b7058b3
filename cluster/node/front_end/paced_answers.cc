// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/front_end/paced_answers.h"

#include <algorithm>
#include <iterator>

namespace hedgerow::node {

bool PacedAnswers::Answer(uint64_t now_ns, const NetAddress& from, const NetAddress& to,
                          std::vector<std::string> datagrams, const Send& send) {
  const Ends ends{from, to};
  const auto known = by_ends_.find(ends);
  // Beside a queue there is room for no more than a slice.
  if (datagrams.size() <= (known == by_ends_.end() ? kAtOnce : kSlice)) {
    for (std::string& datagram : datagrams) send(from, to, std::move(datagram));
    return true;
  }
  // A client whose queue is empty has room: a long answer that it asked for before has left.
  const size_t at_once = known == by_ends_.end() ? kAtOnce : 0;
  size_t bytes = 0;
  for (size_t i = at_once; i < datagrams.size(); ++i) bytes += datagrams[i].size();
  const size_t of_client = known == by_ends_.end() ? 0 : known->second->bytes;
  if (of_client + bytes > kClientMax_bytes || queued_bytes_ + bytes > kMax_bytes) {
    ++counters_.refused;
    return false;
  }
  ++counters_.paced;
  for (size_t i = 0; i < at_once; ++i) send(from, to, std::move(datagrams[i]));
  auto queue = known != by_ends_.end() ? known->second : queues_.end();
  if (queue == queues_.end()) {
    queues_.push_back({.ends = ends, .datagrams = {}, .next_ns = now_ns + kPause_ns});
    queue = std::prev(queues_.end());
    by_ends_.emplace(ends, queue);
  }
  for (size_t i = at_once; i < datagrams.size(); ++i) queue->datagrams.push_back(std::move(datagrams[i]));
  queue->bytes += bytes;
  queued_bytes_ += bytes;
  return true;
}

// A slice for each, also for one that is late: to catch up would be what pacing prevents.
void PacedAnswers::SendDue(uint64_t now_ns, const Send& send) {
  for (size_t sent = 0; sent < kTurnMax && next_ns() <= now_ns;) {
    const auto queue = queues_.begin();
    const size_t count = std::min(kSlice, queue->datagrams.size());
    for (size_t i = 0; i < count; ++i) {
      queue->bytes -= queue->datagrams.front().size();
      queued_bytes_ -= queue->datagrams.front().size();
      send(queue->ends.first, queue->ends.second, std::move(queue->datagrams.front()));
      queue->datagrams.pop_front();
    }
    sent += count;
    if (queue->datagrams.empty()) {
      by_ends_.erase(queue->ends);
      queues_.erase(queue);
    } else {
      queue->next_ns = now_ns + kPause_ns;
      queues_.splice(queues_.end(), queues_, queue);
    }
  }
}

}  // namespace hedgerow::node
