// SPDX-License-Identifier: Apache-2.0
//
// The process of a supervisor from start to end: capabilities, signals, the group, administration and metrics. Called
// by the commands `run` and `adopt`.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "operate/event_loop.h"
#include "steer/group.h"
#include "steer/settings.h"

namespace hedgerow::steer {

// On the main thread, before the loop runs. `mounted_bpffs`: it was mounted for this group.
using StartGroup = std::function<absl::StatusOr<std::unique_ptr<Group>>(EventLoop* loop, bool mounted_bpffs)>;

// Serves in the foreground until SIGTERM, SIGINT or `stop`; SIGHUP is logged. `ready` is called once, when the group
// serves.
absl::Status RunGroup(const Settings& settings, const StartGroup& start, const std::function<void(Group&)>& ready);

}  // namespace hedgerow::steer
