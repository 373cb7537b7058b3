// SPDX-License-Identifier: Apache-2.0
//
// A Disk as a mounted file system, by libfuse's calls with paths. Only what the calls look like is here.

#pragma once

#include <string>

#include "chaos/unsynced/disk.h"

namespace hedgerow::unsynced {

// Serves until it is unmounted. `ready` is called once the mount is there. False: it could not be mounted;
// libfuse has said why.
bool Serve(Disk& disk, const std::string& mount_point, const std::function<void()>& ready);

}  // namespace hedgerow::unsynced
