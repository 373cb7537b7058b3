// SPDX-License-Identifier: Apache-2.0
//
// KernelReader, the part that traces: a ring of the trace's own, made here and put where the programs look for one, and
// the memory that says what is asked for and until when. One at a time.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "net/unique_fd.h"
#include "proxy/data_plane/trace_ids.h"
#include "proxy/kernel_part/kernel_data_plane.h"
#include "proxy/kernel_part/kernel_maps.h"
#include "proxy.skel.h"

namespace hedgerow {
namespace {

constexpr uint32_t kTheRing = 0;
constexpr int kStopDraining = -1;
// Room for a quarter of a second's events, a few for each request; the daemon looks every 50 ms.
constexpr uint64_t kEventsPerRequest = 8;
constexpr uint64_t kRingsPerSecond = 4;
constexpr uint64_t kMinRingBytes = 64 << 10;
constexpr uint64_t kMaxRingBytes = 16 << 20;
constexpr uint64_t kRecordBytes = sizeof(hr_trace_event) + 8;  // the kernel's header of a record

uint32_t RingBytes(uint32_t rate) {
  const uint64_t wanted = uint64_t{rate} * kEventsPerRequest * kRecordBytes / kRingsPerSecond;
  return static_cast<uint32_t>(std::clamp(std::bit_ceil(wanted), kMinRingBytes, kMaxRingBytes));
}

void WriteFilter(volatile hr_trace* memory, const hr_trace_filter& filter) {
  // No program reads the filter before the lease is written. A program that still works for the previous tracer emits
  // nothing once the session number has changed.
  memcpy(const_cast<hr_trace_filter*>(&memory->filter), &filter, sizeof(filter));
  memory->window = 0;
  memory->admitted = 0;
  memory->matched = 0;
  memory->requests_lost = 0;
  memory->events_lost = 0;
}

class KernelTrace final : public TraceSource {
 public:
  // `memory` is the programs' hr_live, mapped; `rings` the map that holds the ring. No event is emitted before the
  // first Renew().
  static absl::StatusOr<std::unique_ptr<KernelTrace>> Open(std::shared_ptr<MappedArray> memory, net::UniqueFd rings,
                                                           const TraceIds& ids, const hr_trace_filter& filter);
  ~KernelTrace() override;

  void Renew(uint64_t lease_ns) override;
  size_t Drain(size_t limit, const OnEvent& on_event) override;
  TraceLoss Loss() const override;

 private:
  // Ends the trace that an earlier owner of the same memory and map left, because that owner no longer reads it.
  void Forget();
  KernelTrace(std::shared_ptr<MappedArray> mapped, net::UniqueFd rings, const TraceIds& ids)
      : mapped_(std::move(mapped)), memory_(&mapped_->At<hr_live>(0)->trace), rings_(std::move(rings)), ids_(ids) {}

  static int OnSample(void* context, void* data, size_t bytes);

  std::shared_ptr<MappedArray> mapped_;
  volatile hr_trace* memory_;
  net::UniqueFd rings_;
  const TraceIds ids_;
  net::UniqueFd ring_;
  ring_buffer* consumer_ = nullptr;
  const OnEvent* on_event_ = nullptr;  // during Drain
  size_t left_ = 0;                    // during Drain
};

absl::StatusOr<std::unique_ptr<KernelTrace>> KernelTrace::Open(std::shared_ptr<MappedArray> mapped, net::UniqueFd rings,
                                                               const TraceIds& ids, const hr_trace_filter& filter) {
  std::unique_ptr<KernelTrace> trace(new KernelTrace(std::move(mapped), std::move(rings), ids));
  volatile hr_trace* memory = trace->memory_;
  trace->Forget();
  trace->ring_.Reset(bpf_map_create(BPF_MAP_TYPE_RINGBUF, "hr_trace_ring", 0, 0, RingBytes(filter.rate), nullptr));
  if (!trace->ring_.valid()) return absl::ErrnoToStatus(errno, "cannot make the trace's ring");
  trace->consumer_ = ring_buffer__new(trace->ring_.get(), OnSample, trace.get(), nullptr);
  if (trace->consumer_ == nullptr) return absl::ErrnoToStatus(errno, "cannot read the trace's ring");
  const int ring = trace->ring_.get();
  if (bpf_map_update_elem(trace->rings_.get(), &kTheRing, &ring, BPF_ANY) != 0)
    return absl::ErrnoToStatus(errno, "cannot give the programs the trace's ring");
  memory->session = memory->session % 255 + 1;
  WriteFilter(memory, filter);
  return trace;
}

KernelTrace::~KernelTrace() {
  // The kernel returns from the removal when no program can hold the ring any more; our descriptor keeps it
  // until then.
  Forget();
  if (consumer_ != nullptr) ring_buffer__free(consumer_);
}

void KernelTrace::Forget() {
  __atomic_store_n(&memory_->lease_ns, 0, __ATOMIC_SEQ_CST);
  bpf_map_delete_elem(rings_.get(), &kTheRing);  // none there: nothing to remove
}

void KernelTrace::Renew(uint64_t lease_ns) { __atomic_store_n(&memory_->lease_ns, lease_ns, __ATOMIC_SEQ_CST); }

int KernelTrace::OnSample(void* context, void* data, size_t bytes) {
  auto* trace = static_cast<KernelTrace*>(context);
  hr_trace_event event{};
  memcpy(&event, data, std::min(bytes, sizeof(event)));
  // Of a program that was still at work for the tracer before.
  if (event.session == static_cast<uint8_t>(trace->memory_->session))
    (*trace->on_event_)(trace->ids_.FromKernel(event));
  return --trace->left_ == 0 ? kStopDraining : 0;
}

size_t KernelTrace::Drain(size_t limit, const OnEvent& on_event) {
  if (limit == 0) return 0;
  on_event_ = &on_event;
  left_ = limit;
  ring_buffer__consume(consumer_);
  on_event_ = nullptr;
  return limit - left_;
}

TraceLoss KernelTrace::Loss() const { return {.requests = memory_->requests_lost, .events = memory_->events_lost}; }

}  // namespace

absl::StatusOr<std::unique_ptr<TraceSource>> KernelReader::OpenTrace(const hr_trace_filter& filter) {
  net::UniqueFd rings(fcntl(bpf_map__fd(object_.skeleton()->maps.trace_rings), F_DUPFD_CLOEXEC, 0));
  if (!rings.valid()) return absl::ErrnoToStatus(errno, "cannot hold the trace's map");
  const TraceIds ids(spec_.services);
  return KernelTrace::Open(memory_.live, std::move(rings), ids, ids.ToKernel(filter));
}

}  // namespace hedgerow
