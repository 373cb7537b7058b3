// SPDX-License-Identifier: Apache-2.0
//
// absl::Status across gRPC: both use the canonical codes, so the number and the message are carried over as
// they are. A call that a service does not have is refused in words. Used by the administration's servers and clients.
// Pure.

#pragma once

#include <string>

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "absl/strings/match.h"

namespace hedgerow::operate {

inline grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

inline absl::Status FromGrpc(const grpc::Status& status) {
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED && status.error_message().empty()) {
    return absl::PermissionDeniedError(
        "this socket does not serve that command: it is one for monitoring, or the program behind it is of an earlier version");
  }
  // The words of gRPC's library name neither a cause nor what to do.
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED && status.error_message() == "Deadline Exceeded") {
    return absl::DeadlineExceededError(
        "no answer in time: the program runs and its socket takes calls, but its process is stopped (SIGSTOP, a debugger) or its host hangs");
  }
  // Its queue of connections is full (connect(2) says EAGAIN, and gRPC reads from the socket all the same): it runs.
  if (absl::StrContains(status.error_message(), "failed to connect to all addresses") &&
      (absl::StrContains(status.error_message(), "Resource temporarily unavailable") ||
       absl::StrContains(status.error_message(), "recvmsg:Invalid argument")))
    return absl::DeadlineExceededError(
        "the program runs and accepts no connection: its process is stopped (SIGSTOP, a debugger), or its host is overloaded");
  const bool unavailable = status.error_code() == grpc::StatusCode::UNAVAILABLE;
  if (unavailable && absl::StrContains(status.error_message(), "failed to connect to all addresses"))
    return absl::UnavailableError("the program has just ended: nothing answers on its socket");
  if (unavailable &&
      (status.error_message() == "Socket closed" || absl::StrContains(status.error_message(), "Connection reset")))
    return absl::UnavailableError("the program ended before it answered: what was asked may be done or not");
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace hedgerow::operate
