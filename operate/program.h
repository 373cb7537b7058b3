// SPDX-License-Identifier: Apache-2.0
//
// The description of a program's command line. The parser, `help`, the manual page and the shell's completion read this
// one description (command_line.h, manual.h).

#pragma once

#include <string>
#include <utility>
#include <vector>

namespace hedgerow::operate {

struct Call;

struct Option {
  std::string name;   // "config": --config on the command line
  std::string value;  // the placeholder of its value, "FILE"; empty: a flag, which takes none
  std::string help;   // a phrase with its default: "the daemon's socket (default /run/hedgerow/admin.sock)"
  bool required = false;
  char letter = 0;  // 'n': -n is the same
};

struct Command {
  std::string name;
  std::string words;              // what stands after the name, without options: "show [SERVICE] | set SERVICE BACKEND"
  std::string summary;            // one phrase for `help`: "end a drain"
  std::vector<Option> options{};  // besides --json and --help
  int (*run)(const Call&) = nullptr;    // prints, and returns the exit code
  std::vector<std::string> examples{};  // whole command lines
  std::string behind{};                 // "CMD...": what may stand behind --, which goes to `run` as it is
};

// Something that has a name, and a phrase about it: an exit code, a file, a variable of the environment.
using Described = std::pair<std::string, std::string>;

struct Program {
  std::string name;                  // "hedgerow"
  std::string summary;               // a phrase for the manual's index: "control a hedging proxy"
  std::vector<Command> commands{};   // in the order of `help`; empty: a daemon, which takes options alone
  std::vector<Option> options{};     // of the program itself, or of each of its commands
  std::vector<std::string> notes{};  // paragraphs below the lists
  std::vector<Described> exit_codes{};
  std::vector<Described> environment{};
  std::vector<Described> files{};
  std::vector<std::string> see_also{};  // pages of the manual: "hedgerowd(8)"
  int section = 8;                      // of the manual: 1 commands, 8 administration
  bool options_first = false;           // options stand before the command; what follows it are its words alone
};

}  // namespace hedgerow::operate
