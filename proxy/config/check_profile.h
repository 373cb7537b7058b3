// SPDX-License-Identifier: Apache-2.0
//
// What must be true of profiles beyond single values: their parts fit each other and the kernel's places for
// them, only what may be duplicated is, and time is hedged only where the configuration insists. Called by
// check.cc, and by built_in_profiles.cc.

#pragma once

#include "config/diagnostics.h"
#include "config/locations.h"
#include "proxy/api/config.pb.h"

namespace hedgerow::config {

// Is this the well-known port of a protocol without replies? There `profile: raw` without a `one_way` key means
// one_way.
bool IsPortOfOneWay(uint32_t port);

// A profile that is a file of its own.
void CheckProfile(const v1::Profile& profile, const Locations& locations, Diagnostics& errors);

// The profiles of all services, and the keys that go with them.
void CheckProfiles(const v1::Config& config, const Locations& locations, Diagnostics& errors);

}  // namespace hedgerow::config
