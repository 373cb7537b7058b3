// SPDX-License-Identifier: Apache-2.0
//
// Configuration and topology to what the data plane is told. Pure.

#pragma once

#include "proxy/api/config.pb.h"
#include "proxy/api/record.pb.h"
#include "proxy/start/topology.h"
#include "proxy/data_plane/data_plane.h"

namespace hedgerow {

struct OwnLinks {
  net::VethPair proxy;  // hr0 and its peer
  net::VethPair clock;  // the end with the queueing discipline, and the end whose ingress runs the clock
};

// With the roster's ids for what is in it.
DataPlaneSpec MakeSpec(const v1::Config& config, const Topology& topology, const OwnLinks& links,
                       const v1::Roster& roster = {});

}  // namespace hedgerow
