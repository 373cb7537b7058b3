// SPDX-License-Identifier: Apache-2.0
#include "operate/arguments.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "config/suggest.h"

namespace hedgerow::operate {
namespace {

constexpr const char* kFlags[] = {"json", "help", "version"};

bool IsFlag(absl::string_view name, const std::vector<std::string>& flags) {
  return std::find(std::begin(kFlags), std::end(kFlags), name) != std::end(kFlags) ||
         std::find(flags.begin(), flags.end(), name) != flags.end();
}

absl::Status Unknown(absl::string_view argument, std::vector<std::string> known,
                     const std::vector<std::string>& flags) {
  known.insert(known.end(), flags.begin(), flags.end());
  known.insert(known.end(), std::begin(kFlags), std::end(kFlags));
  const std::string guess = config::Suggest(absl::StripPrefix(argument, "--"), known);
  return absl::InvalidArgumentError(
      absl::StrCat("unknown option ", argument, guess.empty() ? "" : absl::StrCat(", did you mean --", guess, "?")));
}

// -n as --NAME, and -nVALUE as --NAME=VALUE.
std::string WithoutLetter(const std::string& argument, const std::map<char, std::string>& letters) {
  const auto letter = argument.size() > 1 && argument[0] == '-' ? letters.find(argument[1]) : letters.end();
  if (letter == letters.end()) return argument;
  return absl::StrCat("--", letter->second, argument.size() > 2 ? "=" + argument.substr(2) : "");
}

}  // namespace

std::string Arguments::Get(const std::string& option, absl::string_view otherwise) const {
  const auto found = options.find(option);
  return found == options.end() ? std::string(otherwise) : found->second;
}

absl::StatusOr<Arguments> ParseArguments(const std::vector<std::string>& argv,
                                         const std::vector<std::string>& value_options,
                                         const std::vector<std::string>& flags,
                                         const std::map<char, std::string>& letters, bool takes_command) {
  Arguments arguments;
  for (size_t i = 0; i < argv.size(); ++i) {
    const std::string argument = WithoutLetter(argv[i], letters);
    if (argument == "--" && takes_command) {
      arguments.has_command = true;
      arguments.command.assign(argv.begin() + static_cast<std::ptrdiff_t>(i) + 1, argv.end());
      break;
    }
    if (argument == "-h" || argument == "-V") {
      arguments.options[argument == "-h" ? "help" : "version"] = "";
      continue;
    }
    if (argument == "-" || !absl::StartsWith(argument, "-")) {  // "-" names standard input
      arguments.words.push_back(argument);
      continue;
    }
    const size_t equals = argument.find('=');
    const std::string name(absl::StripPrefix(argument.substr(0, equals), "--"));
    if (!absl::StartsWith(argument, "--")) return Unknown(argument, value_options, flags);
    if (IsFlag(name, flags) && equals == std::string::npos) {
      arguments.options[name] = "";
    } else if (std::find(value_options.begin(), value_options.end(), name) == value_options.end()) {
      return Unknown(argument, value_options, flags);
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

}  // namespace hedgerow::operate
