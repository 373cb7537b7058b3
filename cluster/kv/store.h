// SPDX-License-Identifier: Apache-2.0
//
// Keys and values, and how a snapshot (incremental_snapshot.h) is made of them. Part of the state machine.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "cluster/kv/content_hash.h"
#include "cluster/kv/incremental_snapshot.h"
#include "cluster/kv/memory.h"
#include "cluster/kv/sharded_map.h"

namespace hedgerow::kv {

class Store {
 public:
  // Nothing: there is no such key. Valid until the next change.
  const std::string* Find(const std::string& key) const {
    const Item* item = items_.Find(key);
    return item == nullptr ? nullptr : &item->value;
  }
  // Ahead of changes, the first for all of their keys and then the second: it waits for a node, but no key's
  // node depends on another's, so the processor waits for several at once. They change nothing.
  void PrefetchPlace(const std::string& key) const { items_.Prefetch(key); }
  void PrefetchValue(const std::string& key) const {
    const Item* const item = items_.Find(key);
    if (item == nullptr) return;
    __builtin_prefetch(item->value.data());
    __builtin_prefetch(item->value.data() + item->value.size());
  }
  void Put(const std::string& key, std::string_view value) {
    const auto [item, fresh] = items_.Emplace(key);
    if (!fresh) Save(key, *item);
    if (fresh) {
      bytes_ += ChargeOf(key, value);
    } else {
      content_ -= HashValue(key, item->value);
      bytes_ = bytes_ - item->value.size() + value.size();
    }
    // The memory of the former value is used again, unless it is too much, or too little and would be doubled.
    const size_t capacity = item->value.capacity();
    if (capacity > kSpare_bytes + value.size() + value.size() / 4 || capacity < value.size()) {
      item->value = std::string(value);
    } else {
      item->value.assign(value);
    }
    content_ += HashValue(key, item->value);
    item->snapshot = snapshot_;
  }
  void Erase(const std::string& key) {
    Item* item = items_.Find(key);
    if (item == nullptr) return;
    Save(key, *item);
    content_ -= HashValue(key, item->value);
    bytes_ -= ChargeOf(key, item->value);
    items_.Erase(key);
  }
  size_t size() const { return items_.size(); }
  uint64_t bytes() const { return bytes_; }      // memory.h
  uint64_t content() const { return content_; }  // content_hash.h

  static size_t ChargeOf(std::string_view key, std::string_view value) {
    return key.size() + value.size() + kValueOverhead_bytes;
  }

  // A walk over all keys, a few of them at a time, in an order of this process's own. False: there was none left.
  template <typename Visit>
  bool VisitSomeKeys(MapWalk& walk, const Visit& visit) {
    return items_.VisitSome(walk, [&visit](const std::string& key, Item&) { visit(key); });
  }

  // A fault of memory, for tests: one bit of a value that is not empty.
  bool Flip(const std::string& key) {
    Item* const item = items_.Find(key);
    if (item == nullptr || item->value.empty()) return false;
    item->value[item->value.size() / 2] ^= 1;
    return true;
  }

  void BeginSnapshot(SnapshotWriter* writer) {
    ++snapshot_;
    writer_ = writer;
    walk_ = {};
  }
  // False: everything is written down, and the snapshot has ended here.
  bool ContinueSnapshot() {
    if (writer_ == nullptr) return false;
    if (items_.VisitSome(walk_, [this](const std::string& key, Item& item) { Save(key, item); })) return true;
    writer_ = nullptr;
    return false;
  }
  void AbandonSnapshot() { writer_ = nullptr; }

 private:
  struct Item {
    std::string value;
    uint64_t snapshot = 0;  // the last one that it is written down for, or younger than
  };

  static constexpr size_t kSpare_bytes = 64;

  void Save(const std::string& key, Item& item) {
    if (writer_ == nullptr || item.snapshot == snapshot_) return;
    writer_->Value(key, item.value);
    item.snapshot = snapshot_;
  }

  ShardedMap<std::string, Item> items_{4096};
  uint64_t content_ = 0;
  uint64_t bytes_ = 0;
  uint64_t snapshot_ = 0;
  SnapshotWriter* writer_ = nullptr;  // while a snapshot is made
  MapWalk walk_;
};

}  // namespace hedgerow::kv
