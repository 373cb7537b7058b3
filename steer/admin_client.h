// SPDX-License-Identifier: Apache-2.0
//
// The client of a supervisor's administration service (admin.h). Used by the command line, and by hedgerowd for its
// page.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "absl/status/statusor.h"
#include "operate/grpc_status.h"
#include "steer/api/steer.grpc.pb.h"
#include "steer/settings.h"

namespace hedgerow::steer {

// The groups of a run folder, by name.
std::vector<std::string> ListGroups(const std::string& run_dir);

class AdminClient {
 public:
  using Stub = v1::Steer::Stub;
  template <typename Request, typename Reply>
  using Method = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&, Reply*);

  // Unavailable, in words, when no supervisor answers; PermissionDenied when this user may not ask.
  static absl::StatusOr<AdminClient> Connect(const Places& places) {
    return Open(places.admin(), "the supervisor's own user and root may");
  }
  // The same, for `show` alone, and for members of kMonitorGroup as well.
  static absl::StatusOr<AdminClient> ConnectToMonitor(const Places& places) {
    return Open(places.monitor(), "members of the group hedgerow-monitor and root may");
  }

  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Ask(Method<Request, Reply> method, const std::type_identity_t<Request>& request = {},
                            std::chrono::milliseconds patience = std::chrono::seconds(15)) const {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + patience);
    Reply reply;
    const grpc::Status status = (stub_.get()->*method)(&context, request, &reply);
    if (!status.ok()) return operate::FromGrpc(status);
    return reply;
  }

 private:
  static absl::StatusOr<AdminClient> Open(const std::string& path, const std::string& who_may);
  explicit AdminClient(std::unique_ptr<Stub> stub) : stub_(std::move(stub)) {}
  std::unique_ptr<Stub> stub_;
};

}  // namespace hedgerow::steer
