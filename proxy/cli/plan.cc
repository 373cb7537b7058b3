// SPDX-License-Identifier: Apache-2.0
//
// `hedgerow plan`: shows what `up` would make, and makes nothing.

#include <sys/sysinfo.h>

#include "proxy/cli/command.h"
#include "proxy/cli/make_plan.h"
#include "proxy/daemon/topology.h"

namespace hedgerow::cli {

int RunPlan(const Arguments& arguments) {
  if (arguments.words.size() > 1) return UsageError(arguments, "plan takes no words");
  const absl::StatusOr<v1::Config> config = RequireConfig(arguments);
  if (!config.ok()) return Fail(arguments, config.status());
  const Topology topology = Resolve(*config, KernelNetworkView());
  const v1::Plan plan = MakePlan(*config, arguments.Get("config"), topology, get_nprocs_conf());
  return Print(arguments, plan, PlanText(plan), topology.problems.empty() ? kExitOk : kExitFailure);
}

}  // namespace hedgerow::cli
