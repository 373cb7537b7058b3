// SPDX-License-Identifier: Apache-2.0
//
// A node's administration: gRPC (cluster/api/node.proto) on a unix socket of mode 0600. Calls run on gRPC's own
// threads and ask the loop through NodeControl. Built by main, and by tests with a fake NodeControl.

#ifndef HEDGEROW_CLUSTER_NODE_ADMIN_SERVER_H_
#define HEDGEROW_CLUSTER_NODE_ADMIN_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cluster/node/status.h"
#include "cluster/node/status_message.h"

namespace hedgerow::node {

class AdminServer {
 public:
  // Makes the socket's folder (mode 0755 less the umask) when it is missing.
  // AlreadyExists when a live process answers on the socket, or when the path is no
  // socket; a dead process's socket is replaced. `control` must outlive the server. Sets
  // the process's umask for a moment: start it before threads that make files for others.
  static absl::StatusOr<std::unique_ptr<AdminServer>> Start(const std::string& socket_path,
                                                            NodeControl& control, NodeFacts facts);
  // Lets calls under way finish (those that wait for the loop take as long as NodeControl lets them) and
  // removes the socket.
  virtual ~AdminServer() = default;
};

}  // namespace hedgerow::node

#endif  // HEDGEROW_CLUSTER_NODE_ADMIN_SERVER_H_
