// SPDX-License-Identifier: Apache-2.0
//
// What every command of the CLI is: a name, its usage, the options it takes,
// and a function that prints and returns an exit code. The table of all
// commands is in commands.cc; main.cc dispatches.

#ifndef HEDGEROW_PROXY_CLI_COMMAND_H_
#define HEDGEROW_PROXY_CLI_COMMAND_H_

#include <string>
#include <vector>

#include <google/protobuf/message.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proxy/api/config.pb.h"
#include "proxy/cli/arguments.h"
#include "proxy/daemon/readiness.h"

namespace hedgerow::cli {

struct Command {
  std::string name;
  std::string usage;                 // the words after the name: "show [SERVICE]"
  std::string summary;               // one line for `help`
  std::vector<std::string> options;  // besides --json and --help
  int (*run)(const Arguments&);
};

const std::vector<Command>& Commands();

// Prints an error: to stderr, or with --json as a Failure on stdout. Returns `exit_code`.
int Fail(const Arguments& arguments, int exit_code, const std::string& text);
// The same with the exit code that belongs to the status.
int Fail(const Arguments& arguments, const absl::Status& status);
int ExitCodeOf(const absl::Status& status);

// A wrong number or kind of words.
int UsageError(const Arguments& arguments, const std::string& text);

// Prints the message as JSON, or else the text; returns `exit_code`.
int Print(const Arguments& arguments, const google::protobuf::Message& message, const std::string& text,
          int exit_code = kExitOk);

// The configuration that --config names. InvalidArgument when it has errors or no file is named.
absl::StatusOr<v1::Config> RequireConfig(const Arguments& arguments);

// --socket, else the configuration's, else the default. InvalidArgument when --config names a file with errors.
absl::StatusOr<std::string> SocketPath(const Arguments& arguments);
// --instance, else the configuration's, else "default".
absl::StatusOr<std::string> InstanceName(const Arguments& arguments);

int RunValidate(const Arguments& arguments);
int RunPlan(const Arguments& arguments);
int RunUp(const Arguments& arguments);
int RunStatus(const Arguments& arguments);
int RunLeader(const Arguments& arguments);
int RunBypass(const Arguments& arguments);
int RunDown(const Arguments& arguments);
int RunClean(const Arguments& arguments);
int RunDoctor(const Arguments& arguments);
int RunVersion(const Arguments& arguments);
int RunHelp(const Arguments& arguments);

}  // namespace hedgerow::cli

#endif  // HEDGEROW_PROXY_CLI_COMMAND_H_
