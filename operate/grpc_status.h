// SPDX-License-Identifier: Apache-2.0
//
// absl::Status across gRPC: both use the canonical codes, so the number and the message are carried over as
// they are. Used by the administration's servers and clients. Pure.

#pragma once

#include <string>

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace hedgerow::operate {

inline grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

inline absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace hedgerow::operate
