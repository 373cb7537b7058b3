// SPDX-License-Identifier: Apache-2.0
#include "cluster/client/arguments.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "cluster/wire/hkv_table.h"

namespace hedgerow::client {
namespace {

constexpr absl::string_view kAnd = "and";

// The words from one place on; asking past the end is an error that names what is missing.
class Words {
 public:
  explicit Words(const std::vector<std::string>& words) : words_(words) {}

  bool empty() const { return at_ == words_.size(); }
  const std::string* peek() const { return empty() ? nullptr : &words_[at_]; }
  const std::string& Take() { return words_[at_++]; }
  absl::StatusOr<std::string> Take(absl::string_view command, absl::string_view what) {
    if (empty()) return absl::InvalidArgumentError(absl::StrCat(command, " needs ", what));
    return words_[at_++];
  }

 private:
  const std::vector<std::string>& words_;
  size_t at_ = 0;
};

// A compare-and-set of a key that must not exist.
constexpr absl::string_view kCreate = "create";

const wire::HkvOperationRow* FindOperation(const std::string& command) {
  if (command == kCreate) return &wire::RowOf(kv::OperationKind::kCompareAndSet);
  const auto row = std::find_if(wire::kHkvOperations.begin(), wire::kHkvOperations.end(),
                                [&command](const wire::HkvOperationRow& known) { return known.name == command; });
  return row == wire::kHkvOperations.end() ? nullptr : &*row;
}

// In the order of the row: so the value that is expected comes before the new one.
absl::Status TakeField(Words& words, absl::string_view command, wire::HkvField field, kv::Operation& operation) {
  switch (field) {
    case wire::HkvField::kNone:
    case wire::HkvField::kExpected: return absl::OkStatus();
    case wire::HkvField::kCondition: {
      if (command == kCreate) return absl::OkStatus();
      absl::StatusOr<std::string> expected = words.Take(command, "the value that is to be replaced");
      if (expected.ok()) operation.expected = *std::move(expected);
      return expected.status();
    }
    case wire::HkvField::kValue: {
      absl::StatusOr<std::string> value = words.Take(command, "a value");
      if (value.ok()) operation.value = *std::move(value);
      return value.status();
    }
    case wire::HkvField::kDelta:
      operation.delta = 1;
      if (words.peek() == nullptr || *words.peek() == kAnd) return absl::OkStatus();
      const std::string& delta = words.Take();
      if (absl::SimpleAtoi(delta, &operation.delta)) return absl::OkStatus();
      return absl::InvalidArgumentError(absl::StrCat("'", delta, "' is no whole number of 64 bits"));
  }
  return absl::OkStatus();
}

absl::StatusOr<kv::Operation> TakeOperation(Words& words) {
  const std::string command = words.Take();
  const wire::HkvOperationRow* const row = FindOperation(command);
  if (row == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", command, "' is no command: expected get, put, create, cas, delete or incr"));
  }
  kv::Operation operation{.kind = row->kind};
  absl::StatusOr<std::string> key = words.Take(command, "a key");
  if (!key.ok()) return key.status();
  operation.key = *std::move(key);
  for (const wire::HkvField field : row->fields) {
    if (const absl::Status status = TakeField(words, command, field, operation); !status.ok()) return status;
  }
  return operation;
}

absl::Status TakeCommands(Words& words, Arguments& arguments) {
  if (words.empty()) return absl::InvalidArgumentError("a command is missing");
  if (*words.peek() == "get") {
    words.Take();
    absl::StatusOr<std::string> key = words.Take("get", "a key");
    if (!key.ok()) return key.status();
    arguments.get = *std::move(key);
    if (words.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("'", *words.peek(), "' is a word too many after get"));
  }
  while (true) {
    if (words.empty()) return absl::InvalidArgumentError("'and' needs another operation after it");
    absl::StatusOr<kv::Operation> operation = TakeOperation(words);
    if (!operation.ok()) return operation.status();
    arguments.operations.push_back(*std::move(operation));
    if (words.empty()) return absl::OkStatus();
    const std::string& between = words.Take();
    if (between != kAnd) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", between, "' is a word too many; several operations have 'and' between them"));
    }
  }
}

}  // namespace

const operate::Program& TheProgram() {
  static const auto* program = new operate::Program{
      .name = "hkv",
      .summary = "read and write Hedgerow's replicated store",
      .commands = {{"get", "KEY", "print the value"},
                   {"put", "KEY VALUE", "write it"},
                   {"create", "KEY VALUE", "write it if there is no such key"},
                   {"cas", "KEY OLD NEW", "write NEW if the value is OLD"},
                   {"delete", "KEY", "delete the key"},
                   {"incr", "KEY [NUMBER]", "add NUMBER (1) and print the sum; a key that does not exist counts as 0"}},
      .options =
          {{"server", "ADDRESS[:PORT][,...]",
            "a node, or the VIP of a proxy; of several nodes one that refuses is left for the next. Without PORT 4801"},
           {"client", "NAME", "prove each request to be this client's, with --key-file"},
           {"key-file", "FILE", "the client's key"},
           {"timeout", "DURATION", "how long to wait for an answer, 1ms to 1m (default 2s)"}},
      .notes =
          {"Several writes with the word \"and\" between them are done all or none: hkv incr sold and put last alice",
           "With --client an answer counts only if the server proves itself with the same key. Without an answer within "
           "the time-out a write may have been done or not. A write that is answered OVERLOADED is sent again under its "
           "number, which does it once. After \"--\" no word is taken for an option."},
      .exit_codes = {{"0", "done"},
                     {"1", "error"},
                     {"2", "usage"},
                     {"3", "no such key, or another value"},
                     {"4", "no answer in time"}},
      .environment = {{"HKV_SERVER", "as --server"}, {"HKV_CLIENT", "as --client"}, {"HKV_KEY_FILE", "as --key-file"}},
      .see_also = {"hedgerow-node(8)", "hedgerow(8)"},
      .section = 1,
      .options_first = true};
  return *program;
}

absl::StatusOr<Arguments> ParseArguments(const std::vector<std::string>& words) {
  Arguments arguments;
  if (!words.empty() && words[0] == "help") {
    arguments.text = words[0];
    return arguments;
  }
  size_t at = 0;
  for (; at < words.size() && absl::StartsWith(words[at], "-"); ++at) {
    std::string option = words[at];
    if (option == "-h") option = "--help";
    if (option == "--help" || option == "--man" || option == "--completion") {
      arguments.text = option.substr(2);
      return arguments;
    }
    if (option == "--") {
      ++at;
      break;
    }
    std::string value;
    if (const size_t equals = option.find('='); equals != std::string::npos) {
      value = option.substr(equals + 1);
      option.resize(equals);
    } else if (option == "--server" || option == "--timeout" || option == "--client" || option == "--key-file") {
      if (at + 1 == words.size()) return absl::InvalidArgumentError(absl::StrCat(option, " needs a value"));
      value = words[++at];
    }
    if (option == "--server") {
      arguments.server = value;
    } else if (option == "--client") {
      arguments.client = value;
    } else if (option == "--key-file") {
      arguments.key_file = value;
    } else if (option == "--timeout") {
      if (!absl::ParseDuration(value, &arguments.timeout) || arguments.timeout < absl::Milliseconds(1) ||
          arguments.timeout > absl::Minutes(1)) {
        return absl::InvalidArgumentError(absl::StrCat("--timeout ", value, ": expected 1ms to 1m, such as 500ms"));
      }
    } else {
      return absl::InvalidArgumentError(absl::StrCat("does not know the option ", option));
    }
  }
  const std::vector<std::string> rest(words.begin() + static_cast<ptrdiff_t>(at), words.end());
  Words commands(rest);
  if (absl::Status status = TakeCommands(commands, arguments); !status.ok()) return status;
  return arguments;
}

}  // namespace hedgerow::client
