// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/item_store.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

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
  return kept == nullptr || Ended(kept->item, now_ns) ? nullptr : &kept->item;
}

Result ItemStore::Execute(const ItemOperation& operation, uint64_t index, uint64_t now_ns) {
  const Item* const present = Find(operation.key, now_ns);
  switch (operation.verb) {
    case ItemVerb::kSet:
      return Store(operation, index, now_ns);
    case ItemVerb::kAdd:
      return present != nullptr ? Said(ResultCode::kNotStored) : Store(operation, index, now_ns);
    case ItemVerb::kReplace:
      return present == nullptr ? Said(ResultCode::kNotStored) : Store(operation, index, now_ns);
    case ItemVerb::kCas:
      if (present == nullptr) return Said(ResultCode::kNotFound);
      return present->unique != operation.unique ? Said(ResultCode::kMismatch)
                                                 : Store(operation, index, now_ns);
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
    case ItemVerb::kTouch:
      return present == nullptr ? Said(ResultCode::kNotFound) : Touch(operation, now_ns);
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

Result ItemStore::Put(const std::string& key, Item item) {
  const Kept* const before = items_.Find(key);
  const size_t freed_bytes = before == nullptr ? 0 : Size_bytes(key, before->item);
  const size_t needed_bytes = Size_bytes(key, item);
  if (bytes_ - freed_bytes + needed_bytes > memory_bytes_) return Said(ResultCode::kNoRoom);
  const auto [kept, fresh] = items_.Emplace(key);
  if (fresh) {
    kept->snapshot = snapshot_;
  } else {
    Save(key, *kept);
    content_ -= HashItem(key, kept->item);
  }
  bytes_ = bytes_ - freed_bytes + needed_bytes;
  SetEnd(key, *kept, item.end_ns);
  kept->item = std::move(item);
  content_ += HashItem(key, kept->item);
  return Said(ResultCode::kOk);
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
  SetEnd(operation.key, kept, EndAt_ns(operation.life_s, now_ns));
  content_ += HashItem(operation.key, kept.item);
  return Said(ResultCode::kOk);
}

void ItemStore::SetEnd(const std::string& key, Kept& kept, uint64_t end_ns) {
  if (kept.item.end_ns == end_ns) return;
  if (kept.item.end_ns != 0) by_end_.erase({kept.item.end_ns, key});
  if (end_ns != 0) by_end_.emplace(end_ns, key);
  kept.item.end_ns = end_ns;
}

void ItemStore::Erase(const std::string& key) {
  Kept* const kept = items_.Find(key);
  if (kept == nullptr) return;
  Save(key, *kept);
  content_ -= HashItem(key, kept->item);
  SetEnd(key, *kept, 0);
  bytes_ -= Size_bytes(key, kept->item);
  items_.Erase(key);
}

void ItemStore::Expire(uint64_t now_ns, size_t items_max) {
  for (size_t i = 0; i < items_max && !by_end_.empty() && by_end_.begin()->first <= now_ns; ++i) {
    Erase(std::string(by_end_.begin()->second));
  }
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
  bytes_ += Size_bytes(key, item);
  SetEnd(key, *kept, item.end_ns);
  kept->item = std::move(item);
  content_ += HashItem(key, kept->item);
  return true;
}

}  // namespace hedgerow::kv
