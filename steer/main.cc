// SPDX-License-Identifier: Apache-2.0
//
// hedgerow-steer: one source, one worker of a daemon of several processes. `hedgerow steer COMMAND` becomes this
// program.

#include <iostream>

#include "operate/log.h"
#include "steer/cli/commands.h"

int main(int argc, char** argv) {
  hedgerow::operate::BeginProgram();
  return hedgerow::operate::Run(hedgerow::steer::cli::TheProgram(), {argv + 1, argv + argc}, std::cout, std::cerr);
}
