// SPDX-License-Identifier: Apache-2.0
//
// The commands of `hedgerow-node` besides `run`: each parses its words, prints, and returns the program's exit
// code. main.cc calls RunCommand; tests call it with streams of their own.

#ifndef HEDGEROW_CLUSTER_NODE_COMMANDS_H_
#define HEDGEROW_CLUSTER_NODE_COMMANDS_H_

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cluster/node/arguments.h"

namespace hedgerow::node {

// As `hedgerow` has them (docs/cli.md).
enum ExitCode {
  kExitOk = 0,
  kExitFailure = 1,
  kExitUsage = 2,  // also: the configuration has errors
  kExitNotRunning = 3,
  kExitNotAllowed = 4,
};
int ExitCodeOf(const absl::Status& status);

// Where commands print: results and, with --json, failures too to `out`; else failures to `err`.
struct Streams {
  std::ostream& out;
  std::ostream& err;
};

struct Command {
  std::string name;
  std::string usage;                             // what follows the name: "[--to ID]"
  std::string summary;                           // one line for `help`
  std::vector<std::string> options;              // besides --json and --help
  int (*run)(const Arguments&, const Streams&);  // null for `run`, which is main's
};
const std::vector<Command>& Commands();

// `argv` without the program's name: {"status", "--json"}. Any command but `run`; that one, and a word that is
// no command, is a usage error.
int RunCommand(const std::vector<std::string>& argv);
int RunCommand(const std::vector<std::string>& argv, const Streams& streams);

// How long `transfer` waits to see another leader. An election takes some ten milliseconds; a target that lags
// is waited for by the leader.
inline constexpr absl::Duration kTransferPatience = absl::Seconds(10);

int RunStatus(const Arguments& arguments, const Streams& streams);
int RunTransfer(const Arguments& arguments, const Streams& streams);
int RunTransfer(const Arguments& arguments, const Streams& streams, absl::Duration patience);
int RunProxyKey(const Arguments& arguments, const Streams& streams);
int RunValidate(const Arguments& arguments, const Streams& streams);
int RunVersion(const Arguments& arguments, const Streams& streams);
int RunHelp(const Arguments& arguments, const Streams& streams);

}  // namespace hedgerow::node

#endif  // HEDGEROW_CLUSTER_NODE_COMMANDS_H_
