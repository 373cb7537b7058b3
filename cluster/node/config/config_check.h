// SPDX-License-Identifier: Apache-2.0
//
// The rules that span several values of a node's configuration: the members, what must differ, what must agree.
// Called by config.cc once every value was found sound by itself.

#pragma once

#include "absl/strings/string_view.h"
#include "cluster/node/config/config.h"
#include "config/diagnostics.h"
#include "config/locations.h"

namespace hedgerow::node {

// Adds an error for each violated rule. Values that were refused are empty or zero here; rules skip those
// rather than report them twice.
void CheckNodeConfig(const NodeConfig& config, const config::Locations& locations, config::Diagnostics& errors);

// Fills what defaults to another value, and brings the members into the order of their ids.
void CompleteNodeConfig(NodeConfig& config, const config::Locations& locations);

bool IsLoopback(const NetAddress& address);

// Why no datagram can be sent to this address and answered from it, or empty.
absl::string_view WhyNotUnicast(const NetAddress& address);

}  // namespace hedgerow::node
