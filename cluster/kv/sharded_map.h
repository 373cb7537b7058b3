// SPDX-License-Identifier: Apache-2.0
//
// A hash map in many small ones. One large map stops its user for a second when it grows at ten million
// entries; here each part grows by itself, and a walk over all of it can be made a little at a time, while it
// changes. Used by the tables of the state machine, whose owner is a node's loop.

#ifndef HEDGEROW_CLUSTER_KV_SHARDED_MAP_H_
#define HEDGEROW_CLUSTER_KV_SHARDED_MAP_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace hedgerow::kv {

template <typename Key, typename Value>
class ShardedMap {
 public:
  // Where a walk stands. What is there from its beginning to its end is visited, once or, if its shard grows,
  // more often; what comes meanwhile perhaps.
  struct Walk {
    size_t shard = 0;
    size_t bucket = 0;
    size_t buckets = 0;  // of the shard when the walk came to it
  };

  // A power of two. At ten million entries a shard of 4,096 has 2,400.
  explicit ShardedMap(size_t shards) : shards_(shards) {}

  size_t size() const { return size_; }
  Value* Find(const Key& key) {
    Shard& shard = ShardOf(key);
    const auto found = shard.find(key);
    return found == shard.end() ? nullptr : &found->second;
  }
  const Value* Find(const Key& key) const { return const_cast<ShardedMap*>(this)->Find(key); }
  bool Contains(const Key& key) const { return Find(key) != nullptr; }

  // The key's value, and whether it is new.
  std::pair<Value*, bool> Emplace(const Key& key) {
    const auto [item, fresh] = ShardOf(key).try_emplace(key);
    size_ += fresh;
    return {&item->second, fresh};
  }
  void Erase(const Key& key) { size_ -= ShardOf(key).erase(key); }

  // Visits one bucket: a handful of entries. False: there was none left.
  template <typename Visit>
  bool VisitSome(Walk& walk, const Visit& visit) {
    while (walk.shard < shards_.size()) {
      Shard& shard = shards_[walk.shard];
      // It has grown meanwhile, and everything is elsewhere: this shard once more.
      if (walk.buckets != shard.bucket_count()) walk = {walk.shard, 0, shard.bucket_count()};
      if (!shard.empty() && walk.bucket < walk.buckets) {
        for (auto item = shard.begin(walk.bucket); item != shard.end(walk.bucket); ++item) {
          visit(item->first, item->second);
        }
        ++walk.bucket;
        return true;
      }
      walk = {walk.shard + 1, 0, 0};
    }
    return false;
  }

 private:
  using Shard = std::unordered_map<Key, Value>;

  // Other bits than those that choose the bucket.
  Shard& ShardOf(const Key& key) {
    const uint64_t hash = std::hash<Key>()(key) * 0x9e3779b97f4a7c15;
    return shards_[(hash >> 32) & (shards_.size() - 1)];
  }

  std::vector<Shard> shards_;
  size_t size_ = 0;
};

}  // namespace hedgerow::kv

#endif  // HEDGEROW_CLUSTER_KV_SHARDED_MAP_H_
