// SPDX-License-Identifier: Apache-2.0
#include "proxy/data_plane/trace_ids.h"

#include <cstring>

namespace hedgerow {
namespace {

constexpr int kMasks = 4;  // of 8 bits each: see HR_MASKS_SENT and its like

}  // namespace

TraceIds::TraceIds(const std::vector<ServiceSpec>& services) {
  for (Service& service : by_id_) service.backends.fill(HR_NO_BACKEND);
  for (size_t i = 0; i < services.size(); ++i) {
    Service& service = by_id_.at(services[i].id);
    service.place = static_cast<uint16_t>(i);
    for (size_t j = 0; j < services[i].backends.size(); ++j)
      service.backends.at(services[i].backends[j].slot) = static_cast<uint8_t>(j);
  }
}

hr_trace_filter TraceIds::ToKernel(const hr_trace_filter& filter) const {
  hr_trace_filter kernel = filter;
  memset(kernel.backends, 0, sizeof(kernel.backends));
  for (size_t id = 0; id < by_id_.size(); ++id) {
    const Service& service = by_id_[id];
    if (service.place >= HR_MAX_SERVICES) continue;
    for (size_t slot = 0; slot < service.backends.size(); ++slot) {
      const uint8_t place = service.backends[slot];
      if (place != HR_NO_BACKEND && (filter.backends[service.place] >> place & 1) != 0)
        kernel.backends[id] = static_cast<uint8_t>(kernel.backends[id] | 1u << slot);
    }
  }
  return kernel;
}

uint32_t TraceIds::Mask(const Service& service, uint32_t slots) const {
  uint32_t places = 0;
  for (size_t slot = 0; slot < service.backends.size(); ++slot)
    if ((slots >> slot & 1) != 0 && service.backends[slot] != HR_NO_BACKEND) places |= 1u << service.backends[slot];
  return places;
}

hr_trace_event TraceIds::FromKernel(const hr_trace_event& event) const {
  hr_trace_event out = event;
  static const Service kNoService = [] {
    Service none;
    none.backends.fill(HR_NO_BACKEND);
    return none;
  }();
  const Service& service = event.key.service < by_id_.size() ? by_id_[event.key.service] : kNoService;
  const auto place = [&service](uint8_t slot) -> uint8_t {
    return slot < service.backends.size() ? service.backends[slot] : uint8_t{HR_NO_BACKEND};
  };
  out.key.service = service.place;
  out.backend = place(event.backend);
  out.winner = place(event.winner);
  out.first = place(event.first);
  out.masks = 0;
  for (int i = 0; i < kMasks; ++i) out.masks |= Mask(service, event.masks >> (8 * i) & 0xff) << (8 * i);
  return out;
}

}  // namespace hedgerow
