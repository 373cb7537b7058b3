// SPDX-License-Identifier: Apache-2.0
#include "operate/manual.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "operate/version.h"

namespace hedgerow::operate {
namespace {

constexpr size_t kColumns = 100;
constexpr size_t kWidestName = 30;  // what is longer has its text on the next line

std::string Written(const Option& option) {
  return absl::StrCat(option.letter == 0 ? "" : absl::StrCat("-", std::string(1, option.letter), ", "), "--",
                      option.name, option.value.empty() ? "" : " ", option.value);
}

// Words put into lines of at most kColumns, each with `indent` spaces before it but the first.
std::string Fill(const std::string& text, size_t indent) {
  std::string out;
  size_t column = indent;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (column > indent && column + 1 + word.size() > kColumns) {
      absl::StrAppend(&out, "\n", std::string(indent, ' '));
      column = indent;
    } else if (column > indent) {
      absl::StrAppend(&out, " ");
      ++column;
    }
    absl::StrAppend(&out, word);
    column += word.size();
  }
  return out;
}

std::string Columns(const std::vector<Described>& rows) {
  size_t width = 0;
  for (const auto& [name, text] : rows) {
    if (name.size() <= kWidestName) width = std::max(width, name.size());
  }
  const size_t indent = 2 + width + 2;
  std::string out;
  for (const auto& [name, text] : rows) {
    const bool long_name = name.size() > width;
    absl::StrAppend(&out, "  ", name,
                    long_name ? "\n" + std::string(indent, ' ') : std::string(width + 2 - name.size(), ' '),
                    Fill(text, indent), "\n");
  }
  return out;
}

std::vector<Described> Rows(const std::vector<Option>& options) {
  std::vector<Described> rows;
  for (const Option& option : options) rows.emplace_back(Written(option), option.help);
  return rows;
}

std::string Block(const std::string& title, const std::vector<Described>& rows) {
  return rows.empty() ? "" : absl::StrCat("\n", title, ":\n", Columns(rows));
}

std::string UsageOf(const Program& program) {
  std::string required;
  for (const Option& option : program.options) {
    if (option.required) absl::StrAppend(&required, " ", Written(option));
  }
  const std::string command = program.commands.empty() ? "" : " COMMAND";
  return program.options_first ? absl::StrCat(program.name, required, " [OPTIONS]", command)
                               : absl::StrCat(program.name, required, command, " [OPTIONS]");
}

std::vector<Option> AllOptions(const Program& program, const Command& command) {
  std::vector<Option> all = command.options;
  all.insert(all.end(), program.options.begin(), program.options.end());
  return all;
}

// A text of man(7): no letter of it is taken for a macro or an escape.
std::string Roff(const std::string& text) {
  std::string out = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}, {"`", ""}});
  if (absl::StartsWith(out, ".") || absl::StartsWith(out, "'")) out = "\\&" + out;
  return out;
}

std::string Section(const std::string& title, const std::string& body) {
  return body.empty() ? "" : absl::StrCat(".SH ", title, "\n", body);
}

std::string RoffList(const std::vector<Described>& rows) {
  std::string out;
  for (const auto& [name, text] : rows) absl::StrAppend(&out, ".TP\n.B ", Roff(name), "\n", Roff(text), "\n");
  return out;
}

std::string RoffCommands(const Program& program) {
  std::string out;
  for (const Command& command : program.commands) {
    absl::StrAppend(&out, ".SS ",
                    Roff(absl::StrCat(command.name, command.words.empty() ? "" : " ", command.words,
                                      command.behind.empty() ? "" : " -- ", command.behind)),
                    "\n", Roff(command.summary), "\n", RoffList(Rows(command.options)));
    for (const std::string& example : command.examples) {
      absl::StrAppend(&out, ".PP\n.RS\n.nf\n", Roff(example), "\n.fi\n.RE\n");
    }
  }
  return out;
}

// "hedgerowd(8)" as a reference: the name bold, the section not.
std::string Reference(const std::string& page) {
  const std::vector<std::string> parts = absl::StrSplit(page, '(');
  return absl::StrCat(".BR ", Roff(parts[0]), " (", parts[1]);
}

// An option's value that is a file or folder, by its placeholder.
bool IsFile(const Option& option) {
  return option.value == "FILE" || option.value == "PATH" || option.value == "BACKUP";
}

std::string Dashed(const std::vector<Option>& options) {
  return absl::StrJoin(options, " ",
                       [](std::string* out, const Option& option) { absl::StrAppend(out, "--", option.name); });
}

// What every program takes; a daemon's list names them itself.
std::vector<Option> WithCommonFlags(std::vector<Option> options) {
  for (const char* flag : {"help", "version"}) {
    const bool listed =
        std::any_of(options.begin(), options.end(), [flag](const Option& option) { return option.name == flag; });
    if (!listed) options.push_back({flag, "", ""});
  }
  return options;
}

// What a command's words may be, for bash: literal ones, names that the daemon knows, commands of another program.
std::string WordsOf(const Program& program, const Command& command) {
  std::vector<std::string> literals;
  std::string dynamic;
  for (const absl::string_view word : absl::StrSplit(command.words, absl::ByAnyChar(" |[]."), absl::SkipEmpty())) {
    if (absl::ascii_islower(static_cast<unsigned char>(word[0]))) literals.emplace_back(word);
    if (word == "SERVICE" || word == "BACKEND")
      dynamic = absl::StrCat(program.name, " status --json 2>/dev/null | sed -n 's/^ *\"name\": \"\\(.*\\)\".*/\\1/p'");
    if (word == "COMMAND")
      dynamic =
          absl::StrCat(program.name, " ", command.name, " help 2>/dev/null | sed -n 's/^  \\([a-z-]*\\)  .*/\\1/p'");
  }
  if (literals.empty() && dynamic.empty()) return "";
  return absl::StrCat("; [[ $word == -* ]] || options=\"", absl::StrJoin(literals, " "),
                      dynamic.empty() ? "" : absl::StrCat(" $(", dynamic, ")"), "\"");
}

}  // namespace

std::string UsageLine(const Program& program, const Command& command) {
  std::string line =
      absl::StrCat("usage: ", program.name, " ", command.name, command.words.empty() ? "" : " ", command.words);
  for (const Option& option : command.options) {
    if (option.required) absl::StrAppend(&line, " --", option.name, " ", option.value);
  }
  return absl::StrCat(line, " [OPTIONS]", command.behind.empty() ? "" : " -- ", command.behind);
}

std::string HelpOf(const Program& program, const Command& command) {
  std::string text = absl::StrCat(UsageLine(program, command), "\n\n", Fill(command.summary, 0), "\n",
                                  Block("options", Rows(AllOptions(program, command))));
  if (!command.examples.empty()) {
    absl::StrAppend(&text, "\nexamples:\n");
    for (const std::string& example : command.examples) absl::StrAppend(&text, "  ", example, "\n");
  }
  return text;
}

std::string HelpOf(const Program& program) {
  std::vector<Described> commands;
  for (const Command& command : program.commands) {
    const std::string words = program.options_first ? absl::StrCat(" ", command.words) : "";
    commands.emplace_back(command.name + words, command.summary);
  }
  std::string text = absl::StrCat("usage: ", UsageOf(program), "\n", Block("commands", commands),
                                  Block("options", Rows(program.options)));
  for (const std::string& note : program.notes) absl::StrAppend(&text, "\n", Fill(note, 0), "\n");
  absl::StrAppend(&text, Block("environment", program.environment), Block("exit codes", program.exit_codes));
  return text;
}

std::string ManPage(const Program& program) {
  const std::string title = absl::AsciiStrToUpper(program.name);
  std::string notes;
  for (const std::string& note : program.notes) absl::StrAppend(&notes, ".PP\n", Roff(note), "\n");
  std::string references;
  for (const std::string& page : program.see_also) {
    absl::StrAppend(&references, Reference(page), &page == &program.see_also.back() ? "" : ",", "\n");
  }
  return absl::StrCat(
      ".TH ", Roff(title), " ", program.section, " \"\" \"hedgerow ", Roff(kVersion), "\" \"Hedgerow\"\n",
      Section("NAME", absl::StrCat(Roff(program.name), " \\- ", Roff(program.summary), "\n")),
      Section("SYNOPSIS", absl::StrCat(".B ", Roff(UsageOf(program)), "\n")), Section("DESCRIPTION", notes),
      Section("COMMANDS", RoffCommands(program)), Section("OPTIONS", RoffList(Rows(program.options))),
      Section("ENVIRONMENT", RoffList(program.environment)), Section("FILES", RoffList(program.files)),
      Section("EXIT STATUS", RoffList(program.exit_codes)), Section("SEE ALSO", references));
}

std::string BashCompletion(const Program& program) {
  const std::string function = absl::StrCat("_", absl::StrReplaceAll(program.name, {{"-", "_"}}));
  std::string commands;
  std::string cases;
  std::vector<std::string> file_options;
  const auto note_files = [&file_options](const std::vector<Option>& options) {
    for (const Option& option : options) {
      const std::string dashed = "--" + option.name;
      if (IsFile(option) && std::find(file_options.begin(), file_options.end(), dashed) == file_options.end()) {
        file_options.push_back(dashed);
      }
    }
  };
  note_files(program.options);
  for (const Command& command : program.commands) {
    note_files(command.options);
    absl::StrAppend(&commands, commands.empty() ? "" : " ", command.name);
    absl::StrAppend(&cases, "    ", command.name, ") options='", Dashed(AllOptions(program, command)), " --help'",
                    WordsOf(program, command), " ;;\n");
  }
  std::string text =
      absl::StrCat("# bash completion of ", program.name, ", made from its description of commands\n", function,
                   "() {\n  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command='' i\n");
  if (!file_options.empty()) {
    absl::StrAppend(
        &text, "  case $before in\n    ", absl::StrJoin(file_options, "|"),
        ") compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- \"$word\"); return ;;\n  esac\n");
  }
  absl::StrAppend(
      &text,
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n    case ${COMP_WORDS[i]} in -*) ;; *) command=${COMP_WORDS[i]}; break ;; esac\n"
      "  done\n  local options='",
      Dashed(WithCommonFlags(program.options)), "'\n");
  if (!program.commands.empty()) {
    absl::StrAppend(&text, "  case $command in\n    '') [[ $word == -* ]] || options='", commands, "' ;;\n", cases,
                    "  esac\n");
  }
  absl::StrAppend(&text, "  mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\")\n}\ncomplete -o default -F ",
                  function, " ", program.name, "\n");
  return text;
}

std::string TextOf(const Program& program, const std::string& kind) {
  if (kind == "man") return ManPage(program);
  return kind == "completion" ? BashCompletion(program) : HelpOf(program);
}

}  // namespace hedgerow::operate
