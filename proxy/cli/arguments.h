// SPDX-License-Identifier: Apache-2.0
//
// The command line as words and options. Strict: an option a command does not
// take is an error, never ignored.

#ifndef HEDGEROW_PROXY_CLI_ARGUMENTS_H_
#define HEDGEROW_PROXY_CLI_ARGUMENTS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hedgerow::cli {

struct Arguments {
  std::vector<std::string> words;              // without the options: {"leader", "set", "dns", "b"}
  std::map<std::string, std::string> options;  // "config" -> "FILE"; flags map to ""

  bool json() const { return options.contains("json"); }
  // The option's value, or `otherwise`.
  std::string Get(const std::string& option, absl::string_view otherwise = "") const;
};

// Options are --config FILE, --socket PATH, --instance NAME, --log FILE (each also with "="), and --json,
// --help,
// --version. InvalidArgument for anything else that starts with a dash.
absl::StatusOr<Arguments> ParseArguments(const std::vector<std::string>& argv);

}  // namespace hedgerow::cli

#endif  // HEDGEROW_PROXY_CLI_ARGUMENTS_H_
