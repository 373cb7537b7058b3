// SPDX-License-Identifier: Apache-2.0
//
// A group's BPF object and its folder of pins, <bpffs>/hedgerow-steer/<name>/: whole or not there. Called by
// KernelGroup.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
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
  net::UniqueFd table, state, devices, pins, slot_counts, counts;
  net::UniqueFd flows;  // where datagrams are of sessions
};

// Loads the programs with their constants, fills and freezes, and pins everything in `folder`.
absl::Status LoadAndPinGroup(const GroupSpec& spec, const std::string& folder);
// FailedPrecondition: another build made it.
absl::StatusOr<GroupObject> OpenGroupObject(const std::string& folder);

// Names become folders of a bpffs, which has no dots in names: letters, digits, '-' and '_', at most 64.
absl::Status CheckGroupName(const std::string& name);

// <bpffs>/hedgerow-steer/<name>.
std::string GroupPinDir(const std::string& bpffs, const std::string& name);

// Makes the folder with all that `pin` pins below its path argument. The folder gets the group's name when every
// object is pinned; remains of an interrupted creation are removed. AlreadyExists: the name is taken. Mounts the
// bpffs where none is.
absl::Status MakeGroupPins(const std::string& bpffs, const std::string& name,
                           const std::function<absl::Status(const std::string&)>& pin);

// OK when there is none. Unmounts the bpffs where one of us mounted it and nothing is left.
absl::Status RemoveGroupPins(const std::string& bpffs, const std::string& name);

}  // namespace hedgerow::steer
