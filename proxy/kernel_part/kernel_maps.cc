// SPDX-License-Identifier: Apache-2.0
#include "proxy/kernel_part/kernel_maps.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"

namespace hedgerow {
namespace {

absl::Status MapError(bpf_map* map, absl::string_view what) {
  return absl::ErrnoToStatus(errno, absl::StrCat("BPF map ", bpf_map__name(map), ": cannot ", what));
}

// An element of a per-CPU map, which holds one T per possible CPU: `add` adds each to the sum.
template <typename T, typename Sum>
absl::StatusOr<Sum> SumPerCpu(bpf_map* map, uint32_t index, void (*add)(Sum& sum, const T& value)) {
  static_assert(sizeof(T) % 8 == 0, "the kernel rounds per-CPU values up to 8 bytes");
  const int cpus = libbpf_num_possible_cpus();
  if (cpus < 1) return absl::InternalError("cannot tell the number of CPUs");
  std::vector<T> values(cpus);
  if (bpf_map_lookup_elem(bpf_map__fd(map), &index, values.data()) != 0) return MapError(map, "be read");
  Sum sum{};
  for (const T& value : values) add(sum, value);
  return sum;
}

}  // namespace

absl::Status UpdateElement(bpf_map* map, const void* key, const void* value) {
  if (bpf_map_update_elem(bpf_map__fd(map), key, value, BPF_ANY) != 0) return MapError(map, "be written");
  return absl::OkStatus();
}

absl::Status LookUpElement(bpf_map* map, const void* key, void* value) {
  if (bpf_map_lookup_elem(bpf_map__fd(map), key, value) != 0) return MapError(map, "be read");
  return absl::OkStatus();
}

absl::Status PutElement(bpf_map* map, const void* key, const void* value) {
  std::vector<char> present(bpf_map__value_size(map));
  const bool known = bpf_map_lookup_elem(bpf_map__fd(map), key, present.data()) == 0;
  if (known && memcmp(present.data(), value, present.size()) == 0) return absl::OkStatus();
  if (absl::Status status = UpdateElement(map, key, value); !status.ok()) return status;
  return known && bpf_map__type(map) == BPF_MAP_TYPE_HASH ? WaitForPrograms() : absl::OkStatus();
}

absl::StatusOr<bool> DeleteElement(bpf_map* map, const void* key) {
  if (bpf_map_delete_elem(bpf_map__fd(map), key) == 0) return true;
  if (errno == ENOENT) return false;
  return MapError(map, "be changed");
}

absl::Status ZeroElement(bpf_map* map, uint32_t index) {
  size_t bytes = (bpf_map__value_size(map) + 7) & ~size_t{7};
  if (bpf_map__type(map) == BPF_MAP_TYPE_PERCPU_ARRAY) bytes *= static_cast<size_t>(libbpf_num_possible_cpus());
  const std::vector<char> zeros(bytes);
  return UpdateElement(map, &index, zeros.data());
}

absl::StatusOr<hr_stats> SumStats(bpf_map* map, uint32_t index) {
  return SumPerCpu<hr_stats, hr_stats>(map, index, [](hr_stats& sum, const hr_stats& value) {
    for (int i = 0; i < HR_COUNTER_COUNT; ++i) sum.counters[i] += value.counters[i];
    for (int i = 0; i < HR_REASON_COUNT; ++i) sum.reasons[i] += value.reasons[i];
  });
}

absl::StatusOr<hr_backend_stats> SumBackendStats(bpf_map* map, uint32_t index) {
  return SumPerCpu<hr_backend_stats, hr_backend_stats>(map, index, [](auto& sum, const auto& value) {
    for (int i = 0; i < HR_BACKEND_COUNTERS; ++i) sum.counters[i] += value.counters[i];
  });
}

absl::StatusOr<Histogram> SumHistogram(bpf_map* map, uint32_t index) {
  return SumPerCpu<hr_histogram, Histogram>(map, index, [](Histogram& sum, const hr_histogram& value) {
    for (uint32_t i = 0; i < HR_HISTOGRAM_BUCKETS; ++i) sum.buckets[i] += value.buckets[i];
    sum.sum_ns += value.sum_ns;
    sum.max_ns = std::max<uint64_t>(sum.max_ns, value.max_ns);
  });
}

absl::StatusOr<hr_leader_view> ReadLeader(bpf_map* leaders, uint32_t service_id) {
  struct {
    uint32_t lock;
    uint32_t pad;
    hr_leader_view view;
  } leader{};
  if (bpf_map_lookup_elem_flags(bpf_map__fd(leaders), &service_id, &leader, BPF_F_LOCK) != 0)
    return absl::ErrnoToStatus(errno, "cannot read the leader map");
  return leader.view;
}

absl::StatusOr<MappedArray> OpenMapped(bpf_map* map) {
  auto array = MappedArray::Open(bpf_map__fd(map), bpf_map__value_size(map), bpf_map__max_entries(map));
  if (!array.ok())
    return absl::Status(array.status().code(),
                        absl::StrCat("BPF map ", bpf_map__name(map), ": ", array.status().message()));
  return array;
}

}  // namespace hedgerow
