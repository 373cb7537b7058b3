// SPDX-License-Identifier: Apache-2.0
//
// Whether anybody answers on a unix socket: asked by the administration server before it takes the path, and by
// the command line, because gRPC would retry for seconds and then say little.

#ifndef HEDGEROW_CLUSTER_NODE_UNIX_SOCKET_H_
#define HEDGEROW_CLUSTER_NODE_UNIX_SOCKET_H_

#include <string>

namespace hedgerow::node {

// 0 if somebody accepts connections there, else the errno of
// connect(2); ENAMETOOLONG for a path that fits no socket address.
int KnockOnUnixSocket(const std::string& path);

}  // namespace hedgerow::node

#endif  // HEDGEROW_CLUSTER_NODE_UNIX_SOCKET_H_
