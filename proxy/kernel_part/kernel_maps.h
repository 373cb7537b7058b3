// SPDX-License-Identifier: Apache-2.0
//
// Thin, checked access to BPF maps by descriptor: element look-up and update, per-CPU sums, and the memory of a
// mappable array. Used by the parts of KernelDataPlane and by packet tests. Every error names the map and errno.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bpf/abi/stats_abi.h"
#include "net/mapped.h"
#include "net/wait_for_programs.h"
#include "proxy/data_plane/data_plane.h"

struct bpf_map;

namespace hedgerow {

absl::Status UpdateElement(bpf_map* map, const void* key, const void* value);
absl::Status LookUpElement(bpf_map* map, const void* key, void* value);

// The same while programs run. An element that a hash map gives up, by deletion or by an update that puts
// another in its place, is used again by the very next insertion, and a program that has just found it would
// read what stands there by then. So what is unchanged is left alone, and after a change of what was there no
// program that has seen the element before is at work any more. An element of an array is overwritten in place.
absl::Status PutElement(bpf_map* map, const void* key, const void* value);
// False: there was none. The caller calls WaitForPrograms() before anything else is written to this map.
absl::StatusOr<bool> DeleteElement(bpf_map* map, const void* key);
// On every CPU, where it is a map per CPU.
absl::Status ZeroElement(bpf_map* map, uint32_t index);

using net::WaitForPrograms;

// Sums of a per-CPU array's element over all possible CPUs.
absl::StatusOr<hr_stats> SumStats(bpf_map* map, uint32_t index);
absl::StatusOr<hr_backend_stats> SumBackendStats(bpf_map* map, uint32_t index);
absl::StatusOr<Histogram> SumHistogram(bpf_map* map, uint32_t index);

// An element of the leader map, read under its lock.
absl::StatusOr<hr_leader_view> ReadLeader(bpf_map* leaders, uint32_t service_id);

using net::MappedArray;
// The memory of a BPF_F_MMAPABLE array.
absl::StatusOr<MappedArray> OpenMapped(bpf_map* map);

}  // namespace hedgerow
