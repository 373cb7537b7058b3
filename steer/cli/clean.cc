// SPDX-License-Identifier: Apache-2.0
//
// `clean`: removes the group of a dead supervisor.
#include <vector>

#include "absl/strings/str_cat.h"
#include "net/bpffs.h"
#include "net/capabilities.h"
#include "operate/instance_lock.h"
#include "steer/adopt/adopted_sockets.h"
#include "steer/api/steer.pb.h"
#include "steer/cli/commands.h"
#include "steer/leftovers.h"

namespace hedgerow::steer::cli {
namespace {

constexpr std::array kNeeded = {net::Capability::kBpf};

// An adopted daemon goes on, without the programs.
void ReleaseAdopted(const Leftovers& found) {
  const auto listen = Listen::Parse(found.record.listen());
  const auto kernel = KernelGroup::Open(found.bpffs, found.record.name());
  if (listen.ok()) GiveBack(kernel.ok() ? kernel->get() : nullptr, {.listen = *listen}, FiltersOf(found.record));
}

}  // namespace

int RunClean(const Call& call) {
  const auto places = FindGroup(call.arguments);
  if (!places.ok()) return call.Fail(places.status());
  if (const absl::Status allowed = net::RequireCapabilities(kNeeded); !allowed.ok()) return call.Fail(allowed);
  const auto lock = InstanceLock::Acquire(places->run_dir, places->name, "group");
  if (!lock.ok()) return call.Fail(lock.status());
  const Leftovers found = LookForLeftovers(*places, call.arguments.Get("bpffs", net::kDefaultBpffs));
  std::vector<std::string> removed;
  if (found.record.mode() == "adopt" && found.has_pins) ReleaseAdopted(found);
  if (found.any()) {
    if (const absl::Status done = RemoveLeftovers(*places, found, &removed); !done.ok()) return call.Fail(done);
    if (found.record.mounted_bpffs()) (void)net::ReleaseBpffs(found.bpffs);
  }
  v1::Cleaned report;
  report.set_name(places->name);
  std::string text;
  for (const std::string& line : removed) {
    report.add_removed(line);
    absl::StrAppend(&text, "removed ", line, "\n");
  }
  return call.Print(report, text.empty() ? absl::StrCat("nothing of group ", places->name, " is left\n") : text);
}

}  // namespace hedgerow::steer::cli
