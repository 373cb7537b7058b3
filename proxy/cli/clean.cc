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
#include "proxy/instance/instance_record.h"
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

absl::StatusOr<std::vector<std::string>> InstancesWithoutDaemon() {
  absl::StatusOr<std::vector<std::string>> instances = net::FindInstances(net::kDefaultBpffs);
  if (!instances.ok()) return instances;
  std::erase_if(*instances, [](const std::string& instance) {
    // A live daemon has its lock file; taking the lock to be sure would get in a starting daemon's way. A node's kernel
    // part has a map by which its next process knows it (cluster/offload/bpf_kernel.cc).
    return access(absl::StrCat(kRunFolder, "/", instance, ".lock").c_str(), F_OK) == 0 ||
           access(absl::StrCat(net::PinDir(net::kDefaultBpffs, instance), "/about").c_str(), F_OK) == 0;
  });
  return instances;
}

int RunClean(const Call& call) {
  const absl::StatusOr<std::string> instance = InstanceName(call.arguments);
  if (!instance.ok()) return call.Fail(instance.status());
  const absl::Status privileged = net::RequireCapabilities(net::kCapabilitiesToClean);
  if (!privileged.ok()) return call.Fail(privileged);
  const absl::StatusOr<InstanceLock> lock = InstanceLock::Acquire(kRunFolder, *instance);
  if (!lock.ok()) return call.Fail(lock.status());
  // Its links and routes are there, and stay; its pins would go.
  if (const auto record = InstanceRecord::Open(net::PinDir(net::kDefaultBpffs, *instance));
      record.ok() && record->data().network_namespace() != NetworkNamespace()) {
    return call.Fail(kExitFailure, absl::StrCat("instance ", *instance,
                                                " stands in another network namespace; run this there (`ip netns exec "
                                                "NAME`, `nsenter --net`)"));
  }
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
