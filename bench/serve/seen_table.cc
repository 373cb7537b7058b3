// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/seen_table.h"

#include <atomic>

namespace hedgerow::bench {

static_assert(std::atomic_ref<uint64_t>::is_always_lock_free, "processes share the words without a lock");

absl::StatusOr<SeenTable> SeenTable::Open(const std::string& path, int64_t ttl_ns) {
  absl::StatusOr<MappedWords> slots = MapWords(path, kSlots);
  if (!slots.ok()) return slots.status();
  return SeenTable(*std::move(slots), ttl_ns);
}

// A word is id << 32 | milliseconds; 0 means never used, so the time stamp is kept away from 0.
bool SeenTable::IsFirstSight(uint32_t id, int64_t now_ns) {
  const auto now_ms = static_cast<uint32_t>(now_ns / 1'000'000) | 1;
  const std::atomic_ref<uint64_t> slot(slots_[id % kSlots]);
  uint64_t word = slot.load();
  while (true) {
    const auto age_ms = static_cast<int32_t>(now_ms - static_cast<uint32_t>(word));
    if (word != 0 && word >> 32 == id && age_ms < ttl_ms_) return false;
    // Fails when another replica was quicker; then the question is asked again about what it wrote.
    if (slot.compare_exchange_strong(word, uint64_t{id} << 32 | now_ms)) return true;
  }
}

}  // namespace hedgerow::bench
