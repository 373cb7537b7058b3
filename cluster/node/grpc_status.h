// SPDX-License-Identifier: Apache-2.0
//
// absl::Status across gRPC: both use the canonical codes, so the
// number and the message are carried over as they are.

#ifndef HEDGEROW_CLUSTER_NODE_GRPC_STATUS_H_
#define HEDGEROW_CLUSTER_NODE_GRPC_STATUS_H_

#include <string>

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace hedgerow::node {

inline grpc::Status ToGrpc(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

inline absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

}  // namespace hedgerow::node

#endif  // HEDGEROW_CLUSTER_NODE_GRPC_STATUS_H_
