// SPDX-License-Identifier: Apache-2.0
#include "cluster/offload/ring_reader.h"

#include <linux/bpf.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cluster/raft/check.h"

namespace hedgerow::offload {
namespace {

constexpr uint64_t kHead_bytes = BPF_RINGBUF_HDR_SZ;
constexpr int kSpinsBeforeYield = 10'000;

// The kernel publishes a position by a store with release, a record by an exchange of its head.
uint64_t Load64(const char* at) { return __atomic_load_n(reinterpret_cast<const uint64_t*>(at), __ATOMIC_ACQUIRE); }
uint32_t Load32(const char* at) { return __atomic_load_n(reinterpret_cast<const uint32_t*>(at), __ATOMIC_ACQUIRE); }

uint64_t Step(uint32_t record_bytes) { return (record_bytes + kHead_bytes + 7) & ~uint64_t{7}; }

}  // namespace

absl::StatusOr<RingReader> RingReader::Open(int map_fd, size_t ring_bytes) {
  RingReader reader;
  reader.page_bytes_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  reader.ring_bytes_ = ring_bytes;
  void* const consumer = mmap(nullptr, reader.page_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, map_fd, 0);
  if (consumer == MAP_FAILED) return absl::ErrnoToStatus(errno, "cannot map the ring's consumer position");
  reader.consumer_ = static_cast<char*>(consumer);
  void* const producer = mmap(nullptr, reader.page_bytes_ + 2 * ring_bytes, PROT_READ, MAP_SHARED, map_fd,
                              static_cast<off_t>(reader.page_bytes_));
  if (producer == MAP_FAILED) return absl::ErrnoToStatus(errno, "cannot map the ring");
  reader.producer_ = static_cast<const char*>(producer);
  reader.data_ = reader.producer_ + reader.page_bytes_;
  reader.taken_ = reader.released();
  return reader;
}

RingReader& RingReader::operator=(RingReader&& other) noexcept {
  std::swap(consumer_, other.consumer_);
  std::swap(producer_, other.producer_);
  std::swap(data_, other.data_);
  std::swap(ring_bytes_, other.ring_bytes_);
  std::swap(page_bytes_, other.page_bytes_);
  std::swap(taken_, other.taken_);
  return *this;
}

RingReader::~RingReader() {
  if (consumer_ != nullptr) munmap(consumer_, page_bytes_);
  if (producer_ != nullptr) munmap(const_cast<char*>(producer_), page_bytes_ + 2 * ring_bytes_);
}

uint64_t RingReader::ProducerPosition() const { return Load64(producer_); }

uint64_t RingReader::released() const { return Load64(consumer_); }

// A reserved record is busy for as long as one kernel program runs, which no task can interrupt: waiting is
// short, unless its CPU is a virtual one that was taken away.
uint32_t RingReader::HeadAt(uint64_t position, bool wait) const {
  const char* const at = data_ + (position & (ring_bytes_ - 1));
  uint32_t head = Load32(at);
  for (int spins = 0; wait && (head & BPF_RINGBUF_BUSY_BIT) != 0; ++spins) {
    if (spins >= kSpinsBeforeYield) sched_yield();
    head = Load32(at);
  }
  return head;
}

RingRecord RingReader::RecordAt(uint64_t position, uint32_t record_bytes) const {
  const char* const at = data_ + (position & (ring_bytes_ - 1)) + kHead_bytes;
  RingRecord record;
  HEDGEROW_CHECK(record_bytes >= HR_NODE_RECORD_HEAD_BYTES);
  std::memcpy(static_cast<void*>(&record.head), at, HR_NODE_RECORD_HEAD_BYTES);
  HEDGEROW_CHECK(record.head.bytes <= record_bytes - HR_NODE_RECORD_HEAD_BYTES);
  record.datagram = std::string_view(at + HR_NODE_RECORD_HEAD_BYTES, record.head.bytes);
  record.end = position + Step(record_bytes);
  return record;
}

uint64_t RingReader::Take(uint64_t until, bool wait, std::vector<RingRecord>& records) {
  const uint64_t end = std::min(until, ProducerPosition());
  while (taken_ < end) {
    const uint32_t head = HeadAt(taken_, wait);
    if ((head & BPF_RINGBUF_BUSY_BIT) != 0) break;
    const uint32_t record_bytes = head & ~uint32_t{BPF_RINGBUF_DISCARD_BIT};
    if ((head & BPF_RINGBUF_DISCARD_BIT) == 0) records.push_back(RecordAt(taken_, record_bytes));
    taken_ += Step(record_bytes);
  }
  return taken_;
}

void RingReader::Release(uint64_t position) {
  HEDGEROW_CHECK(position <= taken_ && position >= released());
  __atomic_store_n(reinterpret_cast<uint64_t*>(consumer_), position, __ATOMIC_RELEASE);
}

}  // namespace hedgerow::offload
