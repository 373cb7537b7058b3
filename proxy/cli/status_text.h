// SPDX-License-Identifier: Apache-2.0
//
// What the daemon answers, for people. Pure: message in, text out.

#pragma once

#include <string>

#include "proxy/api/admin.pb.h"

namespace hedgerow::cli {

std::string StatusText(const v1::Status& status);

// What `drain` and `undrain` have come to, a line for each service.
std::string DrainText(const v1::DrainReply& reply);

// What `reload` prints: the differences, and what became of them.
std::string ReloadText(const v1::ReloadReply& reply, bool dry_run);

// One line, for `leader`: the leader, the source that named it, and its cluster's last announcement.
std::string LeaderText(const v1::Leader& leader);

}  // namespace hedgerow::cli
