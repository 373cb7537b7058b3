// SPDX-License-Identifier: Apache-2.0
//
// `hedgerow plan`: shows what `up` would make, and, where a daemon serves this instance already, what a reload of
// this file would change. Makes and changes nothing.

#include <sys/sysinfo.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "operate/key_file.h"
#include "proxy/cli/command.h"
#include "proxy/cli/make_plan.h"
#include "proxy/cli/running_daemon.h"
#include "proxy/start/topology.h"

namespace hedgerow::cli {

int RunPlan(const Call& call) {
  const absl::StatusOr<v1::Config> config = RequireConfig(call.arguments);
  if (!config.ok()) return call.Fail(config.status());
  Topology topology = ResolveHere(*config);
  for (const v1::Service& service : config->services()) {
    const std::string& path = service.cluster().key_file();
    const absl::Status key =
        path.empty() ? absl::OkStatus() : operate::ReadKeyRing(path, operate::Reader::kShows).status();
    if (key.ok()) continue;
    topology.problems.push_back({ProblemCode::kKeyFile, absl::StrCat("service ", service.name(), ": the key file ",
                                                                     path, " ", std::string(key.message()))});
  }
  for (std::string& why : ClosedToTheUnit(call.arguments, *config))
    topology.problems.push_back({ProblemCode::kKeyFile, std::move(why)});
  v1::Plan plan = MakePlan(*config, call.arguments.Get("config"), topology, get_nprocs_conf());
  if (auto running = FindRunningDaemon(*config, call.arguments.Get("config")); running.has_value())
    *plan.mutable_reload() = std::move(running->reload);
  return call.Print(plan, PlanText(plan), topology.problems.empty() ? kExitOk : kExitFailure);
}

}  // namespace hedgerow::cli
