// SPDX-License-Identifier: Apache-2.0
//
// A node's administration: gRPC (cluster/api/node.proto) on a unix socket of mode 0600, and what changes nothing on one
// for a group that monitors. Calls run on gRPC's own
// threads and ask the loop through NodeControl. Built by main, and by tests with a fake NodeControl.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cluster/node/config/config.h"
#include "cluster/node/status/status.h"
#include "cluster/node/status/status_message.h"
#include "operate/admin_socket.h"

namespace hedgerow::node {

// Serves the socket until the result's end, which waits for calls that wait for the loop, as long as
// NodeControl lets them. Errors are those of operate::AdminSocket::Listen. `control` must outlive it.
absl::StatusOr<std::unique_ptr<operate::AdminSocket>> ServeAdmin(const std::string& socket_path, NodeControl& control,
                                                                 NodeFacts facts);

// Where it is: what the configuration says, or beside `admin_socket` (operate/unix_socket.h). Empty: there is none.
std::string MonitorSocketOf(const NodeConfig& config);
// The calls that change nothing, for the group that the configuration names. Null where it names no socket. The rest as
// above.
absl::StatusOr<std::unique_ptr<operate::AdminSocket>> ServeMonitor(const NodeConfig& config, NodeControl& control,
                                                                   NodeFacts facts);

}  // namespace hedgerow::node
