// SPDX-License-Identifier: Apache-2.0
//
// A trace names services and backends as the configuration does, whatever their ids in the kernel.

#include "proxy/data_plane/trace_ids.h"

#include <gtest/gtest.h>

namespace hedgerow {
namespace {

// The first service has id 5, its backends stand at 2 and 0; the second has id 0, its backend stands at 7.
std::vector<ServiceSpec> Services() {
  std::vector<ServiceSpec> services(2);
  services[0].id = 5;
  services[0].backends.resize(2);
  services[0].backends[0].slot = 2;
  services[0].backends[1].slot = 0;
  services[1].id = 0;
  services[1].backends.resize(1);
  services[1].backends[0].slot = 7;
  return services;
}

TEST(TraceIds, AFilterIsPutInTheKernelsIds) {
  hr_trace_filter filter{};
  filter.rate = 7;
  filter.backends[0] = 0b01;
  filter.backends[1] = 0b01;
  const hr_trace_filter kernel = TraceIds(Services()).ToKernel(filter);
  EXPECT_EQ(kernel.rate, 7u);
  EXPECT_EQ(kernel.backends[5], 0b100);
  EXPECT_EQ(kernel.backends[0], 0b10000000);
  EXPECT_EQ(kernel.backends[1], 0);
}

TEST(TraceIds, AnEventIsToldInTheConfigurationsPlaces) {
  hr_trace_event event{};
  event.key.service = 5;
  event.backend = 2;
  event.first = 0;
  event.winner = HR_NO_BACKEND;
  event.masks = HR_MASKS_SENT(0b101) | HR_MASKS_ANSWERED(0b001);
  const hr_trace_event translated = TraceIds(Services()).FromKernel(event);
  EXPECT_EQ(translated.key.service, 0);
  EXPECT_EQ(translated.backend, 0);
  EXPECT_EQ(translated.first, 1);
  EXPECT_EQ(translated.winner, HR_NO_BACKEND);
  EXPECT_EQ(translated.masks, HR_MASKS_SENT(0b11) | HR_MASKS_ANSWERED(0b10));
}

TEST(TraceIds, AServiceOrBackendAddedLaterHasNoPlace) {
  hr_trace_event event{};
  event.key.service = 3;
  event.backend = 1;
  event.masks = HR_MASKS_SENT(0b10);
  const hr_trace_event translated = TraceIds(Services()).FromKernel(event);
  EXPECT_EQ(translated.key.service, HR_MAX_SERVICES);
  EXPECT_EQ(translated.backend, HR_NO_BACKEND);
  EXPECT_EQ(translated.masks, 0u);
}

}  // namespace
}  // namespace hedgerow
