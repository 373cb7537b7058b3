// SPDX-License-Identifier: Apache-2.0
//
// The administration client; see the header.

#include "proxy/admin/client.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <cstring>

#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "proxy/admin/grpc_status.h"
#include "proxy/api/admin.grpc.pb.h"
#include "net/unique_fd.h"

namespace hedgerow {
namespace {

class GrpcClient final : public AdminClient {
 public:
  explicit GrpcClient(const std::string& path)
      : stub_(v1::Admin::NewStub(
            grpc::CreateChannel(absl::StrCat("unix:", path), grpc::InsecureChannelCredentials()))) {}

  absl::StatusOr<v1::Status> GetStatus() override {
    return Ask<v1::Status>(&v1::Admin::Stub::GetStatus, v1::GetStatusRequest());
  }
  absl::StatusOr<v1::LeaderList> LeaderShow(const std::string& service) override {
    v1::LeaderShowRequest request;
    request.set_service(service);
    return Ask<v1::LeaderList>(&v1::Admin::Stub::LeaderShow, request);
  }
  absl::StatusOr<v1::Leader> LeaderSet(const std::string& service, const std::string& backend) override {
    v1::LeaderSetRequest request;
    request.set_service(service);
    request.set_backend(backend);
    return Ask<v1::Leader>(&v1::Admin::Stub::LeaderSet, request);
  }
  absl::StatusOr<v1::Leader> LeaderUnset(const std::string& service) override {
    v1::LeaderUnsetRequest request;
    request.set_service(service);
    return Ask<v1::Leader>(&v1::Admin::Stub::LeaderUnset, request);
  }
  absl::StatusOr<v1::BypassReply> Bypass(const std::string& service, bool on) override {
    v1::BypassRequest request;
    request.set_service(service);
    request.set_on(on);
    return Ask<v1::BypassReply>(&v1::Admin::Stub::Bypass, request);
  }
  absl::StatusOr<v1::DownReply> Down() override {
    return Ask<v1::DownReply>(&v1::Admin::Stub::Down, v1::DownRequest());
  }

 private:
  template <typename Reply, typename Method, typename Request>
  absl::StatusOr<Reply> Ask(Method method, const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(15));
    Reply reply;
    const grpc::Status status = ((*stub_).*method)(&context, request, &reply);
    if (!status.ok()) return FromGrpc(status);
    return reply;
  }

  std::unique_ptr<v1::Admin::Stub> stub_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AdminClient>> AdminClient::Connect(const std::string& socket_path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("the socket's path is too long: ", socket_path));
  }
  strncpy(address.sun_path, socket_path.c_str(), sizeof(address.sun_path) - 1);
  // gRPC would retry for seconds and then say little; a plain connect tells at once what is wrong.
  const net::UniqueFd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno == EACCES || errno == EPERM) {
      return absl::PermissionDeniedError(
          absl::StrCat("no permission to open ", socket_path, "; the daemon's owner (root) may"));
    }
    return absl::UnavailableError(
        absl::StrCat("hedgerowd is not running (nobody listens on ", socket_path, ": ", strerror(errno), ")"));
  }
  return std::make_unique<GrpcClient>(socket_path);
}

}  // namespace hedgerow
