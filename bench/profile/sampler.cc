// SPDX-License-Identifier: Apache-2.0
#include "bench/profile/sampler.h"

#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace hedgerow::bench {
namespace {

constexpr size_t kRing_bytes = 1 << 20;
constexpr size_t kRecordMax_bytes = 1 << 16;  // its length is 16 bits wide

// Layout of PERF_RECORD_SAMPLE for PERF_SAMPLE_IP | TID | CALLCHAIN.
struct Head {
  perf_event_header header;
  uint64_t ip;
  uint32_t pid, tid;
  uint64_t frames;
};

struct LostRecord {
  perf_event_header header;
  uint64_t id;
  uint64_t lost;
};

}  // namespace

struct Sampler::Cpu {
  int fd = -1;
  perf_event_mmap_page* page = nullptr;
  uint8_t* ring = nullptr;
  std::array<uint64_t, kRecordMax_bytes / 8> record{};

  ~Cpu() {
    if (page != nullptr) munmap(page, kRing_bytes + static_cast<size_t>(sysconf(_SC_PAGESIZE)));
    if (fd >= 0) close(fd);
  }
  // Into `record`; false: there is none.
  bool Next();
};

Sampler::Sampler() = default;
Sampler::Sampler(Sampler&&) noexcept = default;
Sampler::~Sampler() = default;

absl::StatusOr<Sampler> Sampler::Start(uint64_t per_second) {
  Sampler sampler;
  perf_event_attr attributes{};
  attributes.type = PERF_TYPE_SOFTWARE;
  attributes.size = sizeof(attributes);
  attributes.config = PERF_COUNT_SW_CPU_CLOCK;
  attributes.freq = 1;
  attributes.sample_freq = per_second;
  attributes.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_CALLCHAIN;
  attributes.exclude_callchain_user = 1;
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (int number = 0; number < sysconf(_SC_NPROCESSORS_ONLN); ++number) {
    auto cpu = std::make_unique<Cpu>();
    cpu->fd = static_cast<int>(syscall(SYS_perf_event_open, &attributes, -1, number, -1,
                                       static_cast<unsigned long>(PERF_FLAG_FD_CLOEXEC)));
    if (cpu->fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("perf_event_open of CPU ", number));
    void* const mapped =
        mmap(nullptr, page_bytes + kRing_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, cpu->fd, 0);
    if (mapped == MAP_FAILED) return absl::ErrnoToStatus(errno, "mmap of the samples");
    cpu->page = static_cast<perf_event_mmap_page*>(mapped);
    cpu->ring = static_cast<uint8_t*>(mapped) + page_bytes;
    sampler.cpus_.push_back(std::move(cpu));
  }
  return sampler;
}

void Sampler::Stop() {
  for (const auto& cpu : cpus_) ioctl(cpu->fd, PERF_EVENT_IOC_DISABLE, 0);
}

bool Sampler::Cpu::Next() {
  std::atomic_ref<__u64> head_position(page->data_head), tail_position(page->data_tail);
  const uint64_t head = head_position.load(std::memory_order_acquire);
  uint64_t tail = tail_position.load(std::memory_order_relaxed);
  if (head == tail) return false;
  auto* const out = reinterpret_cast<uint8_t*>(record.data());
  const auto copy = [&](size_t bytes) {
    const size_t at = tail % kRing_bytes;
    const size_t first = std::min(bytes, kRing_bytes - at);
    std::memcpy(out, ring + at, first);
    std::memcpy(out + first, ring, bytes - first);
  };
  copy(sizeof(perf_event_header));
  const size_t bytes = reinterpret_cast<const perf_event_header*>(out)->size;
  copy(bytes);
  tail_position.store(tail + bytes, std::memory_order_release);
  return true;
}

void Sampler::Drain(const std::function<void(const Sample&)>& on_sample) {
  std::vector<uint64_t> frames;
  for (const auto& cpu : cpus_) {
    while (cpu->Next()) {
      const auto* const header = reinterpret_cast<const perf_event_header*>(cpu->record.data());
      if (header->type == PERF_RECORD_LOST) {
        lost_ += reinterpret_cast<const LostRecord*>(header)->lost;
        continue;
      }
      if (header->type != PERF_RECORD_SAMPLE) continue;
      const auto* const head = reinterpret_cast<const Head*>(header);
      const auto* const chain = cpu->record.data() + sizeof(Head) / 8;
      frames.clear();
      // Marks such as PERF_CONTEXT_KERNEL stand between the addresses.
      for (uint64_t i = 0; i < head->frames; ++i) {
        if (chain[i] < static_cast<uint64_t>(PERF_CONTEXT_MAX)) frames.push_back(chain[i]);
      }
      const bool user = (header->misc & PERF_RECORD_MISC_CPUMODE_MASK) == PERF_RECORD_MISC_USER;
      if (user) frames.clear();
      if (!user && frames.empty()) frames.push_back(head->ip);
      on_sample({.pid = head->pid, .frames = frames});
    }
  }
}

}  // namespace hedgerow::bench
