// SPDX-License-Identifier: Apache-2.0
//
// Splitting the command line; see the header.

#include "cluster/node/arguments.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "config/suggest.h"

namespace hedgerow::node {
namespace {

const std::vector<std::string>& ValueOptions() {
  static const auto* options = new std::vector<std::string>{"config", "socket", "to"};
  return *options;
}
const std::vector<std::string>& Flags() {
  static const auto* flags = new std::vector<std::string>{"json", "help", "version"};
  return *flags;
}

bool Contains(const std::vector<std::string>& list, absl::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

absl::Status Unknown(absl::string_view argument) {
  std::vector<std::string> all = ValueOptions();
  all.insert(all.end(), Flags().begin(), Flags().end());
  const std::string guess = config::Suggest(absl::StripPrefix(argument, "--"), all);
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown option ", argument, guess.empty() ? "" : absl::StrCat(", did you mean --", guess, "?")));
}

}  // namespace

std::string Arguments::Get(const std::string& option, absl::string_view otherwise) const {
  const auto found = options.find(option);
  return found == options.end() ? std::string(otherwise) : found->second;
}

absl::StatusOr<Arguments> ParseArguments(const std::vector<std::string>& argv) {
  Arguments arguments;
  for (size_t i = 0; i < argv.size(); ++i) {
    const std::string& argument = argv[i];
    if (argument == "-h") {
      arguments.options["help"] = "";
      continue;
    }
    if (!argument.starts_with('-')) {
      arguments.words.push_back(argument);
      continue;
    }
    const size_t equals = argument.find('=');
    const std::string name(absl::StripPrefix(argument.substr(0, equals), "--"));
    if (!argument.starts_with("--")) return Unknown(argument);
    if (Contains(Flags(), name) && equals == std::string::npos) {
      arguments.options[name] = "";
    } else if (!Contains(ValueOptions(), name)) {
      return Unknown(argument);
    } else if (arguments.Has(name)) {
      return absl::InvalidArgumentError(absl::StrCat("--", name, " is given twice"));
    } else if (equals != std::string::npos) {
      arguments.options[name] = argument.substr(equals + 1);
    } else if (i + 1 < argv.size()) {
      arguments.options[name] = argv[++i];
    } else {
      return absl::InvalidArgumentError(absl::StrCat("--", name, " wants a value"));
    }
  }
  return arguments;
}

}  // namespace hedgerow::node
