// SPDX-License-Identifier: Apache-2.0
//
// A command line as words and options. Strict: an option that the program does not know is an error, never
// ignored. Called by command_line.cc for `hedgerow` and `hedgerow-node`, and by hedgerowd. (`hkv` has a grammar of
// its own, in which a word that looks like an option may be a value: cluster/client/arguments.h.)

#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hedgerow::operate {

struct Arguments {
  std::vector<std::string> words{};              // without the options: {"leader", "set", "dns", "b"}
  std::map<std::string, std::string> options{};  // "config" -> "FILE"; flags map to ""
  bool has_command = false;                      // there is a "--"
  std::vector<std::string> command{};            // what stands behind it, as it is

  bool Has(const std::string& option) const { return options.contains(option); }
  bool json() const { return Has("json"); }
  // The option's value, or `otherwise`.
  std::string Get(const std::string& option, absl::string_view otherwise = "") const;
};

// `argv` without the program's name. `value_options` are the names ("config") of the options that take a value,
// as --config FILE or --config=FILE; the flags are `flags` and --json, --help (-h) and --version.
// `letters` are short names of options: -n VALUE or -nVALUE. `takes_command`: "--" ends the options, and the rest is a
// command of its own. InvalidArgument for anything else that starts with a dash, for a missing value and for a repeated
// option that takes a value. Pure.
absl::StatusOr<Arguments> ParseArguments(const std::vector<std::string>& argv,
                                         const std::vector<std::string>& value_options,
                                         const std::vector<std::string>& flags = {},
                                         const std::map<char, std::string>& letters = {}, bool takes_command = false);

}  // namespace hedgerow::operate
