// SPDX-License-Identifier: Apache-2.0
//
// A group's BPF object: made and pinned whole, and opened from its pins. Called by KernelGroup alone.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/unique_fd.h"
#include "steer/kernel_group.h"

namespace hedgerow::steer {

struct Program {
  net::UniqueFd fd{};
  uint32_t id = 0;
};

// Descriptors of the pinned objects; arrays by transport, UDP first.
struct GroupObject {
  hr_steer_config config{};
  std::array<net::UniqueFd, 2> sockets{};
  std::array<Program, 2> programs{};
  Program program_of{};
  net::UniqueFd table, state, devices, pins, slot_counts, bucket_counts, counts;
};

absl::Status CheckTable(const std::array<hr_steer_entry, HR_STEER_BUCKETS>& table);
absl::Status CheckSpec(const GroupSpec& spec);

// Loads the programs with their constants, fills and freezes, and pins everything in `folder`.
absl::Status LoadAndPinGroup(const GroupSpec& spec, const std::string& folder);
// FailedPrecondition: another build made it.
absl::StatusOr<GroupObject> OpenGroupObject(const std::string& folder);

}  // namespace hedgerow::steer
