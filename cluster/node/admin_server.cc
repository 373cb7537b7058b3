// SPDX-License-Identifier: Apache-2.0
//
// The gRPC administration server; see the header.

#include "cluster/node/admin_server.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "cluster/api/node.grpc.pb.h"
#include "cluster/node/grpc_status.h"
#include "cluster/node/unix_socket.h"

namespace hedgerow::node {
namespace {

// A handful of administrators, not a fleet. A call holds a thread while it waits for the loop; with none left
// gRPC answers RESOURCE_EXHAUSTED.
constexpr int kThreadsMax = 32;
constexpr int kRequestMax_bytes = 4096;

class Service final : public v1::NodeAdmin::Service {
 public:
  Service(NodeControl& control, NodeFacts facts) : control_(control), facts_(std::move(facts)) {}

  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*, v1::NodeStatus* reply) override {
    const absl::StatusOr<NodeStatus> status = control_.Status();
    if (!status.ok()) return ToGrpc(status.status());
    *reply = ToMessage(*status, facts_);
    return grpc::Status::OK;
  }

  grpc::Status Transfer(grpc::ServerContext*, const v1::TransferRequest* request, v1::TransferReply*) override {
    return ToGrpc(control_.Transfer(raft::NodeId(request->target())));
  }

 private:
  NodeControl& control_;
  const NodeFacts facts_;
};

class RunningServer final : public AdminServer {
 public:
  RunningServer(std::string path, NodeControl& control, NodeFacts facts)
      : path_(std::move(path)), service_(control, std::move(facts)) {}

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
    builder.SetMaxReceiveMessageSize(kRequestMax_bytes);
    builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
    builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
    grpc::ResourceQuota quota("admin");
    quota.SetMaxThreads(kThreadsMax);
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
  if (!error) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("cannot make the folder of the admin socket ", path, ": ", error.message()));
}

// A socket that somebody answers on is another process's; anything that is no socket is not ours to replace.
absl::Status CheckFree(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return absl::OkStatus();
  if (!S_ISSOCK(info.st_mode)) {
    return absl::AlreadyExistsError(absl::StrCat("the admin socket's path ", path, " exists and is no socket"));
  }
  if (KnockOnUnixSocket(path) == 0) {
    return absl::AlreadyExistsError(absl::StrCat("another process listens on the admin socket ", path,
                                                 "; give this node its own admin_socket"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(const std::string& socket_path,
                                                                NodeControl& control, NodeFacts facts) {
  absl::Status status = MakeFolder(socket_path);
  if (status.ok()) status = CheckFree(socket_path);
  if (!status.ok()) return status;
  auto server = std::make_unique<RunningServer>(socket_path, control, std::move(facts));
  status = server->Listen();
  if (!status.ok()) return status;
  return server;
}

}  // namespace hedgerow::node
