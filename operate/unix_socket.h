// SPDX-License-Identifier: Apache-2.0
//
// Tells whether a process listens on a unix socket. The administration server asks before it takes the path.
// The command line asks because gRPC would retry for seconds and then say little.

#ifndef HEDGEROW_OPERATE_UNIX_SOCKET_H_
#define HEDGEROW_OPERATE_UNIX_SOCKET_H_

#include <string>

namespace hedgerow::operate {

// 0 if a process listens there, else the errno of connect(2): ECONNREFUSED for the socket of a process that is
// gone. ENAMETOOLONG for a path that fits no socket address. Waits while the other side's queue is full. Any
// thread.
int KnockOnUnixSocket(const std::string& path);

}  // namespace hedgerow::operate

#endif  // HEDGEROW_OPERATE_UNIX_SOCKET_H_
