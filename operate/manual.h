// SPDX-License-Identifier: Apache-2.0
//
// The texts that come of a program's description: `help`, its manual page, and the completion of a shell. Pure; any
// thread.

#pragma once

#include <string>

#include "operate/program.h"

namespace hedgerow::operate {

// "usage: hedgerow drain BACKEND [SERVICE] [OPTIONS]", without a line's end. Options that a command needs stand in it.
std::string UsageLine(const Program& program, const Command& command);

// `help COMMAND`: usage, summary, options, examples.
std::string HelpOf(const Program& program, const Command& command);

// `help`: all commands, options, notes and exit codes.
std::string HelpOf(const Program& program);

// The page in the man(7) macros, with the version in its foot.
std::string ManPage(const Program& program);

// A completion for bash: commands, their options, and file names after an option or word that wants one.
std::string BashCompletion(const Program& program);

// One of the three by name: "help", "man" or "completion".
std::string TextOf(const Program& program, const std::string& kind);

}  // namespace hedgerow::operate
