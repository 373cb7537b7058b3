// SPDX-License-Identifier: Apache-2.0
//
// The life of a supervisor's process: its rights and signals, the group, where operators ask, and the end. Called by the commands
// `run` and `adopt`.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "operate/event_loop.h"
#include "steer/control.h"
#include "steer/settings.h"

namespace hedgerow::steer {

// A group that runs: what RunGroup needs of it beside Control.
struct RunningGroup {
  std::unique_ptr<Control> control{};
  std::function<void()> begin_stop{};  // ends the loop, sooner or later; called again, sooner
  std::string text{};                  // "group port-2055: ...", for the line that says it is ready
};
// On the main thread, before the loop runs. `mounted_bpffs`: it was mounted for this group.
using StartGroup = std::function<absl::StatusOr<RunningGroup>(EventLoop* loop, bool mounted_bpffs)>;

// Serves in the foreground until SIGTERM, SIGINT, SIGHUP or `stop`. `ready` is called once, when the group serves.
absl::Status RunGroup(const Settings& settings, const StartGroup& start, const std::function<void(Control&, const std::string&)>& ready);

}  // namespace hedgerow::steer
