// SPDX-License-Identifier: Apache-2.0
//
// The gRPC administration server; see the header.

#include "proxy/admin/server.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "proxy/admin/grpc_status.h"
#include "proxy/api/admin.grpc.pb.h"
#include "net/unique_fd.h"

namespace hedgerow {
namespace {

// Longer than any call takes; a stuck loop must not hang the CLI for ever.
constexpr absl::Duration kCallTimeout = absl::Seconds(10);

class Service final : public v1::Admin::Service {
 public:
  Service(EventLoop& loop, Controller& controller) : loop_(loop), controller_(controller) {}

  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*, v1::Status* reply) override {
    return OnLoop<v1::Status>([this] { return controller_.Status(); }, *reply);
  }
  grpc::Status LeaderShow(grpc::ServerContext*, const v1::LeaderShowRequest* request,
                          v1::LeaderList* reply) override {
    return OnLoop<v1::LeaderList>([&] { return controller_.LeaderShow(request->service()); }, *reply);
  }
  grpc::Status LeaderSet(grpc::ServerContext*, const v1::LeaderSetRequest* request,
                         v1::Leader* reply) override {
    return OnLoop<v1::Leader>([&] { return controller_.LeaderSet(request->service(), request->backend()); },
                              *reply);
  }
  grpc::Status LeaderUnset(grpc::ServerContext*, const v1::LeaderUnsetRequest* request,
                           v1::Leader* reply) override {
    return OnLoop<v1::Leader>([&] { return controller_.LeaderUnset(request->service()); }, *reply);
  }
  grpc::Status Bypass(grpc::ServerContext*, const v1::BypassRequest* request, v1::BypassReply* reply) override {
    return OnLoop<v1::BypassReply>([&] { return controller_.Bypass(request->service(), request->on()); },
                                   *reply);
  }
  grpc::Status Down(grpc::ServerContext*, const v1::DownRequest*, v1::DownReply* reply) override {
    return OnLoop<v1::DownReply>([this] { return controller_.Down(); }, *reply);
  }

 private:
  template <typename T>
  grpc::Status OnLoop(std::function<absl::StatusOr<T>()> body, T& reply) {
    absl::StatusOr<T> result = loop_.Call<T>(kCallTimeout, std::move(body));
    if (!result.ok()) return ToGrpc(result.status());
    reply = *std::move(result);
    return grpc::Status::OK;
  }

  EventLoop& loop_;
  Controller& controller_;
};

class RunningServer final : public AdminServer {
 public:
  RunningServer(std::string path, EventLoop& loop, Controller& controller)
      : path_(std::move(path)), service_(loop, controller) {}

  ~RunningServer() override {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
    server_.reset();
    unlink(path_.c_str());
  }

  absl::Status Listen() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(absl::StrCat("unix:", path_), grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    builder.SetMaxReceiveMessageSize(64 * 1024);
    // A handful of administrators, not a fleet: one poller and few threads are plenty.
    builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
    builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
    grpc::ResourceQuota quota("admin");
    quota.SetMaxThreads(8);
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

 private:
  const std::string path_;
  Service service_;
  std::unique_ptr<grpc::Server> server_;
};

absl::Status MakeFolder(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot make the folder of the admin socket ", path, ": ", error.message()));
  }
  return absl::OkStatus();
}

// A socket that somebody answers on is another daemon's; anything that is no socket is not ours to replace.
absl::Status CheckFree(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return absl::OkStatus();
  if (!S_ISSOCK(info.st_mode)) {
    return absl::AlreadyExistsError(absl::StrCat("the admin socket's path ", path, " exists and is no socket"));
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  const net::UniqueFd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    return absl::AlreadyExistsError(absl::StrCat("another process listens on the admin socket ", path,
                                                 "; give this instance its own admin.socket"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(const std::string& socket_path, EventLoop& loop,
                                                                Controller& controller) {
  absl::Status status = MakeFolder(socket_path);
  if (status.ok()) status = CheckFree(socket_path);
  if (!status.ok()) return status;
  auto server = std::make_unique<RunningServer>(socket_path, loop, controller);
  status = server->Listen();
  if (!status.ok()) return status;
  return server;
}

}  // namespace hedgerow
