// SPDX-License-Identifier: Apache-2.0
//
// What memcached's clients store: items with flags, a unique number and perhaps an end, in a key space of their
// own. Part of the replicated state: every replica makes the same changes, and time is the committed time of
// the log, so that an item ends everywhere after the same entry. Nothing that can be found is evicted; a full store
// refuses.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "cluster/kv/command.h"
#include "cluster/kv/incremental_snapshot.h"
#include "cluster/kv/memory.h"
#include "cluster/kv/sharded_map.h"

namespace hedgerow::kv {

class ItemStore {
 public:
  explicit ItemStore(uint64_t memory_bytes) : memory_bytes_(memory_bytes) {}

  // From now on. Nothing is evicted: items beyond a lower limit stay, and nothing is stored until there is room.
  void SetMemory(uint64_t memory_bytes) { memory_bytes_ = memory_bytes; }

  // Nothing: there is none, or it has ended. Valid until the next change.
  const Item* Find(const std::string& key, uint64_t now_ns) const;

  // `index` is the entry's place in the log; it becomes the unique number of what the entry stores. What the store is
  // charged grows by `growth_max_bytes` at most.
  Result Execute(const ItemOperation& operation, uint64_t index, uint64_t now_ns, uint64_t growth_max_bytes);
  // An entry at `index` is applied. A flush whose time has come is done.
  void Expire(uint64_t now_ns, uint64_t index);
  // Frees at most so many items that cannot be found any more, in an order that is the same everywhere. False: there
  // are none.
  bool FreeSome(uint64_t now_ns, size_t items_max);

  size_t size() const { return items_.size(); }
  uint64_t bytes() const { return bytes_; }      // memory.h
  uint64_t content() const { return content_; }  // content_hash.h
  // Items that will end, or are flushed or will be: what time, or the next entries, free.
  bool waits_for_time() const { return !by_end_.empty() || flush_at_ns_ != 0 || OldestIsFlushed(); }
  // Items whose last change was an entry before this one cannot be found.
  uint64_t flushed_before() const { return flushed_before_; }
  // When all items that are there then will be flushed, in committed time; 0: never.
  uint64_t flush_at_ns() const { return flush_at_ns_; }

  void BeginSnapshot(SnapshotWriter* writer);
  // False: everything is written down, and the snapshot has ended here.
  bool ContinueSnapshot();
  void AbandonSnapshot() { writer_ = nullptr; }

  void RestoreFlush(uint64_t flushed_before, uint64_t flush_at_ns) {
    flushed_before_ = flushed_before;
    flush_at_ns_ = flush_at_ns;
  }
  // From a snapshot. False: there is such a key already. In any order, and then FinishRestore.
  bool Restore(const std::string& key, Item item);
  void FinishRestore();

 private:
  struct Kept {
    Item item;
    uint64_t snapshot = 0;  // the last one that it is written down for, or younger than
    const std::string* key = nullptr;
    Kept* older = nullptr;  // by their unique numbers
    Kept* newer = nullptr;
  };

  Result Store(const ItemOperation& operation, uint64_t index, uint64_t now_ns);
  Result Put(const std::string& key, Item item);
  void Flush(const ItemOperation& operation, uint64_t index, uint64_t now_ns);
  bool OldestIsFlushed() const { return oldest_ != nullptr && oldest_->item.unique < flushed_before_; }
  bool IsGone(const Item& item, uint64_t now_ns) const;
  bool MakeRoom(uint64_t growth_bytes, uint64_t now_ns);
  void Append(Kept& kept);
  void Unlink(Kept& kept);
  Result Extend(const ItemOperation& operation, Item item, uint64_t index);
  Result Count(const ItemOperation& operation, Item item, uint64_t index);
  Result Touch(const ItemOperation& operation, uint64_t now_ns);
  void Assign(Kept& kept, Item item);
  void SetEnd(Kept& kept, uint64_t end_ns);
  void Erase(const std::string& key);
  void Save(const std::string& key, Kept& kept);

  uint64_t memory_bytes_;
  uint64_t bytes_ = 0;
  uint64_t content_ = 0;
  ShardedMap<std::string, Kept> items_{4096};
  // By end and unique number, of items that have an end. No two have one unique number.
  std::map<std::pair<uint64_t, uint64_t>, Kept*> by_end_;
  Kept* oldest_ = nullptr;
  Kept* newest_ = nullptr;
  uint64_t flushed_before_ = 0;
  uint64_t flush_at_ns_ = 0;
  // Of the present command: Put, and what leads to it, go by them.
  uint64_t growth_max_bytes_ = 0;
  uint64_t now_ns_ = 0;

  uint64_t snapshot_ = 0;
  SnapshotWriter* writer_ = nullptr;  // while a snapshot is made
  MapWalk walk_;
};

}  // namespace hedgerow::kv
