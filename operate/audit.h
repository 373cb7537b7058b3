// SPDX-License-Identifier: Apache-2.0
//
// A line in the program's log for each change that was asked for over the administration socket: the user and process
// that asked, the command with its arguments, and what came of it. Called by the services of both programs.

#pragma once

#include <functional>
#include <string>

#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>

#include "operate/admin_socket.h"

namespace hedgerow::operate {

using AuditLog = std::function<void(const std::string&)>;

// "audit: user root (0), process 4711: Drain {"backend":"b","service":"","on":true}: done". The command is the
// request's name without "Request". Without secrets: of bytes the length alone is written, and nothing of a text whose
// name says that it is a key or a secret. One line, of at most some 2,000 characters, whatever is in the request. Pure
// but for reading /etc/passwd.
// `reply`: where it lists `problems`, these are what came of the command.
std::string AuditLine(const Asker& asker, const google::protobuf::Message& request, const grpc::Status& result,
                      const google::protobuf::Message* reply = nullptr);

// Writes the line and returns the result, for handlers that end with it.
inline grpc::Status Audited(const AuditLog& log, const grpc::ServerContext& context,
                            const google::protobuf::Message& request, grpc::Status result,
                            const google::protobuf::Message* reply = nullptr) {
  log(AuditLine(AskerOf(context), request, result, reply));
  return result;
}

}  // namespace hedgerow::operate
