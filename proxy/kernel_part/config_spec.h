// SPDX-License-Identifier: Apache-2.0
//
// A specification before it is written: are its services sound, and has everything an id of its own? And a service of
// it as the kernel programs read it. Pure.
#pragma once

#include "absl/status/status.h"
#include "proxy/data_plane/data_plane.h"

namespace hedgerow {

// The same with ids, in order of appearance, for what has none yet.
DataPlaneSpec WithIds(DataPlaneSpec spec);
// kInvalidArgument: a service is not sound, or an id is out of bounds or stands twice, which would overwrite elements
// of another.
absl::Status CheckSpec(const DataPlaneSpec& spec, const DataPlaneRoom& room);
// `spec` is one of the services of `all`, which is checked. `before`: the published one. A removed backend's id stays
// in its place, for those of its requests that are in flight.
hr_service_config MakeConfig(const DataPlaneSpec& all, const ServiceSpec& spec, const hr_service_config& before);

}  // namespace hedgerow
