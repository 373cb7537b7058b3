// SPDX-License-Identifier: Apache-2.0
//
// The part of the replicated state that memcached's clients see: their items, and the window within which a
// request that comes twice is known again (ADR 0014). A function of the log alone. Part of the state machine.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "cluster/kv/command.h"
#include "cluster/kv/incremental_snapshot.h"
#include "cluster/kv/dedupe_window.h"
#include "cluster/kv/item_store.h"
#include "cluster/kv/settings.h"

namespace hedgerow::kv {

class MemcachedState {
 public:
  explicit MemcachedState(const MemcachedLimits& limits) : items_(limits.memory_bytes), window_(limits.window) {}

  // See DedupeWindow and ItemStore.
  bool MayTake(const MemcachedLimits& limits) const { return window_.MayTake(limits.window); }
  void SetLimits(const MemcachedLimits& limits, uint64_t now_ns) {
    items_.SetMemory(limits.memory_bytes);
    window_.SetLimits(limits.window, now_ns);
  }

  // What was said to the same request within the window, else what doing it now comes to. A late copy of a request that
  // was superseded does nothing (kSuperseded). The items' charge grows by `growth_max_bytes` at most.
  Result Apply(uint64_t index, const Command& command, uint64_t now_ns, uint64_t growth_max_bytes, bool late = false);
  // Time has passed until the entry at `index`.
  void Expire(uint64_t now_ns, uint64_t index, bool at_leisure);
  // See ItemStore.
  bool FreeSome(uint64_t now_ns, size_t items_max) { return items_.FreeSome(now_ns, items_max); }

  const Item* Find(const std::string& key, uint64_t now_ns) const { return items_.Find(key, now_ns); }

  // Something in it ends by itself, so time should be committed even when no client writes.
  bool waits_for_time() const { return window_.size() > 0 || items_.waits_for_time(); }

  size_t items() const { return items_.size(); }
  uint64_t item_bytes() const { return items_.bytes(); }
  uint64_t request_bytes() const { return window_.bytes(); }
  size_t seen() const { return window_.size(); }
  uint64_t content() const { return items_.content() + window_.content(); }

  void BeginSnapshot(SnapshotWriter* writer);
  bool ContinueSnapshot() { return items_.ContinueSnapshot() || window_.ContinueSnapshot(); }
  void AbandonSnapshot();

  // From a snapshot, in its order. False: what cannot be.
  bool RestoreItem(const std::string& key, Item item) { return items_.Restore(key, std::move(item)); }
  bool RestoreSeen(const SeenTimes& times, const RequestKey& key, Result result);
  void FinishRestore() { items_.FinishRestore(); }
  uint64_t flushed_before() const { return items_.flushed_before(); }
  uint64_t flush_at_ns() const { return items_.flush_at_ns(); }
  void RestoreFlush(uint64_t flushed_before, uint64_t flush_at_ns) { items_.RestoreFlush(flushed_before, flush_at_ns); }
  const WindowSteps& window_steps() const { return window_.steps(); }
  bool RestoreLimits(const MemcachedLimits& limits, WindowSteps steps) {
    items_.SetMemory(limits.memory_bytes);
    return window_.Restore(limits.window, std::move(steps));
  }

 private:
  DedupeWindow::Verdict Judge(const RequestKey& key, const Command& command, uint64_t now_ns) const;

  ItemStore items_;
  DedupeWindow window_;
  uint64_t last_restored_ns_ = 0;
};

}  // namespace hedgerow::kv
