// SPDX-License-Identifier: Apache-2.0
//
// Which firewall rules decide that VIPs are routed by an uplink (docs/adr/0055). The self-test tells whether this
// host's own packets pass its rules, and not whether forwarded ones do: for those the rules are read at a start. Used
// by the daemon.

#pragma once

#include <string>

#include "proxy/api/config.pb.h"
#include "proxy/start/topology.h"

namespace hedgerow {

// The host's rules where they decide: `vip_route: auto`, and services to which it may forward. Runs nft, which a
// confined daemon cannot. Empty: they decide nothing, or cannot be read, which is logged.
std::string RulesToLookAt(const v1::Config& config);

// A sentence about the rule that names an uplink by which no listed client comes; empty: there is none. A client that
// comes in by the uplink itself would be told by an ICMP redirect to leave this host out.
std::string RuleForForwarded(const v1::Config& config, const Topology& topology, const std::string& rules);

}  // namespace hedgerow
