// SPDX-License-Identifier: Apache-2.0
//
// A protobuf message as JSON for the CLI's `--json` and the live page. Unlike protobuf's own
// mapping, 64-bit integers are numbers (ours stay below 2^53), names keep
// their snake_case, and every field is printed, zeros too: a reader never has
// to guess a default.

#pragma once

#include <string>

#include <google/protobuf/message.h>

namespace hedgerow {

// Indented by two spaces, with a final newline.
std::string ToJson(const google::protobuf::Message& message);

// The same on one line, for commands that print an object a line. With a final newline.
std::string ToJsonLine(const google::protobuf::Message& message);

// The same for programs that ask every second: without a blank or line feed.
std::string ToCompactJson(const google::protobuf::Message& message);

}  // namespace hedgerow
