// SPDX-License-Identifier: Apache-2.0
//
// `hedgerow steer adopt` and `bind`: groups for unmodified daemons.
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "steer/adopt/adopted_group.h"
#include "steer/adopt/bind_in_place.h"
#include "steer/cli/commands.h"
#include "steer/run.h"

namespace hedgerow::steer::cli {
namespace {

// A daemon that starts a worker binds before its socket has a slot, so the kernel's own choice may be the very socket
// that serves.
constexpr Policy kPolicies[] = {
    {"kernel", HR_STEER_KERNEL}, {"reject", HR_STEER_REJECT}, {"next", HR_STEER_OTHER_OR_KERNEL}};

}  // namespace

int RunAdopt(const Call& call) {
  const std::vector<std::string>& words = call.arguments.words;
  auto settings = CommonSettings(call.arguments, kPolicies);
  if (!settings.ok()) return FailStart(call, settings.status());
  SocketSearch search{.listen = settings->listen};
  for (auto word = words.begin() + 1; word != words.end(); ++word) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(*word, &pid) || pid <= 0)
      return call.UsageError(absl::StrCat("got \"", *word, "\", expected a pid"));
    search.pids.push_back(pid);
  }
  if (call.arguments.Has("transport")) {
    const std::vector<Transport> transports = settings->transports();
    search.transports = {transports.begin(), transports.end()};
  }
  return ServeGroup(call, *settings,
                    [&](EventLoop* loop, bool mounted_bpffs) -> absl::StatusOr<std::unique_ptr<Group>> {
                      return AdoptedGroup::Start(loop, *settings, search, mounted_bpffs);
                    });
}

int RunBind(const Call& call) {
  if (call.arguments.words.size() > 1) {
    return call.UsageError(
        absl::StrCat("unknown word ", call.arguments.words[1], "; the daemon's command stands behind --"));
  }
  if (call.arguments.command.empty()) return call.UsageError("which command? It stands behind --");
  return call.Fail(RunWithSockets(call.arguments.command));
}

}  // namespace hedgerow::steer::cli
