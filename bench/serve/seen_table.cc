// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/seen_table.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace hedgerow::bench {
namespace {

constexpr size_t kTableBytes = sizeof(uint64_t) * SeenTable::kSlots;
static_assert(std::atomic<uint64_t>::is_always_lock_free, "processes share the words without a lock");

}  // namespace

absl::StatusOr<SeenTable> SeenTable::Open(const std::string& path, int64_t ttl_ns) {
  int fd = -1;
  int flags = MAP_SHARED | MAP_ANONYMOUS;
  if (!path.empty()) {
    fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open the shared table '", path, "'"));
    if (ftruncate(fd, kTableBytes) != 0) {
      const absl::Status status = absl::ErrnoToStatus(errno, absl::StrCat("cannot size '", path, "'"));
      close(fd);
      return status;
    }
    flags = MAP_SHARED;
  }
  void* memory = mmap(nullptr, kTableBytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  const int error = errno;
  if (fd >= 0) close(fd);
  if (memory == MAP_FAILED) return absl::ErrnoToStatus(error, "cannot map the shared table");
  return SeenTable(static_cast<std::atomic<uint64_t>*>(memory), ttl_ns);
}

SeenTable::SeenTable(SeenTable&& other) noexcept
    : slots_(std::exchange(other.slots_, nullptr)), ttl_ms_(other.ttl_ms_) {}

SeenTable::~SeenTable() {
  if (slots_ != nullptr) munmap(slots_, kTableBytes);
}

// A word is id << 32 | milliseconds; 0 means never used, so the time stamp is kept away from 0.
bool SeenTable::IsFirstSight(uint32_t id, int64_t now_ns) {
  const auto now_ms = static_cast<uint32_t>(now_ns / 1'000'000) | 1;
  std::atomic<uint64_t>& slot = slots_[id % kSlots];
  uint64_t word = slot.load();
  while (true) {
    const auto age_ms = static_cast<int32_t>(now_ms - static_cast<uint32_t>(word));
    if (word != 0 && word >> 32 == id && age_ms < ttl_ms_) return false;
    // Fails when another replica was quicker; then the question is asked again about what it wrote.
    if (slot.compare_exchange_strong(word, uint64_t{id} << 32 | now_ms)) return true;
  }
}

}  // namespace hedgerow::bench
