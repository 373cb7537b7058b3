// SPDX-License-Identifier: Apache-2.0
//
// hedgerow: the command line. `hedgerow cluster COMMAND` becomes `hedgerow-node COMMAND`, from this program's
// own folder: proxy and cluster know nothing of each other, and an operator need not know which program a word
// is of.

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>
#include <system_error>

#include "proxy/cli/command.h"

namespace {

int BecomeNode(char** arguments) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string node = self.parent_path() / "hedgerow-node";
  execv(node.c_str(), arguments);
  std::cerr << "hedgerow: cannot run " << node << ": " << strerror(errno) << "\n";
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  const bool of_node =
      argc > 2 && std::string_view(argv[1]) == "cluster" && std::string_view(argv[2]) != "--help";
  if (of_node) return BecomeNode(argv + 1);
  return hedgerow::operate::Run(hedgerow::cli::TheProgram(), {argv + 1, argv + argc}, std::cout, std::cerr);
}
