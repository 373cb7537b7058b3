// SPDX-License-Identifier: Apache-2.0
//
// `hedgerow clean`: removes what a crashed daemon left behind, found by the
// marks it put on everything. Refused while the instance's daemon lives.

#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proxy/admin/client.h"
#include "proxy/api/report.pb.h"
#include "proxy/cli/command.h"
#include "proxy/daemon/instance_lock.h"
#include "net/bpffs.h"
#include "net/capabilities.h"
#include "net/clean.h"

namespace hedgerow::cli {
namespace {

// A killed daemon's socket: nobody listens on it. Whether it was removed.
bool RemoveDeadSocket(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) return false;
  return AdminClient::Connect(path).status().code() == absl::StatusCode::kUnavailable &&
         unlink(path.c_str()) == 0;
}

}  // namespace

int RunClean(const Arguments& arguments) {
  if (arguments.words.size() > 1) return UsageError(arguments, "clean takes no words");
  const absl::StatusOr<std::string> instance = InstanceName(arguments);
  if (!instance.ok()) return Fail(arguments, instance.status());
  const absl::Status privileged = net::RequireCapabilities(net::kCapabilitiesToClean);
  if (!privileged.ok()) return Fail(arguments, privileged);
  const absl::StatusOr<InstanceLock> lock = InstanceLock::Acquire(kRunFolder, *instance);
  if (!lock.ok()) return Fail(arguments, lock.status());
  const net::CleanReport cleaned = net::Clean(*instance, net::kDefaultBpffs);
  v1::CleanReport report;
  report.set_instance(*instance);
  std::string text;
  for (const std::string& line : cleaned.removed) {
    report.add_removed(line);
    absl::StrAppend(&text, "removed ", line, "\n");
  }
  const absl::StatusOr<std::string> socket = SocketPath(arguments);
  if (socket.ok() && RemoveDeadSocket(*socket)) {
    report.add_removed(absl::StrCat("admin socket ", *socket));
    absl::StrAppend(&text, "removed admin socket ", *socket, "\n");
  }
  for (const std::string& line : cleaned.failures) report.add_problems(line);
  if (!cleaned.failures.empty()) {
    if (!arguments.json()) {
      return Fail(arguments, kExitFailure, absl::StrCat(text, absl::StrJoin(cleaned.failures, "\n")));
    }
    return Print(arguments, report, "", kExitFailure);
  }
  if (text.empty()) text = absl::StrCat("nothing of instance ", *instance, " is left\n");
  return Print(arguments, report, text);
}

}  // namespace hedgerow::cli
