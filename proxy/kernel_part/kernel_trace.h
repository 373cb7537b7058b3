// SPDX-License-Identifier: Apache-2.0
//
// The kernel's side of a trace: a ring of its own, made here and put where the programs look for one, and the
// memory that says what is asked for and until when. Made by KernelReader::OpenTrace; one at a time.
#pragma once

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "net/unique_fd.h"
#include "proxy/kernel_part/kernel_maps.h"
#include "proxy/data_plane/trace_source.h"

struct ring_buffer;

namespace hedgerow {

class KernelTrace final : public TraceSource {
 public:
  // `memory` is the programs' hr_live, mapped; `rings` the map that holds the ring. No event is emitted before the
  // first Renew().
  static absl::StatusOr<std::unique_ptr<KernelTrace>> Open(std::shared_ptr<MappedArray> memory, net::UniqueFd rings,
                                                           const hr_trace_filter& filter);
  ~KernelTrace() override;

  void Renew(uint64_t lease_ns) override;
  size_t Drain(size_t limit, const OnEvent& on_event) override;
  TraceLoss Loss() const override;

  // Ends the trace that an earlier owner of the same memory and map left, because that owner no longer reads it.
  static void Forget(volatile hr_trace* memory, int rings);

 private:
  KernelTrace(std::shared_ptr<MappedArray> mapped, net::UniqueFd rings)
      : mapped_(std::move(mapped)), memory_(&mapped_->At<hr_live>(0)->trace), rings_(std::move(rings)) {}

  static int OnSample(void* context, void* data, size_t bytes);

  std::shared_ptr<MappedArray> mapped_;
  volatile hr_trace* memory_;
  net::UniqueFd rings_;
  net::UniqueFd ring_;
  ring_buffer* consumer_ = nullptr;
  const OnEvent* on_event_ = nullptr;  // during Drain
  size_t left_ = 0;                    // during Drain
};

}  // namespace hedgerow
