// SPDX-License-Identifier: Apache-2.0
//
// A hash map in many small ones. One large map stops its user for a second when it grows at ten million
// entries; here each part grows by itself, and a walk over all of it can be made a little at a time, while it
// changes. Used by the tables of the state machine, whose owner is a node's loop.
//
// The small ones are its own, because what a look-up takes is the wait for memory. Here that is for a bucket
// and then a node; std::unordered_map reads the node before that one first, and cannot be asked to fetch a
// bucket early. The hash has a secret of the process (keyed_hash.h), so two replicas walk in different orders.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "cluster/kv/keyed_hash.h"

namespace hedgerow::kv {

// Where a walk stands. What is there from its beginning to its end is visited, once or, if its shard grows,
// more often; what comes meanwhile perhaps.
struct MapWalk {
  size_t shard = 0;
  size_t bucket = 0;
  size_t buckets = 0;  // of the shard when the walk came to it
};

template <typename Key, typename Value>
class ShardedMap {
 public:
  using Walk = MapWalk;

  // A power of two. At ten million entries a shard of 4,096 has 2,400.
  explicit ShardedMap(size_t shards) : secret_(TheHashSecret()), shards_(shards) {}

  size_t size() const { return size_; }
  Value* Find(const Key& key) {
    const uint64_t hash = Hash(key);
    Node* const node = ShardOf(hash).Find(key, hash);
    return node == nullptr ? nullptr : &node->value;
  }
  const Value* Find(const Key& key) const { return const_cast<ShardedMap*>(this)->Find(key); }
  // Where the map keeps this key: valid as long as it is there. Null: it is not.
  const Key* FindKey(const Key& key) const {
    const uint64_t hash = Hash(key);
    const Node* const node = ShardOf(hash).Find(key, hash);
    return node == nullptr ? nullptr : &node->key;
  }
  bool Contains(const Key& key) const { return Find(key) != nullptr; }
  // Fetches what a look-up of this key will read first, and does not wait for it.
  void Prefetch(const Key& key) const {
    const uint64_t hash = Hash(key);
    const Shard& shard = ShardOf(hash);
    if (shard.size == 0) return;
    __builtin_prefetch(shard.buckets.data() + shard.BucketOf(hash));
  }

  // The key's value, and whether it is new.
  std::pair<Value*, bool> Emplace(const Key& key) {
    const uint64_t hash = Hash(key);
    Shard& shard = ShardOf(hash);
    if (Node* const node = shard.Find(key, hash)) return {&node->value, false};
    if (shard.size == shard.buckets.size()) shard.Grow();
    Node* const node = new Node{.next = nullptr, .hash = hash, .key = key, .value = {}};
    shard.Link(node);
    ++shard.size;
    ++size_;
    return {&node->value, true};
  }
  void Erase(const Key& key) {
    const uint64_t hash = Hash(key);
    Shard& shard = ShardOf(hash);
    Node* const node = shard.Find(key, hash);
    if (node == nullptr) return;
    Node** place = &shard.buckets[shard.BucketOf(hash)];
    while (*place != node) place = &(*place)->next;
    *place = node->next;
    delete node;
    --shard.size;
    --size_;
  }

  // Visits one bucket: a handful of entries. False: there was none left.
  template <typename Visit>
  bool VisitSome(Walk& walk, const Visit& visit) {
    while (walk.shard < shards_.size()) {
      Shard& shard = shards_[walk.shard];
      // It has grown meanwhile, and everything is elsewhere: this shard once more.
      if (walk.buckets != shard.buckets.size()) walk = {walk.shard, 0, shard.buckets.size()};
      if (shard.size != 0 && walk.bucket < walk.buckets) {
        for (Node* node = shard.buckets[walk.bucket]; node != nullptr; node = node->next) {
          visit(node->key, node->value);
        }
        ++walk.bucket;
        return true;
      }
      walk = {walk.shard + 1, 0, 0};
    }
    return false;
  }

 private:
  struct Node {
    Node* next;  // in its bucket
    uint64_t hash;
    const Key key;
    Value value;
  };

  // Never copied or moved: only the vector of them is, as a whole.
  struct Shard {
    std::vector<Node*> buckets;  // none, or a power of two
    size_t size = 0;             // no more than buckets

    Shard() = default;
    Shard(const Shard&) = delete;
    Shard& operator=(const Shard&) = delete;
    // Not by owners in a chain: clients choose the keys, so a chain may be longer than a stack is deep.
    ~Shard() {
      for (Node* node : buckets) {
        while (node != nullptr) delete std::exchange(node, node->next);
      }
    }

    // Other bits than those that choose the shard: 20 of them, for up to a million buckets.
    size_t BucketOf(uint64_t hash) const { return (hash >> 44) & (buckets.size() - 1); }
    Node* Find(const Key& key, uint64_t hash) const {
      if (size == 0) return nullptr;
      Node* node = buckets[BucketOf(hash)];
      while (node != nullptr && (node->hash != hash || node->key != key)) node = node->next;
      return node;
    }
    void Link(Node* node) {
      Node*& first = buckets[BucketOf(node->hash)];
      node->next = std::exchange(first, node);
    }
    void Grow() {
      std::vector<Node*> former(std::max(kBucketsMin, 2 * buckets.size()));
      former.swap(buckets);
      for (Node* node : former) {
        while (node != nullptr) Link(std::exchange(node, node->next));
      }
    }
  };

  static constexpr size_t kBucketsMin = 4;

  uint64_t Hash(const Key& key) const { return KeyedHash(secret_, key); }
  Shard& ShardOf(uint64_t hash) { return shards_[(hash >> 32) & (shards_.size() - 1)]; }
  const Shard& ShardOf(uint64_t hash) const { return const_cast<ShardedMap*>(this)->ShardOf(hash); }

  HashSecret secret_;
  std::vector<Shard> shards_;
  size_t size_ = 0;
};

}  // namespace hedgerow::kv
