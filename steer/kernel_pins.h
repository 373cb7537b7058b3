// SPDX-License-Identifier: Apache-2.0
//
// A group's folder of pins, <bpffs>/hedgerow-steer/<name>/: whole or not there. Called by KernelGroup.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"

namespace hedgerow::steer {

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
