// SPDX-License-Identifier: Apache-2.0
//
// The gRPC side of administration: a unix socket of mode 0600, whose calls run
// on the daemon's event loop. Built by the daemon, and by tests with a fake
// data plane.

#ifndef HEDGEROW_PROXY_ADMIN_SERVER_H_
#define HEDGEROW_PROXY_ADMIN_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "proxy/admin/controller.h"
#include "proxy/daemon/event_loop.h"

namespace hedgerow {

class AdminServer {
 public:
  // Makes the socket's folder (mode 0755) when it is missing. AlreadyExists when a live process answers on the
  // socket; a dead one's socket is replaced. `loop` and `controller` must outlive the server.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(const std::string& socket_path, EventLoop& loop,
                                                            Controller& controller);
  // Lets calls under way finish (at most a second) and removes the socket.
  virtual ~AdminServer() = default;
};

}  // namespace hedgerow

#endif  // HEDGEROW_PROXY_ADMIN_SERVER_H_
