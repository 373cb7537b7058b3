// SPDX-License-Identifier: Apache-2.0
//
// Administration by gRPC over a unix socket that only its owner may open: what the daemon's and the node's
// servers and clients share. Each has a service of its own (proxy/admin/server.cc,
// cluster/node/admin/admin_server.cc).

#pragma once

#include <memory>
#include <string>
#include <utility>

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/service_type.h>

#include "absl/status/statusor.h"

namespace hedgerow::operate {

class AdminSocket {
 public:
  struct Options {
    // A call holds a thread while it waits; with none left gRPC answers RESOURCE_EXHAUSTED.
    int threads_max = 0;
    // Longer requests are answered with RESOURCE_EXHAUSTED.
    int request_max_bytes = 0;
    // What to do when another process has the socket: "give this node its own admin_socket".
    std::string hint{};
  };

  // Serves `service` on gRPC's own threads. Makes the socket's folder (mode 0755 less the umask) when it is
  // missing. AlreadyExists when a live process answers on the socket, or when the path is no socket; a dead
  // process's socket is replaced; FailedPrecondition when it cannot be told which, or the folder cannot be
  // made; Unavailable when gRPC cannot listen there. Sets the process's umask for a moment: call it before
  // there are threads that make files for others.
  static absl::StatusOr<std::unique_ptr<AdminSocket>> Listen(const std::string& path,
                                                             std::unique_ptr<grpc::Service> service,
                                                             const Options& options);
  // Lets calls under way finish, then removes the socket. After one second it cancels the calls, but it still
  // waits for a call whose handler waits.
  ~AdminSocket();

 private:
  AdminSocket(std::string path, std::unique_ptr<grpc::Service> service)
      : path_(std::move(path)), service_(std::move(service)) {}
  absl::Status Start(const Options& options);

  const std::string path_;
  const std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<grpc::Server> server_;
};

// 0 if a process listens on the socket, else the errno of connect(2): ECONNREFUSED for the socket of a process that is
// gone. ENAMETOOLONG for a path that fits no socket address. Waits while the other side's queue is full. Any thread.
int KnockOnUnixSocket(const std::string& path);

// The server's side, as the errors of OpenAdminChannel name it.
struct AdminPeer {
  std::string program;  // "hedgerowd"
  std::string who_may;  // "the daemon's owner (root) may": open the socket
};

// A client's channel. Unavailable, saying so in words, when no process listens on the socket; PermissionDenied
// when this user may not open it; InvalidArgument for a path that fits no socket. Any thread.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenAdminChannel(const std::string& path, const AdminPeer& peer);

}  // namespace hedgerow::operate
