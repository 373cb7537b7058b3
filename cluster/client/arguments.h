// SPDX-License-Identifier: Apache-2.0
//
// The command line of `hkv` as what it asks for. Strict: an option that it does not know is an error, and so is
// a word too many. Pure, so that the tests need no server.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cluster/kv/command.h"
#include "operate/program.h"

namespace hedgerow::client {

struct Arguments {
  std::string text{};      // what is printed instead: "help", "man" or "completion"; empty: a command is run
  std::string server{};    // empty: not given
  std::string client{};    // how it proves itself; empty: it does not
  std::string key_file{};  // given with `client`
  // Longer than a node waits for a leader (1 s), so that the node's own reason arrives.
  absl::Duration timeout = absl::Seconds(2);
  std::optional<std::string> get{};         // the key to read; else
  std::vector<kv::Operation> operations{};  // what to write, all or none
};

// What `hkv` is, for its help, its manual page and its completion.
const operate::Program& TheProgram();

// InvalidArgument says which word is wrong and what was expected.
absl::StatusOr<Arguments> ParseArguments(const std::vector<std::string>& words);

}  // namespace hedgerow::client
