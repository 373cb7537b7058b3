// SPDX-License-Identifier: Apache-2.0
//
// The groups of `hedgerow steer` on this host, for the live page: each supervisor is asked by its socket for
// monitoring, or by the administration socket where this daemon is root's. Called by page.cc.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "proxy/api/page.pb.h"

namespace hedgerow {

// `run_dir` is the folder of all groups. Waits at most a second for each.
v1::SteerData ReadSteerGroups(const std::string& run_dir, absl::Time now);

}  // namespace hedgerow
