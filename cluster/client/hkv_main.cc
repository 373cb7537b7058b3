// SPDX-License-Identifier: Apache-2.0
//
// hkv: reads and writes the store from a shell. A call opens no session, so that a loop of calls leaves none behind: a
// write stands for itself. Sends each request once; see kUsage in arguments.cc.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cluster/client/arguments.h"
#include "cluster/client/hkv_client.h"
#include "cluster/wire/hkv_table.h"

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

int Run(const Arguments& arguments, const std::string& server) {
  absl::StatusOr<std::unique_ptr<HkvClient>> client = HkvClient::Connect(server);
  if (!client.ok()) return Fail(client.status());
  if (arguments.get.has_value()) {
    const absl::StatusOr<std::string> value = (*client)->Get(*arguments.get, arguments.timeout);
    if (!value.ok()) return Fail(value.status());
    PrintLine(*value);
    return 0;
  }
  const absl::StatusOr<std::vector<std::string>> values =
      (*client)->Write(arguments.operations, arguments.timeout);
  if (!values.ok()) return Fail(values.status());
  for (size_t i = 0; i < values->size(); ++i) {
    if (wire::RowOf(arguments.operations[i].kind).answers_number) PrintLine((*values)[i]);
  }
  return 0;
}

}  // namespace
}  // namespace hedgerow::client

int main(int argc, char** argv) {
  using namespace hedgerow::client;
  const absl::StatusOr<Arguments> arguments = ParseArguments({argv + 1, argv + argc});
  if (!arguments.ok()) {
    std::fprintf(stderr, "hkv: %s\n%s", std::string(arguments.status().message()).c_str(), kUsage);
    return kBadUsage;
  }
  if (arguments->help) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  const char* const from_environment = std::getenv("HKV_SERVER");
  const std::string server = !arguments->server.empty()    ? arguments->server
                             : from_environment != nullptr ? from_environment
                                                           : "";
  if (server.empty()) {
    std::fprintf(stderr, "hkv: which server? --server ADDRESS:PORT, or HKV_SERVER in the environment\n");
    return kBadUsage;
  }
  return Run(*arguments, server);
}
