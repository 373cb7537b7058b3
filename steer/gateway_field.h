// SPDX-License-Identifier: Apache-2.0
//
// `--gateway-field`: where the UDP payload of a gateway names the device. "12:4" are 4 bytes at offset 12; a place or length that varies
// is told in the words of a profile (docs/profiles.md): `{path: [{skip: 2}, {length: 1}], request_length: 4}`.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "steer/settings.h"

namespace hedgerow::steer {

// Sets the field in `settings`, whose devices are read already. InvalidArgument says what is wrong, with the option's name.
absl::Status ReadGatewayField(const std::string& text, Settings& settings);

}  // namespace hedgerow::steer
