// SPDX-License-Identifier: Apache-2.0
#include "operate/admin_socket.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hedgerow::operate {
namespace {

absl::Status MakeFolder(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("cannot make the folder of the admin socket ", path, ": ", error.message()));
}

// A socket on which a process accepts connections is another process's. A file that is no socket is not ours to
// replace.
absl::Status CheckFree(const std::string& path, const std::string& hint) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return absl::OkStatus();
  if (!S_ISSOCK(info.st_mode)) {
    return absl::AlreadyExistsError(absl::StrCat("the admin socket's path ", path, " exists and is no socket"));
  }
  const int error = KnockOnUnixSocket(path);
  if (error == 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("another process listens on the admin socket ", path, "; ", hint));
  }
  // Refused, or gone since: no process listens. After any other error a process may well listen, because the
  // socket may be another user's or of another kind.
  if (error == ECONNREFUSED || error == ENOENT) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("cannot tell whether another process listens on the admin socket ", path, " (",
                   strerror(error), "); ", hint));
}

}  // namespace

int KnockOnUnixSocket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return ENAMETOOLONG;
  memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const int error = connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ? 0 : errno;
  close(fd);
  return error;
}

AdminSocket::~AdminSocket() {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  server_.reset();
  // gRPC does it too, but promises nowhere that it has when the server is gone.
  unlink(path_.c_str());
}

absl::Status AdminSocket::Start(const Options& options) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort(absl::StrCat("unix:", path_), grpc::InsecureServerCredentials());
  builder.RegisterService(service_.get());
  builder.SetMaxReceiveMessageSize(options.request_max_bytes);
  // A handful of administrators, not a fleet: one queue and few threads are plenty.
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
  grpc::ResourceQuota quota("admin");
  quota.SetMaxThreads(options.threads_max);
  builder.SetResourceQuota(quota);
  // The socket must never exist with a wider mode, not even for a moment.
  const mode_t before = umask(0177);
  server_ = builder.BuildAndStart();
  umask(before);
  if (server_ == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot listen on the admin socket ", path_));
  }
  if (chmod(path_.c_str(), 0600) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("chmod of ", path_));
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<AdminSocket>> AdminSocket::Listen(const std::string& path,
                                                                 std::unique_ptr<grpc::Service> service,
                                                                 const Options& options) {
  absl::Status status = MakeFolder(path);
  if (status.ok()) status = CheckFree(path, options.hint);
  if (!status.ok()) return status;
  std::unique_ptr<AdminSocket> server(new AdminSocket(path, std::move(service)));
  status = server->Start(options);
  if (!status.ok()) return status;
  return server;
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> OpenAdminChannel(const std::string& path,
                                                                const AdminPeer& peer) {
  // gRPC would retry for seconds and then say little; a plain connection tells at once what is wrong.
  const int error = KnockOnUnixSocket(path);
  if (error == ENAMETOOLONG) {
    return absl::InvalidArgumentError(absl::StrCat("the socket's path is too long: ", path));
  }
  if (error == EACCES || error == EPERM) {
    return absl::PermissionDeniedError(absl::StrCat("no permission to open ", path, "; ", peer.who_may));
  }
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat(peer.program, " is not running (nobody listens on ", path, ": ", strerror(error), ")"));
  }
  return grpc::CreateChannel(absl::StrCat("unix:", path), grpc::InsecureChannelCredentials());
}

}  // namespace hedgerow::operate
