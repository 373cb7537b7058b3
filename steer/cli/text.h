// SPDX-License-Identifier: Apache-2.0
//
// What the commands print for people. Pure.
#pragma once

#include <string>
#include <vector>

#include "bpf/abi/steer_abi.h"
#include "steer/api/steer.pb.h"

namespace hedgerow::steer::cli {

// The first row is the heading; columns of numbers stand to the right.
std::string TableText(const std::vector<std::vector<std::string>>& rows);
std::string GroupText(const v1::Group& group);
std::string ChangeText(const v1::Change& change);
std::string ExplanationText(const v1::Explanation& explanation);
// "IPv4 192.0.2.7", "IPv6 2001:db8::/64", "device 7", "field 0a0b"
std::string SourceText(const hr_steer_source& source, const hr_steer_config& config);

}  // namespace hedgerow::steer::cli
