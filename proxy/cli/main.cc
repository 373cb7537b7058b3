// SPDX-License-Identifier: Apache-2.0
//
// hedgerow: the command line. Finds the command and hands it its arguments.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "config/suggest.h"
#include "proxy/cli/command.h"

namespace hedgerow::cli {
namespace {

// An option that the command does not know would otherwise be silently without effect.
const std::string* ForeignOption(const Command& command, const Arguments& arguments) {
  for (const auto& [name, value] : arguments.options) {
    const bool known = name == "json" || name == "help" ||
                       std::find(command.options.begin(), command.options.end(), name) != command.options.end();
    if (!known) return &name;
  }
  return nullptr;
}

int Main(const std::vector<std::string>& argv) {
  absl::StatusOr<Arguments> parsed = ParseArguments(argv);
  if (!parsed.ok()) {
    Arguments asked;
    if (std::find(argv.begin(), argv.end(), "--json") != argv.end()) asked.options["json"] = "";
    return UsageError(asked, std::string(parsed.status().message()));
  }
  Arguments& arguments = *parsed;
  if (arguments.words.empty()) {
    if (arguments.options.contains("version")) return RunVersion(arguments);
    if (arguments.options.contains("help")) return RunHelp(arguments);
    return UsageError(arguments, "which command?");
  }
  std::vector<std::string> names;
  for (const Command& command : Commands()) {
    names.push_back(command.name);
    if (command.name != arguments.words[0]) continue;
    if (arguments.options.contains("help")) {
      arguments.words = {"help", command.name};
      return RunHelp(arguments);
    }
    if (const std::string* foreign = ForeignOption(command, arguments); foreign != nullptr) {
      return UsageError(arguments, absl::StrCat(command.name, " takes no --", *foreign));
    }
    return command.run(arguments);
  }
  const std::string guess = config::Suggest(arguments.words[0], names);
  return UsageError(arguments, absl::StrCat("no command ", arguments.words[0],
                                            guess.empty() ? "" : absl::StrCat(", did you mean ", guess, "?")));
}

}  // namespace
}  // namespace hedgerow::cli

int main(int argc, char** argv) { return hedgerow::cli::Main(std::vector<std::string>(argv + 1, argv + argc)); }
