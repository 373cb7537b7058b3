// SPDX-License-Identifier: Apache-2.0
//
// Rules about the adaptive delay and about the preferred backend. Called by check.h's Check(), which callers use.

#ifndef HEDGEROW_PROXY_CONFIG_CHECK_POLICY_H_
#define HEDGEROW_PROXY_CONFIG_CHECK_POLICY_H_

#include "config/diagnostics.h"
#include "config/locations.h"
#include "proxy/api/config.pb.h"

namespace hedgerow::config {

void CheckPolicies(const v1::Config& config, const Locations& locations, Diagnostics& errors);

}  // namespace hedgerow::config

#endif  // HEDGEROW_PROXY_CONFIG_CHECK_POLICY_H_
