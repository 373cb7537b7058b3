// SPDX-License-Identifier: Apache-2.0
//
// Configuration and topology to what the data plane is told. Pure.

#ifndef HEDGEROW_PROXY_DAEMON_SPEC_H_
#define HEDGEROW_PROXY_DAEMON_SPEC_H_

#include <cstdint>
#include <vector>

#include "proxy/api/config.pb.h"
#include "proxy/api/record.pb.h"
#include "proxy/daemon/topology.h"
#include "proxy/data_plane/data_plane.h"

namespace hedgerow {

struct OwnLinks {
  net::VethPair proxy;  // hr0 and its peer
  net::VethPair clock;  // the end with the queueing discipline, and the end whose ingress runs the clock
  net::VethPair delay;  // engine qdisc: the same for the delay line; ifindex 0 otherwise
};

// The services' different delays, in order of appearance: the delay line's classes.
std::vector<uint64_t> DelaysOf(const v1::Config& config);

// With the roster's numbers for what is in it. `line_delays_ns`: the classes of a delay line that was made for
// an earlier configuration; empty: DelaysOf(config).
DataPlaneSpec MakeSpec(const v1::Config& config, const Topology& topology, const OwnLinks& links,
                       const v1::Roster& roster = {}, std::vector<uint64_t> line_delays_ns = {});

}  // namespace hedgerow

#endif  // HEDGEROW_PROXY_DAEMON_SPEC_H_
