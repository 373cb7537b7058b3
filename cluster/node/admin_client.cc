// SPDX-License-Identifier: Apache-2.0
//
// The administration client; see the header.

#include "cluster/node/admin_client.h"

#include <errno.h>

#include <cstring>

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cluster/api/node.grpc.pb.h"
#include "cluster/node/grpc_status.h"
#include "cluster/node/unix_socket.h"

namespace hedgerow::node {
namespace {

class GrpcClient final : public AdminClient {
 public:
  GrpcClient(const std::string& path, absl::Duration patience)
      : patience_(patience),
        stub_(v1::NodeAdmin::NewStub(
            grpc::CreateChannel(absl::StrCat("unix:", path), grpc::InsecureChannelCredentials()))) {}

  absl::StatusOr<v1::NodeStatus> GetStatus() override {
    v1::NodeStatus reply;
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + patience_));
    const grpc::Status status = stub_->GetStatus(&context, v1::GetStatusRequest(), &reply);
    if (!status.ok()) return FromGrpc(status);
    return reply;
  }

  absl::Status Transfer(raft::NodeId target) override {
    v1::TransferRequest request;
    request.set_target(target.value());
    v1::TransferReply reply;
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + patience_));
    return FromGrpc(stub_->Transfer(&context, request, &reply));
  }

 private:
  const absl::Duration patience_;
  std::unique_ptr<v1::NodeAdmin::Stub> stub_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AdminClient>> AdminClient::Connect(const std::string& socket_path,
                                                                  absl::Duration patience) {
  const int error = KnockOnUnixSocket(socket_path);
  if (error == ENAMETOOLONG) {
    return absl::InvalidArgumentError(absl::StrCat("the socket's path is too long: ", socket_path));
  }
  if (error == EACCES || error == EPERM) {
    return absl::PermissionDeniedError(
        absl::StrCat("no permission to open ", socket_path, "; the node's user and root may"));
  }
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat("hedgerow-node is not running (nobody listens on ", socket_path,
                                               ": ", strerror(error), ")"));
  }
  return std::make_unique<GrpcClient>(socket_path, patience);
}

}  // namespace hedgerow::node
