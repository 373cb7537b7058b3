// SPDX-License-Identifier: Apache-2.0
//
// What `up` would make, from the configuration and the machine's routes; and
// how much kernel memory its maps would take. Pure but for what Resolve asked.

#pragma once

#include <string>

#include "proxy/api/config.pb.h"
#include "proxy/api/report.pb.h"
#include "proxy/start/topology.h"

namespace hedgerow::cli {

v1::Plan MakePlan(const v1::Config& config, const std::string& file, const Topology& topology, int cpus);

std::string PlanText(const v1::Plan& plan);

}  // namespace hedgerow::cli
