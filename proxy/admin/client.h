// SPDX-License-Identifier: Apache-2.0
//
// The CLI's side of the administration socket: one short-lived connection per
// command.

#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <type_traits>

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/sync_stream.h>

#include "absl/status/statusor.h"
#include "operate/grpc_status.h"
#include "proxy/api/admin.grpc.pb.h"

namespace hedgerow {

class AdminClient {
 public:
  using Stub = v1::Admin::Stub;
  // A call of the service: &AdminClient::Stub::GetStatus.
  template <typename Request, typename Reply>
  using Method = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&, Reply*);

  // Unavailable, saying so in words, when no daemon answers on the socket; PermissionDenied when this user may
  // not open it.
  static absl::StatusOr<AdminClient> Connect(const std::string& socket_path);

  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Ask(Method<Request, Reply> method, const std::type_identity_t<Request>& request = {},
                            std::chrono::milliseconds within = std::chrono::seconds(15)) const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + within);
    Reply reply;
    const grpc::Status status = (stub().*method)(&context, request, &reply);
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      return absl::DeadlineExceededError(
          "hedgerowd has the socket and does not answer in time: its process is stopped, or the host is overloaded. "
          "The kernel part works on meanwhile");
    }
    if (!status.ok()) return operate::FromGrpc(status);
    return reply;
  }

  Stub& stub() const { return *stub_; }

 private:
  explicit AdminClient(std::unique_ptr<Stub> stub) : stub_(std::move(stub)) {}

  std::unique_ptr<Stub> stub_;
};

// A trace under way.
class TraceCall {
 public:
  // The client must outlive it.
  TraceCall(const AdminClient& client, const v1::TraceRequest& request)
      : reader_(client.stub().Trace(&context_, request)) {}

  // Waits for the next reply; false at the end.
  bool Next(v1::TraceReply& reply) { return reader_->Read(&reply); }
  // From any thread: Next() returns false soon.
  void Cancel() {
    cancelled_ = true;
    context_.TryCancel();
  }
  // Once, after Next() said false: how it ended; OK when we cancelled it.
  absl::Status Finish() {
    const grpc::Status status = reader_->Finish();
    return status.ok() || cancelled_ ? absl::OkStatus() : operate::FromGrpc(status);
  }

 private:
  grpc::ClientContext context_;
  std::atomic<bool> cancelled_{false};
  std::unique_ptr<grpc::ClientReader<v1::TraceReply>> reader_;
};

}  // namespace hedgerow
