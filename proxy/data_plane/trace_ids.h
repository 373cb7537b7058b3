// SPDX-License-Identifier: Apache-2.0
//
// A trace in the words of the configuration that it was opened under. The kernel's events name services and backends by
// their ids in the maps, which after a reload are not their places in the configuration any more. A service or backend
// of a later configuration has no place in this one. Made by KernelReader::OpenTrace.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "proxy/data_plane/data_plane.h"
#include "proxy/data_plane/trace_source.h"

namespace hedgerow {

// From ids in the maps to places in the configuration, and back. Pure.
class TraceIds {
 public:
  explicit TraceIds(const std::vector<ServiceSpec>& services);

  hr_trace_filter ToKernel(const hr_trace_filter& filter) const;
  hr_trace_event FromKernel(const hr_trace_event& event) const;

 private:
  struct Service {
    uint16_t place = HR_MAX_SERVICES;                             // none
    std::array<uint8_t, HR_MAX_BACKENDS_PER_SERVICE> backends{};  // by slot; HR_NO_BACKEND: none
  };
  uint32_t Mask(const Service& service, uint32_t slots) const;

  std::array<Service, HR_MAX_SERVICES> by_id_;
};

class TraceWithIds final : public TraceSource {
 public:
  TraceWithIds(std::unique_ptr<TraceSource> source, const TraceIds& ids) : source_(std::move(source)), ids_(ids) {}

  void Renew(uint64_t lease_ns) override { source_->Renew(lease_ns); }
  size_t Drain(size_t limit, const OnEvent& on_event) override {
    return source_->Drain(limit, [&](const hr_trace_event& event) { on_event(ids_.FromKernel(event)); });
  }
  TraceLoss Loss() const override { return source_->Loss(); }

 private:
  std::unique_ptr<TraceSource> source_;
  TraceIds ids_;
};

}  // namespace hedgerow
