// SPDX-License-Identifier: Apache-2.0
//
// A node's administration: gRPC (cluster/api/node.proto) on a unix socket of mode 0600. Calls run on gRPC's own
// threads and ask the loop through NodeControl. Built by main, and by tests with a fake NodeControl.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cluster/node/status/status.h"
#include "cluster/node/status/status_message.h"
#include "operate/admin_socket.h"

namespace hedgerow::node {

// Serves the socket until the result's end, which waits for calls that wait for the loop, as long as
// NodeControl lets them. Errors are those of operate::AdminSocket::Listen. `control` must outlive it. Call it
// before there are threads that make files for others.
absl::StatusOr<std::unique_ptr<operate::AdminSocket>> ServeAdmin(const std::string& socket_path,
                                                                 NodeControl& control, NodeFacts facts);

}  // namespace hedgerow::node
