// SPDX-License-Identifier: Apache-2.0
//
// A message as JSON on one line, for the commands that print an object a line:
// top and trace. A failure is such a line, too.

#ifndef HEDGEROW_PROXY_CLI_JSON_LINE_H_
#define HEDGEROW_PROXY_CLI_JSON_LINE_H_

#include <string>

#include <google/protobuf/message.h>

#include "config/json.h"
#include "proxy/cli/command.h"

namespace hedgerow::cli {

// With a final newline. Pure.
inline std::string JsonLine(const google::protobuf::Message& message) {
  const std::string text = ToJson(message);
  std::string line;
  // Within strings newlines are quoted: each one here is the writer's, with its indentation behind it.
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\n') {
      line += text[i];
      continue;
    }
    while (i + 1 < text.size() && text[i + 1] == ' ') ++i;
    if (!line.empty() && line.back() == ',') line += ' ';
  }
  return line + "\n";
}

// As Call::Fail().
inline int FailOnALine(const Call& call, const absl::Status& status) {
  if (!call.arguments.json()) return call.Fail(status);
  operate::v1::Failure failure;
  failure.set_error(std::string(status.message()));
  failure.set_exit_code(operate::ExitCodeOf(status));
  call.out << JsonLine(failure);
  return failure.exit_code();
}

}  // namespace hedgerow::cli

#endif  // HEDGEROW_PROXY_CLI_JSON_LINE_H_
