// SPDX-License-Identifier: Apache-2.0
//
// The command line's side of an administration socket (admin_socket.h): one short-lived connection for each command.
// The clients of hedgerowd, a node and a supervisor are made of it. Any thread.

#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "operate/grpc_status.h"

namespace hedgerow::operate {

template <typename Service>
class AdminClient {
 public:
  using Stub = typename Service::Stub;
  // A call of the service: &Stub::GetStatus.
  template <typename Request, typename Reply>
  using Method = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&, Reply*);
  // Longer than a program's own timeout with its loop, so that the program's words arrive.
  static constexpr absl::Duration kTimeout = absl::Seconds(15);

  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Ask(Method<Request, Reply> method, const std::type_identity_t<Request>& request = {},
                            absl::Duration within = kTimeout) const {
    Reply reply;
    grpc::ClientContext context;
    // By the monotonic clock: the wall clock may be set meanwhile.
    context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                      gpr_time_from_nanos(absl::ToInt64Nanoseconds(within), GPR_TIMESPAN)));
    const grpc::Status status = (stub().*method)(&context, request, &reply);
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED && !late_.empty())
      return absl::DeadlineExceededError(late_);
    if (!status.ok()) return FromGrpc(status);
    return reply;
  }

  Stub& stub() const { return *stub_; }

 protected:
  // `late`: what it means that no answer comes in time, where there is more to say than FromGrpc does.
  explicit AdminClient(const std::shared_ptr<grpc::Channel>& channel, std::string late = "")
      : stub_(Service::NewStub(channel)), late_(std::move(late)) {}

 private:
  std::unique_ptr<Stub> stub_;
  std::string late_;
};

}  // namespace hedgerow::operate
