// SPDX-License-Identifier: Apache-2.0
//
// A node's status for people. Pure: message in, text out.

#ifndef HEDGEROW_CLUSTER_NODE_STATUS_TEXT_H_
#define HEDGEROW_CLUSTER_NODE_STATUS_TEXT_H_

#include <string>

#include "cluster/api/node.pb.h"

namespace hedgerow::node {

std::string StatusText(const v1::NodeStatus& status);
std::string MembersText(const v1::NodeStatus& status);

}  // namespace hedgerow::node

#endif  // HEDGEROW_CLUSTER_NODE_STATUS_TEXT_H_
