// SPDX-License-Identifier: Apache-2.0
#include "operate/command_line.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "config/json.h"
#include "config/suggest.h"
#include "operate/manual.h"

namespace hedgerow::operate {
namespace {

bool Contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

const Command* Find(const Program& program, const std::string& name) {
  for (const Command& command : program.commands) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

// Of all commands: those that take a value, or the flags.
std::vector<std::string> AllOf(const Program& program, bool flags) {
  std::vector<std::string> all;
  const auto add = [&all, flags](const std::vector<Option>& options) {
    for (const Option& option : options) {
      if (option.value.empty() == flags && !Contains(all, option.name)) all.push_back(option.name);
    }
  };
  add(program.options);
  for (const Command& command : program.commands) add(command.options);
  return all;
}

std::map<char, std::string> LettersOf(const Program& program) {
  std::map<char, std::string> letters;
  for (const Command& command : program.commands) {
    for (const Option& option : command.options) {
      if (option.letter != 0) letters[option.letter] = option.name;
    }
  }
  return letters;
}

bool TakesACommand(const Program& program) {
  return std::any_of(program.commands.begin(), program.commands.end(),
                     [](const Command& command) { return !command.behind.empty(); });
}

// An option that the command does not know would otherwise be silently without effect.
const std::string* ForeignOption(const Command& command, const Arguments& arguments) {
  for (const auto& [name, value] : arguments.options) {
    if (name == "json" || name == "help") continue;
    const bool known = std::any_of(command.options.begin(), command.options.end(),
                                   [&name = name](const Option& option) { return option.name == name; });
    if (!known) return &name;
  }
  return nullptr;
}

int RunHelp(const Call& call) {
  for (const char* kind : {"man", "completion"}) {
    if (!call.arguments.Has(kind)) continue;
    call.out << TextOf(call.program, kind);
    return kExitOk;
  }
  const std::string topic = call.arguments.words.size() > 1 ? call.arguments.words[1] : "";
  if (topic.empty()) {
    call.out << HelpOf(call.program);
    return kExitOk;
  }
  const Command* command = Find(call.program, topic);
  if (command == nullptr) return call.UsageError(absl::StrCat("no command ", topic));
  call.out << HelpOf(call.program, *command);
  return kExitOk;
}

// What was asked for without a command. Null: nothing.
const char* CommandOfFlag(const Arguments& arguments) {
  if (arguments.Has("version")) return "version";
  return arguments.Has("help") ? "help" : nullptr;
}

int RunNamed(Call& call) {
  const std::string& name = call.arguments.words[0];
  const Command* command = Find(call.program, name);
  if (command == nullptr) {
    std::vector<std::string> names;
    for (const Command& known : call.program.commands) names.push_back(known.name);
    // Words of service managers and of other programs.
    static const auto& others = *new std::map<std::string, std::string>{
        {"stop", "down"}, {"start", "up"}, {"restart", "reload"}, {"list", "status"}, {"info", "status"}};
    const auto other = others.find(name);
    const bool meant = other != others.end() && Contains(names, other->second);
    const std::string guess = meant ? other->second : config::Suggest(name, names);
    return call.UsageError(
        absl::StrCat("no command ", name, guess.empty() ? "" : absl::StrCat(", did you mean ", guess, "?")));
  }
  if (call.arguments.Has("help")) {
    call.arguments.words = {"help", command->name};
    return RunHelp(call);
  }
  if (const std::string* foreign = ForeignOption(*command, call.arguments); foreign != nullptr) {
    return call.UsageError(absl::StrCat(command->name, " takes no --", *foreign));
  }
  if (command->words.empty() && call.arguments.words.size() > 1) {
    std::vector<std::string> options;
    for (const Option& option : command->options)
      if (!option.value.empty()) options.push_back(absl::StrCat("--", option.name, " ", option.value));
    return call.UsageError(
        absl::StrCat(command->name, " takes no words",
                     options.empty() ? "" : absl::StrCat("; it takes ", absl::StrJoin(options, ", "))));
  }
  if (call.arguments.has_command && command->behind.empty())
    return call.UsageError(absl::StrCat(command->name, " takes nothing behind --"));
  return command->run(call);
}

int RunCommand(const Program& program, const std::vector<std::string>& argv, std::ostream& out, std::ostream& err) {
  Call call{program, {}, out, err};
  absl::StatusOr<Arguments> parsed =
      ParseArguments(argv, AllOf(program, false), AllOf(program, true), LettersOf(program), TakesACommand(program));
  if (!parsed.ok()) {
    if (Contains(argv, "--json")) call.arguments.options["json"] = "";
    return call.UsageError(std::string(parsed.status().message()));
  }
  call.arguments = *std::move(parsed);
  if (!call.arguments.words.empty()) return RunNamed(call);
  const char* asked = CommandOfFlag(call.arguments);
  const Command* command = asked == nullptr ? nullptr : Find(program, asked);
  return command == nullptr ? call.UsageError("which command?") : command->run(call);
}

}  // namespace

int Call::Print(const google::protobuf::Message& message, const std::string& text, int exit_code) const {
  out << (arguments.json() ? ToJson(message) : text);
  return exit_code;
}

int Call::Fail(int exit_code, const std::string& text) const {
  if (arguments.json()) {
    v1::Failure failure;
    failure.set_error(text);
    failure.set_exit_code(exit_code);
    out << ToJson(failure);
  } else {
    err << text << "\n";
  }
  return exit_code;
}

int Call::Fail(const absl::Status& status) const { return Fail(ExitCodeOf(status), std::string(status.message())); }

int Call::FailOnALine(const absl::Status& status) const {
  if (!arguments.json()) return Fail(status);
  v1::Failure failure;
  failure.set_error(std::string(status.message()));
  failure.set_exit_code(ExitCodeOf(status));
  out << ToJsonLine(failure);
  return failure.exit_code();
}

int Call::UsageError(const std::string& text) const {
  const Command* command = arguments.words.empty() ? nullptr : Find(program, arguments.words[0]);
  const std::string usage = command == nullptr ? absl::StrCat("`", program.name, " help` lists the commands")
                                               : absl::StrCat(UsageLine(program, *command), "\n`", program.name,
                                                              " help ", command->name, "` has its options");
  return Fail(kExitUsage, absl::StrCat(program.name, ": ", text, "\n", usage));
}

Command HelpCommand() {
  return {"help",
          "[COMMAND]",
          "print this text, or all options of one command",
          {{"man", "", "print the manual page, for man(1)"}, {"completion", "", "print the completion for bash"}},
          RunHelp};
}

int Run(const Program& program, const std::vector<std::string>& argv, std::ostream& out, std::ostream& err) {
  const int exit_code = RunCommand(program, argv, out, err);
  if (out.flush()) return exit_code;
  // A script must not take a file that was cut short by a full disk for the answer.
  err << program.name << ": the output could not be written: is its disk full?\n";
  return exit_code == kExitOk ? kExitFailure : exit_code;
}

google::protobuf::RepeatedPtrField<v1::ConfigError> ConfigErrors(const config::Diagnostics& errors) {
  google::protobuf::RepeatedPtrField<v1::ConfigError> out;
  for (const config::Diagnostic& error : errors.InOrder()) {
    v1::ConfigError& one = *out.Add();
    one.set_line(error.mark.line);
    one.set_column(error.mark.column);
    one.set_path(error.path);
    one.set_message(error.message);
  }
  return out;
}

}  // namespace hedgerow::operate
