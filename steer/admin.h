// SPDX-License-Identifier: Apache-2.0
//
// A supervisor's administration service, gRPC on <run dir>/NAME/admin.sock for its own user, and `show` alone on
// monitor.sock for the members of a group. admin_client.h has the client.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "operate/admin_socket.h"
#include "operate/event_loop.h"
#include "steer/control.h"
#include "steer/settings.h"

namespace hedgerow::steer {

// `loop` and `control` must outlive it.
absl::StatusOr<std::unique_ptr<operate::AdminSocket>> ServeAdmin(const Places& places, EventLoop& loop,
                                                                 Control& control);
// Null where the host does not have the group.
absl::StatusOr<std::unique_ptr<operate::AdminSocket>> ServeMonitor(const Places& places, EventLoop& loop,
                                                                   Control& control,
                                                                   const std::string& group = kMonitorGroup);

}  // namespace hedgerow::steer
