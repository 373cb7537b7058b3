// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/delay_queue.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace hedgerow::bench {

bool DelayQueue::Push(int64_t due_ns, std::span<const uint8_t> datagram, const Address& peer, uint8_t socket) {
  if (heap_.size() >= capacity_ || datagram.size() > Batch::kDatagramBytes) return false;
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(slots_.size()));
    slots_.push_back(std::make_unique<Held>());
  }
  const uint32_t slot = free_.back();
  free_.pop_back();
  Held& held = *slots_[slot];
  held.peer = peer;
  held.socket = socket;
  held.bytes = static_cast<uint16_t>(datagram.size());
  std::memcpy(held.data, datagram.data(), datagram.size());
  heap_.push_back({due_ns, next_order_++, slot});
  std::push_heap(heap_.begin(), heap_.end());
  return true;
}

const DelayQueue::Held* DelayQueue::PopDue(int64_t now_ns) {
  if (heap_.empty() || heap_.front().due_ns > now_ns) return nullptr;
  std::pop_heap(heap_.begin(), heap_.end());
  const uint32_t slot = heap_.back().slot;
  heap_.pop_back();
  free_.push_back(slot);
  return slots_[slot].get();
}

int64_t DelayQueue::NextDueNs() const {
  return heap_.empty() ? std::numeric_limits<int64_t>::max() : heap_.front().due_ns;
}

}  // namespace hedgerow::bench
