// SPDX-License-Identifier: Apache-2.0
//
// For tests of an administration service: asks for every call that its .proto has, so that a new one cannot be
// forgotten.

#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>

#include <google/protobuf/descriptor.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"

namespace hedgerow::operate {

// Each method's status by its name, for an empty request and a patience of 300 ms: a call that streams ends with
// DEADLINE_EXCEEDED.
inline std::map<std::string, grpc::Status> CallEach(const std::shared_ptr<grpc::Channel>& channel,
                                                    const google::protobuf::ServiceDescriptor& service) {
  std::map<std::string, grpc::Status> found;
  grpc::GenericStub stub(channel);
  for (int i = 0; i < service.method_count(); ++i) {
    const std::string name = service.method(i)->name();
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(300));
    grpc::CompletionQueue queue;
    grpc::ByteBuffer empty(nullptr, 0);
    grpc::ByteBuffer reply;
    grpc::Status status;
    const auto call = stub.PrepareUnaryCall(&context, absl::StrCat("/", service.full_name(), "/", name), empty, &queue);
    call->StartCall();
    call->Finish(&reply, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    found[name] = status;
  }
  return found;
}

// Whether the service does not have the call at all; a handler that refuses says why.
inline bool IsMissing(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNIMPLEMENTED && status.error_message().empty();
}

}  // namespace hedgerow::operate
