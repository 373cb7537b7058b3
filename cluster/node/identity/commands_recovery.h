// SPDX-License-Identifier: Apache-2.0
//
// The commands for a recovered cluster: they work on files of nodes that do not run. docs/cluster.md
// tells when, docs/adr/0019 why so. main.cc runs them in place of what commands.h has under their names.

#pragma once

#include <istream>

#include "operate/command_line.h"

namespace hedgerow::node {

int RunRestore(const operate::Call& call);
int RunRecover(const operate::Call& call);
// `in`: where the answer to its question comes from.
int RunRecover(const operate::Call& call, std::istream& in);

// The program with these two in their places.
operate::Program WithRecovery(operate::Program program);

}  // namespace hedgerow::node
