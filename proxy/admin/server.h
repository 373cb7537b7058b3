// SPDX-License-Identifier: Apache-2.0
//
// The gRPC side of administration: a unix socket of mode 0600, and one for a group that monitors, whose calls run
// on the daemon's event loop. Built by the daemon, and by tests with a fake data plane.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "operate/admin_socket.h"
#include "proxy/admin/controller.h"
#include "proxy/api/config.pb.h"
#include "operate/event_loop.h"

namespace hedgerow {

// Serves the socket until the result's end. Errors are those of operate::AdminSocket::Listen. `loop` and
// `controller` must outlive it.
absl::StatusOr<std::unique_ptr<operate::AdminSocket>> ServeAdmin(const std::string& socket_path, EventLoop& loop,
                                                                 Controller& controller);

// Where it is: what the configuration says, or beside `socket` (operate/unix_socket.h). Empty: there is none.
std::string MonitorSocketOf(const v1::AdminConfig& config);
// The calls that change nothing, for the group that the configuration names. Null where it names no socket. The rest as
// above.
absl::StatusOr<std::unique_ptr<operate::AdminSocket>> ServeMonitor(const v1::AdminConfig& config, EventLoop& loop,
                                                                   Controller& controller);

}  // namespace hedgerow
