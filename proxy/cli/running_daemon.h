// SPDX-License-Identifier: Apache-2.0
//
// The daemon that serves a configuration's instance already, for `plan` and `up`.
#pragma once

#include <optional>
#include <string>

#include "proxy/api/admin.pb.h"
#include "proxy/api/config.pb.h"

namespace hedgerow::cli {

struct RunningDaemon {
  v1::Status status;
  v1::ReloadReply reload;  // what a reload of the file would change
};
// Empty where none runs in this network namespace, this user may not open its socket, or it cannot say (it may not read
// the file).
std::optional<RunningDaemon> FindRunningDaemon(const v1::Config& config, const std::string& file);

}  // namespace hedgerow::cli
