// SPDX-License-Identifier: Apache-2.0
//
// The CLI's side of the administration socket.

#pragma once

#include <atomic>
#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/sync_stream.h>

#include "absl/status/statusor.h"
#include "operate/admin_client.h"
#include "proxy/api/admin.grpc.pb.h"

namespace hedgerow {

class AdminClient : public operate::AdminClient<v1::Admin> {
 public:
  // Unavailable, saying so in words, when no daemon answers on the socket; PermissionDenied when this user may
  // not open it.
  static absl::StatusOr<AdminClient> Connect(const std::string& socket_path);

 private:
  using operate::AdminClient<v1::Admin>::AdminClient;
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
