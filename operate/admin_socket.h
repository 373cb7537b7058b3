// SPDX-License-Identifier: Apache-2.0
//
// Administration by gRPC over unix sockets: what the daemon's and the node's servers and clients share. A program has
// one socket for its owner, and may have a second one for a group, which serves the calls that change nothing. Each
// program has services of its own (proxy/admin/server.cc, cluster/node/admin/admin_server.cc).

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <sys/types.h>

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/service_type.h>

#include "absl/status/statusor.h"
#include "operate/unix_socket.h"

namespace hedgerow::operate {

// The process that asks, as the kernel knew it when it connected (SO_PEERCRED, unix(7)).
struct Asker {
  pid_t pid = 0;
  uid_t uid = static_cast<uid_t>(-1);
};

// Of a call that came in by an AdminSocket, also when its client is gone meanwhile. Any thread.
Asker AskerOf(const grpc::ServerContext& context);

class AdminSocket {
 public:
  // Connections at a time, of all sockets for owners in this process and of all for groups, or fewer where the process
  // may have less than 512 descriptors. What comes beyond is closed at once, counted (Refused) and logged. gRPC aborts
  // a process that has no descriptors left, so no asker may take them all.
  static constexpr int kOwnerConnections = 64;
  static constexpr int kGroupConnections = 32;

  struct Options {
    // A call holds a thread while it waits; with none left gRPC answers RESOURCE_EXHAUSTED.
    int threads_max = 0;
    // Longer requests are answered with RESOURCE_EXHAUSTED.
    int request_max_bytes = 0;
    // What to do when another process has the socket: "give this node its own admin_socket".
    std::string hint{};
    // Empty: the socket is for its owner, mode 0600. Else for the members of this group too, a name or a number, mode
    // 0660.
    std::string group{};
    // Takes a line for the program's log; on a thread of the socket's own.
    std::function<void(const std::string&)> log = [](const std::string&) {};
  };

  // Serves `service` on gRPC's own threads. Makes the socket's folder (mode 0755 less the umask) when it is
  // missing. AlreadyExists when a live process answers on the socket, or when the path is no socket; a dead
  // process's socket is replaced; FailedPrecondition when it cannot be told which, the folder cannot be made, or the
  // group does not exist; Unavailable when it cannot listen there. A socket that is removed is made again within
  // seconds.
  static absl::StatusOr<std::unique_ptr<AdminSocket>> Listen(const std::string& path,
                                                             std::unique_ptr<grpc::Service> service,
                                                             const Options& options);
  // For the group of `options`: at `configured`, or by default beside the owner's socket `admin`, where there is such a
  // group. Null: none is wanted, or the program's user may not give the default one to the group, which the log says.
  static absl::StatusOr<std::unique_ptr<AdminSocket>> ListenForGroup(const std::string& configured,
                                                                     const std::string& admin,
                                                                     std::unique_ptr<grpc::Service> service,
                                                                     const Options& options);
  // Lets calls under way finish, then removes the socket. After one second it cancels the calls, but it still
  // waits for a call whose handler waits.
  ~AdminSocket();

  // Connections that found no place, of all sockets of this kind that the process has had: for its metrics. Any thread.
  enum class For { kOwner, kGroup };
  static uint64_t Refused(For kind);

 private:
  AdminSocket(std::string path, std::unique_ptr<grpc::Service> service, Options options)
      : path_(std::move(path)), options_(std::move(options)), service_(std::move(service)) {}
  static UnixSocketOptions SocketOptions(const Options& options);
  absl::Status Bind();
  absl::Status Start();
  void Accept();
  void ListenAgain();
  void Place(int connection);

  const std::string path_;
  const Options options_;
  const std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<grpc::Server> server_;
  int listening_ = -1;
  int first_ = 0;  // the numbers that its connections have: from this one
  int end_ = 0;    // to the one before this
  int next_ = 0;
  uint64_t refused_ = 0;  // the acceptor's
  std::atomic<bool> ending_ = false;
  std::thread acceptor_;
};

// The server's side, as the errors of OpenAdminChannel name it.
struct AdminPeer {
  std::string program;  // "hedgerowd"
  std::string who_may;  // "the daemon's owner (root) may": open the socket
  std::string hint;     // how it is started
};

// A client's channel. Unavailable, saying so in words, when no process listens on the socket; PermissionDenied
// when this user may not open it; InvalidArgument for a path that fits no socket. Any thread.
absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenAdminChannel(const std::string& path, const AdminPeer& peer);

}  // namespace hedgerow::operate
