// SPDX-License-Identifier: Apache-2.0
//
// hedgerow-node's command line as words and options. Strict: what is not known is an error, never ignored.

#ifndef HEDGEROW_CLUSTER_NODE_ARGUMENTS_H_
#define HEDGEROW_CLUSTER_NODE_ARGUMENTS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hedgerow::node {

struct Arguments {
  std::vector<std::string> words{};              // without the options: {"proxy-key", "web1"}
  std::map<std::string, std::string> options{};  // "config" -> "FILE"; flags map to ""

  bool Has(const std::string& option) const { return options.contains(option); }
  // The option's value, or `otherwise`.
  std::string Get(const std::string& option, absl::string_view otherwise = "") const;
};

// Options are --config FILE, --socket PATH, --to ID (each also with "="), and --json, --help, --version.
// InvalidArgument for anything else that starts with a dash, and for an option that is given twice.
absl::StatusOr<Arguments> ParseArguments(const std::vector<std::string>& argv);

}  // namespace hedgerow::node

#endif  // HEDGEROW_CLUSTER_NODE_ARGUMENTS_H_
