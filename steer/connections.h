// SPDX-License-Identifier: Apache-2.0
//
// The open TCP connections of a group, by source: a source with one keeps its worker while its bucket moves (change.h).
#pragma once

#include <set>

#include "absl/status/statusor.h"
#include "net/ip_address.h"
#include "steer/settings.h"

namespace hedgerow::steer {

// The other ends of the connections of this network namespace to `listen`, accepted or not: those on which data may still come.
absl::StatusOr<std::set<net::IpAddress>> OpenConnections(const Listen& listen);

}  // namespace hedgerow::steer
