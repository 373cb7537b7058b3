// SPDX-License-Identifier: Apache-2.0
//
// The main of a load, a server or a probe of the experiments: flags alone, a status as the result.
#pragma once

#include <filesystem>
#include <iostream>
#include <vector>

#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"

namespace hedgerow::bench {

// Reads the flags and calls `run`. The exit status: 0, 1 after an error, 2 where the command line is wrong.
inline int RunProgram(int argc, char** argv, const char* what, absl::Status (*run)()) {
  absl::SetProgramUsageMessage(what);
  const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
  const absl::Status status =
      rest.size() == 1 ? run() : absl::InvalidArgumentError("there are words that are no flags");
  if (status.ok()) return 0;
  std::cerr << std::filesystem::path(argv[0]).filename().string() << ": " << status.message() << "\n";
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

}  // namespace hedgerow::bench
