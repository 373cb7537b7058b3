// SPDX-License-Identifier: Apache-2.0
//
// hedgerow: the command line. `hedgerow cluster COMMAND` becomes `hedgerow-node COMMAND`, and `hedgerow steer COMMAND`
// `hedgerow-steer COMMAND`, from this program's own folder: proxy, cluster and steering know nothing of each other, and
// an operator need not know which program a word is of.

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "operate/log.h"
#include "proxy/cli/command.h"

namespace {

int Become(const char* program, const char* package, char** arguments) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string path = self.parent_path() / program;
  execv(path.c_str(), arguments);
  std::cerr << "hedgerow: cannot run " << path << ": " << strerror(errno)
            << (errno == ENOENT ? absl::StrCat("; it comes with the package ", package) : "") << "\n";
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  hedgerow::operate::BeginProgram();
  if (argc > 2 && std::string_view(argv[2]) != "--help") {
    if (std::string_view(argv[1]) == "cluster") return Become("hedgerow-node", "hedgerow-node", argv + 1);
    if (std::string_view(argv[1]) == "steer") return Become("hedgerow-steer", "hedgerow", argv + 1);
  }
  return hedgerow::operate::Run(hedgerow::cli::TheProgram(), {argv + 1, argv + argc}, std::cout, std::cerr);
}
