// SPDX-License-Identifier: Apache-2.0
//
// What memcached's clients store: items with flags, a unique number and perhaps an end, in a key space of their
// own. Part of the replicated state: every replica makes the same changes, and time is the committed time of
// the log, so that an item ends everywhere after the same entry. Nothing is evicted; a full store refuses.

#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "cluster/kv/command.h"
#include "cluster/kv/incremental_snapshot.h"
#include "cluster/kv/sharded_map.h"

namespace hedgerow::kv {

// What an item takes beside its key and value: the nodes of two containers. A key with an end is held twice.
constexpr size_t kItemOverhead_bytes = 256;

class ItemStore {
 public:
  explicit ItemStore(uint64_t memory_bytes) : memory_bytes_(memory_bytes) {}

  // From now on. Nothing is evicted: items beyond a lower limit stay, and nothing is stored until there is room.
  void SetMemory(uint64_t memory_bytes) { memory_bytes_ = memory_bytes; }

  // Nothing: there is none, or it has ended. Valid until the next change.
  const Item* Find(const std::string& key, uint64_t now_ns) const;

  // `index` is the entry's place in the log; it becomes the unique number of what the entry stores.
  Result Execute(const ItemOperation& operation, uint64_t index, uint64_t now_ns);
  // Frees at most so many items that have ended; they cannot be found whether it has come to them or not.
  void Expire(uint64_t now_ns, size_t items_max);

  size_t size() const { return items_.size(); }
  size_t bytes() const { return bytes_; }
  uint64_t content() const { return content_; }  // content_hash.h
  size_t ending() const { return by_end_.size(); }  // items that will end, or have

  void BeginSnapshot(SnapshotWriter* writer);
  // False: everything is written down, and the snapshot has ended here.
  bool ContinueSnapshot();
  void AbandonSnapshot() { writer_ = nullptr; }

  // From a snapshot. False: there is such a key already.
  bool Restore(const std::string& key, Item item);

 private:
  struct Kept {
    Item item;
    uint64_t snapshot = 0;  // the last one that it is written down for, or younger than
  };

  Result Store(const ItemOperation& operation, uint64_t index, uint64_t now_ns);
  Result Put(const std::string& key, Item item);
  Result Extend(const ItemOperation& operation, Item item, uint64_t index);
  Result Count(const ItemOperation& operation, Item item, uint64_t index);
  Result Touch(const ItemOperation& operation, uint64_t now_ns);
  void SetEnd(const std::string& key, Kept& kept, uint64_t end_ns);
  void Erase(const std::string& key);
  void Save(const std::string& key, Kept& kept);

  uint64_t memory_bytes_;
  size_t bytes_ = 0;
  uint64_t content_ = 0;
  ShardedMap<std::string, Kept> items_{4096};
  std::set<std::pair<uint64_t, std::string>> by_end_;  // of items that have one

  uint64_t snapshot_ = 0;
  SnapshotWriter* writer_ = nullptr;  // while a snapshot is made
  ShardedMap<std::string, Kept>::Walk walk_;
};

}  // namespace hedgerow::kv
