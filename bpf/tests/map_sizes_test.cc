// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What `hedgerow plan` says of the maps is what the kernel has loaded: every map, its entries, and about its memory.
#include "proxy/kernel_part/map_sizes.h"

#include <bpf/libbpf.h>
#include <sys/utsname.h>

#include <cstdio>
#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"
#include "bpf/tests/kernel_fixture.h"
#include "proxy.skel.h"

namespace hedgerow::packets {
namespace {

uint64_t KernelBytes(int fd) {
  std::ifstream info(absl::StrCat("/proc/self/fdinfo/", fd));
  std::string key;
  uint64_t value = 0;
  while (info >> key)
    if (key == "memlock:" && info >> value) return value;
  return 0;
}

// Before 6.4 the kernel says what keys and values take, without what it keeps beside each.
bool SaysAllMemory() {
  utsname kernel{};
  int major = 0, minor = 0;
  return uname(&kernel) == 0 && sscanf(kernel.release, "%d.%d", &major, &minor) == 2 &&
         (major > 6 || (major == 6 && minor >= 4));
}

class MapSizesTest : public PacketTest {};

TEST_F(MapSizesTest, ThePlanIsWhatTheKernelHas) {
  if (IsSkipped()) return;
  DataPlaneSpec spec = Spec();
  const DataPlaneSpec defaults;
  spec.max_requests = defaults.max_requests;
  spec.max_parked = defaults.max_parked;
  spec.max_flows = defaults.max_flows;
  spec.max_connections = defaults.max_connections;
  Start(spec);
  std::map<std::string, MapSize> planned;
  const auto sizes = MapSizes(spec, static_cast<uint32_t>(libbpf_num_possible_cpus()));
  ASSERT_TRUE(sizes.ok()) << sizes.status();
  for (const MapSize &size : *sizes) planned[size.name] = size;
  uint64_t planned_bytes = 0, kernel_bytes = 0;
  bpf_map *map = nullptr;
  bpf_object__for_each_map(map, skeleton()->obj) {
    if (bpf_map__is_internal(map)) continue;
    SCOPED_TRACE(bpf_map__name(map));
    ASSERT_EQ(planned.count(bpf_map__name(map)), 1u);
    const MapSize &size = planned[bpf_map__name(map)];
    EXPECT_EQ(size.entries, bpf_map__max_entries(map));
    planned_bytes += size.bytes;
    const uint64_t bytes = KernelBytes(bpf_map__fd(map));
    kernel_bytes += bytes;
    if (bytes < 1'000'000) continue;  // small ones are mostly what the kernel keeps beside them
    EXPECT_GE(size.bytes, bytes * 4 / 5);
    if (SaysAllMemory()) EXPECT_LE(size.bytes, bytes * 5 / 4);
  }
  EXPECT_GE(planned_bytes, kernel_bytes * 9 / 10);
  if (SaysAllMemory()) EXPECT_LE(planned_bytes, kernel_bytes * 11 / 10);
}

}  // namespace
}  // namespace hedgerow::packets
