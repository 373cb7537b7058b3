// SPDX-License-Identifier: Apache-2.0
//
// hedgerow: the command line.

#include <iostream>

#include "proxy/cli/command.h"

int main(int argc, char** argv) {
  return hedgerow::operate::Run(hedgerow::cli::TheProgram(), {argv + 1, argv + argc}, std::cout, std::cerr);
}
