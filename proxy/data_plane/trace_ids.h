// SPDX-License-Identifier: Apache-2.0
//
// A trace in the words of the configuration that it was opened under. The kernel's events name services and backends by
// their ids in the maps, which after a reload are not their places in the configuration any more. A service or backend
// of a later configuration has no place in this one. Used by KernelReader::OpenTrace.
#pragma once

#include <array>
#include <vector>

#include "proxy/data_plane/data_plane.h"

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

}  // namespace hedgerow
