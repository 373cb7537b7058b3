// SPDX-License-Identifier: Apache-2.0
//
// A node's status for people. Pure: message in, text out.

#pragma once

#include <string>

#include "cluster/api/node.pb.h"

namespace hedgerow::node {

std::string StatusText(const v1::NodeStatus& status);
std::string MembersText(const v1::NodeStatus& status);
std::string SettingsText(const v1::NodeStatus& status);

}  // namespace hedgerow::node
