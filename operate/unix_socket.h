// SPDX-License-Identifier: Apache-2.0
//
// A listening unix socket with the rights that it is to have from its first moment: for its owner, or for a group too.
// Used for administration (admin_socket) and for metrics (listen_address).
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "net/unique_fd.h"

namespace hedgerow::operate {

struct UnixSocketOptions {
  std::string what{};   // "admin socket", for the errors
  std::string hint{};   // what to do when another process has it: "give this node its own admin_socket"
  std::string group{};  // empty: for its owner, mode 0600; else for the members of this group too, a name or a number,
                        // mode 0660
  int backlog = 16;
};

// 0 if a process listens on the socket, else the errno of connect(2): ECONNREFUSED for the socket of a process that is
// gone. ENAMETOOLONG for a path that fits no socket address; EAGAIN if the process accepts nothing and its queue has
// been full for a second. Any thread.
int KnockOnUnixSocket(const std::string& path);

// Makes the socket's folder (mode 0755 less the umask) when it is missing. AlreadyExists when the path is no socket, or
// a live process answers on it; FailedPrecondition when it cannot be told which, or the folder cannot be made.
absl::Status PrepareUnixSocket(const std::string& path, const UnixSocketOptions& options);

// After PrepareUnixSocket(): a dead process's socket is replaced. FailedPrecondition when the group does not exist;
// Unavailable when it cannot listen there. The caller removes the file in the end.
absl::StatusOr<net::UniqueFd> ListenOnUnixSocket(const std::string& path, const UnixSocketOptions& options);

}  // namespace hedgerow::operate
