// SPDX-License-Identifier: Apache-2.0
//
// The main of a load or a server of the experiments: flags alone, a status as the result, and a report.
#pragma once

#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

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

// Into the file; to standard output where none is named.
inline absl::Status WriteTo(const std::string& path, const std::string& text) {
  std::ofstream file;
  if (!path.empty()) file.open(path, std::ios::binary);
  std::ostream& out = path.empty() ? std::cout : file;
  out << text << std::flush;
  return out ? absl::OkStatus() : absl::DataLossError(absl::StrCat("cannot write the report to '", path, "'"));
}

}  // namespace hedgerow::bench
