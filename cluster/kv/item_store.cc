// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/item_store.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "cluster/kv/content_hash.h"

namespace hedgerow::kv {
namespace {

constexpr uint64_t kSecond_ns = 1'000'000'000;

Result Said(ResultCode code) { return {.code = code, .session = 0, .values = {}}; }

// As memcached's items hold them: decimal digits, of 64 bits without a sign.
std::optional<uint64_t> ParseCount(const std::string& text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// 0: never. What would lie beyond the end of time never comes either.
uint64_t EndAt_ns(int64_t life_s, uint64_t now_ns) {
  if (life_s == 0) return 0;
  uint64_t life_ns = 0;
  uint64_t end_ns = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(life_s), kSecond_ns, &life_ns) ||
      __builtin_add_overflow(now_ns, life_ns, &end_ns))
    return 0;
  return end_ns;
}

bool Ended(const Item& item, uint64_t now_ns) { return item.end_ns != 0 && item.end_ns <= now_ns; }

size_t Size_bytes(const std::string& key, const Item& item) {
  return key.size() + item.value.size() + kItemOverhead_bytes;
}

}  // namespace

const Item* ItemStore::Find(const std::string& key, uint64_t now_ns) const {
  const Kept* kept = items_.Find(key);
  return kept == nullptr || IsGone(kept->item, now_ns) ? nullptr : &kept->item;
}

bool ItemStore::IsGone(const Item& item, uint64_t now_ns) const {
  return Ended(item, now_ns) || item.unique < flushed_before_;
}

Result ItemStore::Execute(const ItemOperation& operation, uint64_t index, uint64_t now_ns, uint64_t growth_max_bytes) {
  growth_max_bytes_ = growth_max_bytes;
  now_ns_ = now_ns;
  const Item* const present = Find(operation.key, now_ns);
  switch (operation.verb) {
    case ItemVerb::kSet: return Store(operation, index, now_ns);
    case ItemVerb::kAdd: return present != nullptr ? Said(ResultCode::kNotStored) : Store(operation, index, now_ns);
    case ItemVerb::kReplace: return present == nullptr ? Said(ResultCode::kNotStored) : Store(operation, index, now_ns);
    case ItemVerb::kCas:
      if (present == nullptr) return Said(ResultCode::kNotFound);
      return present->unique != operation.unique ? Said(ResultCode::kMismatch) : Store(operation, index, now_ns);
    case ItemVerb::kAppend:
    case ItemVerb::kPrepend:
      return present == nullptr ? Said(ResultCode::kNotStored) : Extend(operation, *present, index);
    case ItemVerb::kDelete:
      if (present == nullptr) return Said(ResultCode::kNotFound);
      Erase(operation.key);
      return Said(ResultCode::kOk);
    case ItemVerb::kDiscard:
      if (present != nullptr) Erase(operation.key);
      return Said(ResultCode::kTooLarge);
    case ItemVerb::kFlush: Flush(operation, index, now_ns); return Said(ResultCode::kOk);
    case ItemVerb::kTouch: return present == nullptr ? Said(ResultCode::kNotFound) : Touch(operation, now_ns);
    case ItemVerb::kIncrement:
    case ItemVerb::kDecrement:
      return present == nullptr ? Said(ResultCode::kNotFound) : Count(operation, *present, index);
  }
  return Said(ResultCode::kNotStored);
}

// A life that is over before it begins: stored, as memcached says, and gone, with what was there before.
Result ItemStore::Store(const ItemOperation& operation, uint64_t index, uint64_t now_ns) {
  if (operation.life_s < 0) {
    Erase(operation.key);
    return Said(ResultCode::kOk);
  }
  return Put(operation.key, {.value = operation.value,
                             .flags = operation.flags,
                             .unique = index,
                             .end_ns = EndAt_ns(operation.life_s, now_ns)});
}

// What cannot be found any more makes room first. An item that grows by nothing needs none, whatever the limit has
// become.
bool ItemStore::MakeRoom(uint64_t growth_bytes, uint64_t now_ns) {
  if (growth_bytes > growth_max_bytes_) return false;
  constexpr size_t kFreedMax = 1024;  // an item is no larger than so many of the smallest
  for (size_t freed = 0; bytes_ + growth_bytes > memory_bytes_ && freed < kFreedMax; ++freed) {
    if (!FreeSome(now_ns, 1)) break;
  }
  return bytes_ + growth_bytes <= memory_bytes_;
}

Result ItemStore::Put(const std::string& key, Item item) {
  // What was there and has ended, or was flushed, is no part of this item's life.
  if (const Kept* const before = items_.Find(key); before != nullptr && IsGone(before->item, now_ns_)) Erase(key);
  const Kept* const before = items_.Find(key);
  const uint64_t freed_bytes = before == nullptr ? 0 : Size_bytes(key, before->item);
  const uint64_t needed_bytes = Size_bytes(key, item);
  if (needed_bytes > freed_bytes && !MakeRoom(needed_bytes - freed_bytes, now_ns_)) return Said(ResultCode::kNoRoom);
  const auto [kept, fresh] = items_.Emplace(key);
  if (fresh) {
    kept->snapshot = snapshot_;
    kept->key = items_.FindKey(key);
  } else {
    Save(key, *kept);
    content_ -= HashItem(key, kept->item);
    SetEnd(*kept, 0);
    Unlink(*kept);
  }
  bytes_ = bytes_ - freed_bytes + needed_bytes;
  Assign(*kept, std::move(item));
  return Said(ResultCode::kOk);
}

// Into a place that is in no order, at the end of the one by unique numbers.
void ItemStore::Assign(Kept& kept, Item item) {
  const uint64_t end_ns = std::exchange(item.end_ns, 0);
  kept.item = std::move(item);
  Append(kept);
  SetEnd(kept, end_ns);
  content_ += HashItem(*kept.key, kept.item);
}

void ItemStore::Append(Kept& kept) {
  kept.older = newest_;
  kept.newer = nullptr;
  (newest_ == nullptr ? oldest_ : newest_->newer) = &kept;
  newest_ = &kept;
}

void ItemStore::Unlink(Kept& kept) {
  (kept.older == nullptr ? oldest_ : kept.older->newer) = kept.newer;
  (kept.newer == nullptr ? newest_ : kept.newer->older) = kept.older;
}

// A later one takes the place of one that waits, as with memcached.
void ItemStore::Flush(const ItemOperation& operation, uint64_t index, uint64_t now_ns) {
  flush_at_ns_ = operation.life_s > 0 ? EndAt_ns(operation.life_s, now_ns) : 0;
  if (operation.life_s <= 0) flushed_before_ = index;
}

Result ItemStore::Extend(const ItemOperation& operation, Item item, uint64_t index) {
  if (item.value.size() + operation.value.size() > kItemMax_bytes) return Said(ResultCode::kTooLarge);
  item.value.insert(operation.verb == ItemVerb::kAppend ? item.value.size() : 0, operation.value);
  item.unique = index;
  return Put(operation.key, std::move(item));
}

// memcached's arithmetic: increments wrap at 2^64, decrements stop at 0.
Result ItemStore::Count(const ItemOperation& operation, Item item, uint64_t index) {
  const std::optional<uint64_t> number = ParseCount(item.value);
  if (!number.has_value()) return Said(ResultCode::kNotANumber);
  const bool up = operation.verb == ItemVerb::kIncrement;
  const uint64_t sum = up ? *number + operation.delta : *number - std::min(*number, operation.delta);
  item.value = std::to_string(sum);
  item.unique = index;
  Result result{.code = ResultCode::kOk, .session = 0, .values = {item.value}};
  if (const Result put = Put(operation.key, std::move(item)); put.code != ResultCode::kOk) return put;
  return result;
}

// Its unique number stays, as memcached's does: the value is the same.
Result ItemStore::Touch(const ItemOperation& operation, uint64_t now_ns) {
  if (operation.life_s < 0) {
    Erase(operation.key);
    return Said(ResultCode::kOk);
  }
  Kept& kept = *items_.Find(operation.key);
  Save(operation.key, kept);
  content_ -= HashItem(operation.key, kept.item);
  SetEnd(kept, EndAt_ns(operation.life_s, now_ns));
  content_ += HashItem(operation.key, kept.item);
  return Said(ResultCode::kOk);
}

void ItemStore::SetEnd(Kept& kept, uint64_t end_ns) {
  Item& item = kept.item;
  if (item.end_ns == end_ns) return;
  if (item.end_ns != 0) by_end_.erase({item.end_ns, item.unique});
  if (end_ns != 0) by_end_.emplace(std::pair(end_ns, item.unique), &kept);
  item.end_ns = end_ns;
}

void ItemStore::Erase(const std::string& key) {
  Kept* const kept = items_.Find(key);
  if (kept == nullptr) return;
  Save(key, *kept);
  content_ -= HashItem(key, kept->item);
  SetEnd(*kept, 0);
  Unlink(*kept);
  bytes_ -= Size_bytes(key, kept->item);
  items_.Erase(key);
}

void ItemStore::Expire(uint64_t now_ns, uint64_t index) {
  if (flush_at_ns_ == 0 || flush_at_ns_ > now_ns) return;
  flush_at_ns_ = 0;
  flushed_before_ = index;
}

bool ItemStore::FreeSome(uint64_t now_ns, size_t items_max) {
  for (size_t i = 0; i < items_max; ++i) {
    const bool ended = !by_end_.empty() && by_end_.begin()->first.first <= now_ns;
    if (!ended && !OldestIsFlushed()) return false;
    const Kept* const gone = ended ? by_end_.begin()->second : oldest_;
    Erase(std::string(*gone->key));
  }
  return true;
}

void ItemStore::BeginSnapshot(SnapshotWriter* writer) {
  ++snapshot_;
  writer_ = writer;
  walk_ = {};
}

void ItemStore::Save(const std::string& key, Kept& kept) {
  if (writer_ == nullptr || kept.snapshot == snapshot_) return;
  kept.snapshot = snapshot_;
  writer_->KeptItem(key, kept.item);
}

bool ItemStore::ContinueSnapshot() {
  if (writer_ == nullptr) return false;
  if (items_.VisitSome(walk_, [this](const std::string& key, Kept& kept) { Save(key, kept); })) return true;
  writer_ = nullptr;
  return false;
}

bool ItemStore::Restore(const std::string& key, Item item) {
  const auto [kept, fresh] = items_.Emplace(key);
  if (!fresh) return false;
  kept->snapshot = snapshot_;
  kept->key = items_.FindKey(key);
  bytes_ += Size_bytes(key, item);
  Assign(*kept, std::move(item));
  return true;
}

// A snapshot has the order of the process that took it.
void ItemStore::FinishRestore() {
  std::vector<Kept*> order;
  order.reserve(items_.size());
  for (Kept* kept = oldest_; kept != nullptr; kept = kept->newer) order.push_back(kept);
  std::sort(order.begin(), order.end(),
            [](const Kept* one, const Kept* other) { return one->item.unique < other->item.unique; });
  oldest_ = newest_ = nullptr;
  for (Kept* const kept : order) Append(*kept);
}

}  // namespace hedgerow::kv
