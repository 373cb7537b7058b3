// SPDX-License-Identifier: Apache-2.0
//
// `hedgerow clean`: removes what a crashed daemon left behind, found by the
// marks it put on everything. Refused while the instance's daemon lives.

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "operate/admin_socket.h"
#include "proxy/api/report.pb.h"
#include "proxy/cli/command.h"
#include "operate/instance_lock.h"
#include "net/bpffs.h"
#include "net/capabilities.h"
#include "net/clean.h"

namespace hedgerow::cli {
namespace {

// Removes a killed daemon's socket, on which no process listens. Returns whether it was removed.
bool RemoveDeadSocket(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) return false;
  return operate::KnockOnUnixSocket(path) == ECONNREFUSED && unlink(path.c_str()) == 0;
}

}  // namespace

int RunClean(const Call& call) {
  if (call.arguments.words.size() > 1) return call.UsageError("clean takes no words");
  const absl::StatusOr<std::string> instance = InstanceName(call.arguments);
  if (!instance.ok()) return call.Fail(instance.status());
  const absl::Status privileged = net::RequireCapabilities(net::kCapabilitiesToClean);
  if (!privileged.ok()) return call.Fail(privileged);
  const absl::StatusOr<InstanceLock> lock = InstanceLock::Acquire(kRunFolder, *instance);
  if (!lock.ok()) return call.Fail(lock.status());
  const net::CleanReport cleaned = net::Clean(*instance, net::kDefaultBpffs);
  v1::CleanReport report;
  report.set_instance(*instance);
  std::string text;
  for (const std::string& line : cleaned.removed) {
    report.add_removed(line);
    absl::StrAppend(&text, "removed ", line, "\n");
  }
  const absl::StatusOr<std::string> socket = SocketPath(call.arguments);
  if (socket.ok() && RemoveDeadSocket(*socket)) {
    report.add_removed(absl::StrCat("admin socket ", *socket));
    absl::StrAppend(&text, "removed admin socket ", *socket, "\n");
  }
  for (const std::string& line : cleaned.failures) report.add_problems(line);
  if (!cleaned.failures.empty()) {
    if (!call.arguments.json()) {
      return call.Fail(kExitFailure, absl::StrCat(text, absl::StrJoin(cleaned.failures, "\n")));
    }
    return call.Print(report, "", kExitFailure);
  }
  if (text.empty()) text = absl::StrCat("nothing of instance ", *instance, " is left\n");
  return call.Print(report, text);
}

}  // namespace hedgerow::cli
