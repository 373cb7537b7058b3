// SPDX-License-Identifier: Apache-2.0
//
// The commands that change how a service is hedged while it runs: dry-run, drain, undrain.

#include <memory>

#include "absl/strings/str_cat.h"
#include "proxy/admin/client.h"
#include "proxy/cli/command.h"
#include "proxy/cli/status_text.h"

namespace hedgerow::cli {
namespace {

absl::StatusOr<std::unique_ptr<AdminClient>> Connect(const Arguments& arguments) {
  const absl::StatusOr<std::string> socket = SocketPath(arguments);
  if (!socket.ok()) return socket.status();
  return AdminClient::Connect(*socket);
}

int Drain(const Call& call, bool on) {
  const std::vector<std::string>& words = call.arguments.words;
  if (words.size() != 2 && words.size() != 3) {
    return call.UsageError(absl::StrCat(words[0], " wants a backend, and perhaps the service it is to leave"));
  }
  const auto client = Connect(call.arguments);
  if (!client.ok()) return call.Fail(client.status());
  const auto reply = (*client)->Drain(words[1], words.size() == 3 ? words[2] : "", on);
  if (!reply.ok()) return call.Fail(reply.status());
  return call.Print(*reply, DrainText(*reply));
}

}  // namespace

int RunDryRun(const Call& call) {
  const std::vector<std::string>& words = call.arguments.words;
  if (words.size() != 3) return call.UsageError("dry-run wants a service and on or off");
  if (words[2] != "on" && words[2] != "off") {
    return call.UsageError(absl::StrCat("got \"", words[2], "\", expected on or off"));
  }
  const auto client = Connect(call.arguments);
  if (!client.ok()) return call.Fail(client.status());
  const auto reply = (*client)->DryRun(words[1], words[2] == "on");
  if (!reply.ok()) return call.Fail(reply.status());
  return call.Print(
      *reply, absl::StrCat(reply->service(), ": ",
                           reply->dry_run() ? "dry run: what would be sent is counted, nothing is sent twice\n"
                                            : "hedging is on\n"));
}

int RunDrain(const Call& call) { return Drain(call, true); }
int RunUndrain(const Call& call) { return Drain(call, false); }

}  // namespace hedgerow::cli
