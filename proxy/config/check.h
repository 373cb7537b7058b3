// SPDX-License-Identifier: Apache-2.0
//
// The rules that span several values of a configuration: duplicates, families,
// ambiguous backends, a delay that outlasts its deadline. Called by load.cc
// after the decoder found every value sound by itself.

#pragma once

#include "config/diagnostics.h"
#include "proxy/api/config.pb.h"
#include "config/decode.h"

namespace hedgerow::config {

// Adds an error for each violated rule. Values that the decoder refused are
// empty or zero here; rules skip those rather than report them twice.
void Check(const v1::Config& config, const Locations& locations, Diagnostics& errors);

// The rules of services' clusters: one key in one place, one cluster described in one way, few ports, nodes told apart.
// Called by Check.
void CheckClusters(const v1::Config& config, const Locations& locations, Diagnostics& errors);

// Fills what defaults to another value: a service's primary is its first backend, suspect_max is no less than
// suspect_min, and what a profile without replies needs. `locations` says which keys were written.
void Complete(v1::Config& config, const Locations& locations);

}  // namespace hedgerow::config
