// SPDX-License-Identifier: Apache-2.0
//
// The BPF file system: a mount to pin maps and links on, and one folder per instance. It may not be mounted
// when we start, so we mount it, and take down exactly what we mounted. Called by the daemon at up and down,
// and by clean.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hedgerow::net {

inline constexpr char kDefaultBpffs[] = "/sys/fs/bpf";

// Makes sure that `path` (an existing folder) is a bpffs. True: we mounted it just now. The mount carries our
// name as its source, so that a later process knows whose it is. Mounting needs CAP_SYS_ADMIN; using a mounted
// one does not.
absl::StatusOr<bool> EnsureBpffs(const std::string& path);
// Unmounts it if one of us mounted it and nothing is pinned there any more. True: unmounted.
absl::StatusOr<bool> ReleaseBpffs(const std::string& path);

// On a bpffs that others may write (the kernel's default mode is 1777) another user may have made a folder first, or a
// link in its place, and could take away or exchange what is pinned below: FailedPrecondition, which names it.
absl::Status CheckPinFolder(const std::string& path);

// <bpffs>/hedgerow/<instance>, mode 0700. MakePinDir is OK when it exists already.
std::string PinDir(const std::string& bpffs, const std::string& instance);
absl::StatusOr<std::string> MakePinDir(const std::string& bpffs, const std::string& instance);
// Removes every pin below the instance's folder, the folder, and the common parent when it is empty and MakePinDir
// made it. Removing a
// pin lets go of what it held: detach links first where the order matters. OK when there is none.
absl::Status RemovePinDir(const std::string& bpffs, const std::string& instance);
// The instances that have a folder.
absl::StatusOr<std::vector<std::string>> ListPinnedInstances(const std::string& bpffs);

}  // namespace hedgerow::net
