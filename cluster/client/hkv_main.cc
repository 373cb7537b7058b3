// SPDX-License-Identifier: Apache-2.0
//
// hkv: reads and writes the store from a shell. A call opens no session, so that a loop of calls leaves none
// behind: a write stands for itself, and its process ends with it. TheProgram() in arguments.cc describes it.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cluster/client/arguments.h"
#include "cluster/client/hkv_client.h"
#include "cluster/wire/hkv_table.h"
#include "operate/key_file.h"
#include "operate/log.h"
#include "operate/manual.h"

namespace hedgerow::client {
namespace {

constexpr int kFailed = 1, kBadUsage = 2, kNotThere = 3, kNoAnswer = 4;

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "hkv: %s\n", std::string(status.message()).c_str());
  if (absl::IsDeadlineExceeded(status)) return kNoAnswer;
  return absl::IsNotFound(status) || absl::IsAborted(status) ? kNotThere : kFailed;
}

void PrintLine(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fputc('\n', stdout);
}

// A script must not take a file that was cut short by a full disk for the answer.
int EndOutput() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return 0;
  std::fprintf(stderr, "hkv: the output could not be written: is its disk full?\n");
  return kFailed;
}

// Nothing: the client is anonymous.
absl::StatusOr<std::optional<Credentials>> CredentialsOf(const std::string& client, const std::string& key_file) {
  if (client.empty() && key_file.empty()) return std::nullopt;
  if (client.empty() || key_file.empty())
    return absl::InvalidArgumentError("expected --client NAME and --key-file FILE, both or neither");
  const absl::StatusOr<std::string> digits = operate::ReadKeyFile(key_file, operate::Reader::kServes);
  if (!digits.ok()) return absl::InvalidArgumentError(absl::StrCat(key_file, " ", digits.status().message()));
  return Credentials{.client = client, .key = wire::ParseKey(*digits).value()};
}

int Run(const Arguments& arguments, const std::string& server, std::optional<Credentials> credentials) {
  std::vector<HkvClient::Address> all;
  for (const absl::string_view part : absl::StrSplit(server, ',', absl::SkipEmpty())) {
    std::string each(part);
    // A name, an IPv4 address, or an IPv6 address in brackets, alone.
    if (!absl::StrContains(each, ':') || each.back() == ']') absl::StrAppend(&each, ":4801");
    const absl::StatusOr<std::vector<HkvClient::Address>> addresses = HkvClient::AddressesOf(each);
    if (!addresses.ok()) return Fail(addresses.status());
    all.insert(all.end(), addresses->begin(), addresses->end());
  }
  absl::StatusOr<std::unique_ptr<HkvClient>> client = HkvClient::ConnectTo(all, 1024, std::move(credentials));
  if (!client.ok())
    return Fail({client.status().code(), absl::StrCat("cannot connect to ", server, ": ", client.status().message())});
  (*client)->WriteWithoutSession();
  if (arguments.get.has_value()) {
    const absl::StatusOr<std::string> value = (*client)->Get(*arguments.get, arguments.timeout);
    if (!value.ok()) return Fail(value.status());
    PrintLine(*value);
    return EndOutput();
  }
  const absl::StatusOr<std::vector<std::string>> values = (*client)->Write(arguments.operations, arguments.timeout);
  if (!values.ok()) return Fail(values.status());
  for (size_t i = 0; i < values->size(); ++i) {
    if (wire::RowOf(arguments.operations[i].kind).answers_number) PrintLine((*values)[i]);
  }
  return EndOutput();
}

}  // namespace
}  // namespace hedgerow::client

int main(int argc, char** argv) {
  hedgerow::operate::BeginProgram();
  using namespace hedgerow::client;
  const absl::StatusOr<Arguments> arguments = ParseArguments({argv + 1, argv + argc});
  if (!arguments.ok()) {
    std::fprintf(stderr, "hkv: %s\n%s", std::string(arguments.status().message()).c_str(),
                 hedgerow::operate::HelpOf(TheProgram()).c_str());
    return kBadUsage;
  }
  if (!arguments->text.empty()) {
    std::fputs(hedgerow::operate::TextOf(TheProgram(), arguments->text).c_str(), stdout);
    return EndOutput();
  }
  const auto given = [](const std::string& option, const char* variable) {
    const char* const from_environment = std::getenv(variable);
    return !option.empty() ? option : std::string(from_environment != nullptr ? from_environment : "");
  };
  const std::string server = given(arguments->server, "HKV_SERVER");
  if (server.empty()) {
    std::fprintf(stderr, "hkv: which server? --server ADDRESS[:PORT][,...], or HKV_SERVER in the environment\n");
    return kBadUsage;
  }
  absl::StatusOr<std::optional<Credentials>> credentials =
      CredentialsOf(given(arguments->client, "HKV_CLIENT"), given(arguments->key_file, "HKV_KEY_FILE"));
  if (!credentials.ok()) {
    std::fprintf(stderr, "hkv: %s\n", std::string(credentials.status().message()).c_str());
    return kBadUsage;
  }
  return Run(*arguments, server, *std::move(credentials));
}
