// SPDX-License-Identifier: Apache-2.0
//
// The rules that span the values of services' clusters: one key in one place,
// one cluster described in one way, few ports, nodes told apart. Called by
// check.cc with the other rules.

#ifndef HEDGEROW_PROXY_CONFIG_CHECK_CLUSTER_H_
#define HEDGEROW_PROXY_CONFIG_CHECK_CLUSTER_H_

#include "proxy/api/config.pb.h"
#include "proxy/config/decode.h"
#include "config/diagnostics.h"

namespace hedgerow::config {

// As Check() in check.h.
void CheckClusters(const v1::Config& config, const Locations& locations, Diagnostics& errors);

}  // namespace hedgerow::config

#endif  // HEDGEROW_PROXY_CONFIG_CHECK_CLUSTER_H_
