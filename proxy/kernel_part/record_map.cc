// SPDX-License-Identifier: Apache-2.0
#include "proxy/kernel_part/record_map.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net/fnv.h"

namespace hedgerow {
namespace {

constexpr uint32_t kEntryBytes = 4096;
constexpr uint64_t kMagic = 0x31636572776f7268;  // "hrowrec1"

PinnedArraySpec Spec(size_t half_bytes) {
  return {
      .name = "hr_record", .value_bytes = kEntryBytes, .entries = static_cast<uint32_t>(2 * half_bytes / kEntryBytes)};
}

struct Header {
  uint64_t magic = 0;
  uint64_t sequence = 0;  // the higher one counts
  uint64_t bytes = 0;
  uint64_t checksum = 0;  // of sequence and text
};

uint64_t Checksum(uint64_t sequence, absl::string_view text) {
  return net::Fnv1a64(absl::StrCat(sequence, ":", std::string(text)));
}

struct Found {
  uint64_t sequence = 0;
  std::string text;
};

std::optional<Found> ReadHalf(const volatile char* half, size_t half_bytes) {
  const auto* header = reinterpret_cast<const volatile Header*>(half);
  if (header->magic != kMagic || header->bytes > half_bytes - sizeof(Header)) return std::nullopt;
  Found found{.sequence = header->sequence, .text = std::string(header->bytes, '\0')};
  for (size_t i = 0; i < found.text.size(); ++i) found.text[i] = half[sizeof(Header) + i];
  if (Checksum(found.sequence, found.text) != header->checksum) return std::nullopt;
  return found;
}

}  // namespace

absl::StatusOr<RecordMap> RecordMap::Create(const std::string& path) {
  auto memory = PinnedArray::Create(path, Spec(kFirstHalfBytes));
  if (!memory.ok()) return memory.status();
  return RecordMap(path, *std::move(memory));
}

absl::StatusOr<RecordMap> RecordMap::Open(const std::string& path) {
  auto memory = PinnedArray::Open(path, Spec(PinnedArray::kAnySize));
  if (!memory.ok()) return memory.status();
  return RecordMap(path, *std::move(memory));
}

size_t RecordMap::HalfBytes() const { return size_t{memory_.entries()} / 2 * kEntryBytes; }

// The larger map has the text before its pin takes the place of the former one's: a daemon killed meanwhile leaves
// that.
absl::Status RecordMap::Grow(size_t half_bytes, absl::string_view text) {
  const std::string larger_path = absl::StrCat(path_, "-larger");
  unlink(larger_path.c_str());  // of a daemon killed meanwhile
  auto memory = PinnedArray::Create(larger_path, Spec(half_bytes));
  if (!memory.ok()) return memory.status();
  RecordMap larger(path_, *std::move(memory));
  if (const absl::Status status = larger.Write(text); !status.ok()) return status;
  if (rename(larger_path.c_str(), path_.c_str()) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("pinning ", path_));
  *this = std::move(larger);
  return absl::OkStatus();
}

absl::Status RecordMap::Write(absl::string_view text) {
  const size_t needed = sizeof(Header) + text.size();
  if (needed > HalfBytes()) return Grow(std::bit_ceil(needed), text);
  const auto first = ReadHalf(Half(0), HalfBytes());
  const auto second = ReadHalf(Half(1), HalfBytes());
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
  auto first = ReadHalf(Half(0), HalfBytes());
  auto second = ReadHalf(Half(1), HalfBytes());
  if (!first.has_value() && !second.has_value()) return absl::NotFoundError("the record was never written");
  if (!first.has_value()) return std::move(second->text);
  if (!second.has_value()) return std::move(first->text);
  return first->sequence > second->sequence ? std::move(first->text) : std::move(second->text);
}

}  // namespace hedgerow
