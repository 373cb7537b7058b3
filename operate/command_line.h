// SPDX-License-Identifier: Apache-2.0
//
// What `hedgerow` and `hedgerow-node` share as programs of many commands: finding the command, refusing options
// that it does not take, help, and how results and failures are printed, as text or with --json. proxy/cli and
// cluster/node fill in a Program; their main.cc calls Run.

#pragma once

#include <ostream>
#include <string>
#include <vector>

#include <google/protobuf/message.h>
#include <google/protobuf/repeated_field.h>

#include "absl/status/status.h"
#include "config/diagnostics.h"
#include "operate/arguments.h"
#include "operate/exit_code.h"
#include "operate/program.h"
#include "operate/report.pb.h"

namespace hedgerow::operate {

// One run of one command, and where it prints. The references outlive it. Not thread-safe.
struct Call {
  const Program& program;
  Arguments arguments;  // words[0] is the command
  std::ostream& out;    // results and, with --json, failures too
  std::ostream& err;    // failures without --json

  // The message as JSON, or else the text. Returns `exit_code`.
  int Print(const google::protobuf::Message& message, const std::string& text, int exit_code = kExitOk) const;
  // Prints an error. Returns `exit_code`; without one, that which belongs to the status.
  int Fail(int exit_code, const std::string& text) const;
  int Fail(const absl::Status& status) const;
  // The same, on one line with --json: for commands that print an object a line.
  int FailOnALine(const absl::Status& status) const;
  // A wrong number or kind of words or options: the text, and how the command is used.
  int UsageError(const std::string& text) const;
};

// The command `help [COMMAND]`, for the end of every program's table. With --man and --completion it prints the
// program's manual page and its completion for bash, which the installation writes to files.
Command HelpCommand();

// `argv` without the program's name: {"status", "--json"}. Returns the exit code. --help alone is `help`,
// --version alone is `version`, both of which the program's table must have; a command with --help is not run.
int Run(const Program& program, const std::vector<std::string>& argv, std::ostream& out, std::ostream& err);

// For reports of `validate`: the errors in the order of the file. Pure.
google::protobuf::RepeatedPtrField<v1::ConfigError> ConfigErrors(const config::Diagnostics& errors);

}  // namespace hedgerow::operate
