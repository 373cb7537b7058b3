// SPDX-License-Identifier: Apache-2.0
#include "proxy/kernel_part/record_map.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proxy/kernel_part/map_layout.h"

namespace hedgerow {
namespace {

constexpr uint32_t kEntryBytes = 4096;
constexpr uint32_t kEntries = 2 * RecordMap::kHalfBytes / kEntryBytes;
constexpr uint64_t kMagic = 0x31636572776f7268;  // "hrowrec1"

PinnedArraySpec Spec() { return {.name = "hr_record", .value_bytes = kEntryBytes, .entries = kEntries}; }

struct Header {
  uint64_t magic = 0;
  uint64_t sequence = 0;  // the higher one counts
  uint64_t bytes = 0;
  uint64_t checksum = 0;  // of sequence and text
};

uint64_t Checksum(uint64_t sequence, absl::string_view text) {
  return Hash64(absl::StrCat(sequence, ":", std::string(text)));
}

struct Found {
  uint64_t sequence = 0;
  std::string text;
};

std::optional<Found> ReadHalf(const volatile char* half) {
  const auto* header = reinterpret_cast<const volatile Header*>(half);
  if (header->magic != kMagic || header->bytes > RecordMap::kHalfBytes - sizeof(Header)) return std::nullopt;
  Found found{.sequence = header->sequence, .text = std::string(header->bytes, '\0')};
  for (size_t i = 0; i < found.text.size(); ++i) found.text[i] = half[sizeof(Header) + i];
  if (Checksum(found.sequence, found.text) != header->checksum) return std::nullopt;
  return found;
}

}  // namespace

absl::StatusOr<RecordMap> RecordMap::Create(const std::string& path) {
  auto memory = PinnedArray::Create(path, Spec());
  if (!memory.ok()) return memory.status();
  return RecordMap(*std::move(memory));
}

absl::StatusOr<RecordMap> RecordMap::Open(const std::string& path) {
  auto memory = PinnedArray::Open(path, Spec());
  if (!memory.ok()) return memory.status();
  return RecordMap(*std::move(memory));
}

absl::Status RecordMap::Write(absl::string_view text) {
  if (text.size() > kHalfBytes - sizeof(Header)) {
    return absl::InvalidArgumentError(absl::StrCat("a record of ", text.size(), " bytes is too long"));
  }
  const auto first = ReadHalf(Half(0));
  const auto second = ReadHalf(Half(1));
  // Over the older one; the other stands until this one is whole.
  const bool into_second = first.has_value() && (!second.has_value() || second->sequence < first->sequence);
  const uint64_t sequence =
      1 + std::max(first.has_value() ? first->sequence : 0, second.has_value() ? second->sequence : 0);
  volatile char* half = Half(into_second ? 1 : 0);
  auto* header = reinterpret_cast<volatile Header*>(half);
  header->magic = 0;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (size_t i = 0; i < text.size(); ++i) half[sizeof(Header) + i] = text[i];
  header->sequence = sequence;
  header->bytes = text.size();
  header->checksum = Checksum(sequence, text);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  header->magic = kMagic;
  return absl::OkStatus();
}

absl::StatusOr<std::string> RecordMap::Read() const {
  auto first = ReadHalf(Half(0));
  auto second = ReadHalf(Half(1));
  if (!first.has_value() && !second.has_value()) return absl::NotFoundError("the record was never written");
  if (!first.has_value()) return std::move(second->text);
  if (!second.has_value()) return std::move(first->text);
  return first->sequence > second->sequence ? std::move(first->text) : std::move(second->text);
}

}  // namespace hedgerow
