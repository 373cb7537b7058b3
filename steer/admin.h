// SPDX-License-Identifier: Apache-2.0
//
// The administration service of a group, gRPC on <run dir>/NAME/admin.sock: the server of a supervisor, and the client of the
// command line.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <type_traits>

#include <grpcpp/grpcpp.h>

#include "absl/status/statusor.h"
#include "operate/admin_socket.h"
#include "operate/event_loop.h"
#include "operate/grpc_status.h"
#include "steer/api/steer.grpc.pb.h"
#include "steer/control.h"
#include "steer/settings.h"

namespace hedgerow::steer {

// `loop` and `control` must outlive it.
absl::StatusOr<std::unique_ptr<operate::AdminSocket>> ServeAdmin(const Places& places, EventLoop& loop, Control& control);

class AdminClient {
 public:
  using Stub = v1::Steer::Stub;
  template <typename Request, typename Reply>
  using Method = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&, Reply*);

  // Unavailable, in words, when no supervisor answers; PermissionDenied when this user may not ask.
  static absl::StatusOr<AdminClient> Connect(const Places& places);

  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Ask(Method<Request, Reply> method, const std::type_identity_t<Request>& request = {}) const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(15));
    Reply reply;
    const grpc::Status status = (stub_.get()->*method)(&context, request, &reply);
    if (!status.ok()) return operate::FromGrpc(status);
    return reply;
  }

 private:
  explicit AdminClient(std::unique_ptr<Stub> stub) : stub_(std::move(stub)) {}
  std::unique_ptr<Stub> stub_;
};

}  // namespace hedgerow::steer
