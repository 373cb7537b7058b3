// SPDX-License-Identifier: Apache-2.0
//
// The administration client; see the header.

#include "proxy/admin/client.h"

#include <atomic>
#include <chrono>

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/sync_stream.h>

#include "operate/admin_socket.h"
#include "operate/grpc_status.h"
#include "proxy/api/admin.grpc.pb.h"

namespace hedgerow {
namespace {

class GrpcTraceCall final : public TraceCall {
 public:
  GrpcTraceCall(v1::Admin::Stub& stub, const v1::TraceRequest& request)
      : reader_(stub.Trace(&context_, request)) {}

  bool Next(v1::TraceReply& reply) override { return reader_->Read(&reply); }
  void Cancel() override {
    cancelled_ = true;
    context_.TryCancel();
  }
  absl::Status Finish() override {
    const grpc::Status status = reader_->Finish();
    return status.ok() || cancelled_ ? absl::OkStatus() : operate::FromGrpc(status);
  }

 private:
  grpc::ClientContext context_;
  std::atomic<bool> cancelled_{false};
  std::unique_ptr<grpc::ClientReader<v1::TraceReply>> reader_;
};

class GrpcClient final : public AdminClient {
 public:
  explicit GrpcClient(const std::shared_ptr<grpc::Channel>& channel) : stub_(v1::Admin::NewStub(channel)) {}

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
  absl::StatusOr<v1::DryRunReply> DryRun(const std::string& service, bool on) override {
    v1::DryRunRequest request;
    request.set_service(service);
    request.set_on(on);
    return Ask<v1::DryRunReply>(&v1::Admin::Stub::DryRun, request);
  }
  absl::StatusOr<v1::DrainReply> Drain(const std::string& backend, const std::string& service,
                                       bool on) override {
    v1::DrainRequest request;
    request.set_backend(backend);
    request.set_service(service);
    request.set_on(on);
    return Ask<v1::DrainReply>(&v1::Admin::Stub::Drain, request);
  }
  absl::StatusOr<v1::ReloadReply> Reload(bool dry_run, const std::string& file) override {
    v1::ReloadRequest request;
    request.set_dry_run(dry_run);
    request.set_file(file);
    return Ask<v1::ReloadReply>(&v1::Admin::Stub::Reload, request);
  }
  absl::StatusOr<v1::DownReply> Down() override {
    return Ask<v1::DownReply>(&v1::Admin::Stub::Down, v1::DownRequest());
  }
  absl::StatusOr<v1::Counts> GetCounts() override {
    return Ask<v1::Counts>(&v1::Admin::Stub::GetCounts, v1::GetCountsRequest());
  }
  std::unique_ptr<TraceCall> Trace(const v1::TraceRequest& request) override {
    return std::make_unique<GrpcTraceCall>(*stub_, request);
  }

 private:
  template <typename Reply, typename Method, typename Request>
  absl::StatusOr<Reply> Ask(Method method, const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(15));
    Reply reply;
    const grpc::Status status = ((*stub_).*method)(&context, request, &reply);
    if (!status.ok()) return operate::FromGrpc(status);
    return reply;
  }

  std::unique_ptr<v1::Admin::Stub> stub_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AdminClient>> AdminClient::Connect(const std::string& socket_path) {
  const auto channel = operate::OpenAdminChannel(
      socket_path, {.program = "hedgerowd", .who_may = "the daemon's owner (root) may"});
  if (!channel.ok()) return channel.status();
  return std::make_unique<GrpcClient>(*channel);
}

}  // namespace hedgerow
