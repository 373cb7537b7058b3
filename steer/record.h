// SPDX-License-Identifier: Apache-2.0
//
// record.json in a group's folder, by which the next supervisor finds the workers, and `explain` and `clean` the pins.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "steer/api/record.pb.h"
#include "steer/settings.h"

namespace hedgerow::steer {

// Replaces the file whole.
absl::Status SaveRecord(const Places& places, const v1::Record& record);
// NotFound: there is none. FailedPrecondition: it cannot be read.
absl::StatusOr<v1::Record> LoadRecord(const Places& places);

// The groups of a run folder, by name.
std::vector<std::string> ListGroups(const std::string& run_dir);
// 1 to 32 of a-z, 0-9, - and _, so that it can be a folder's name.
absl::Status CheckName(const std::string& name);

}  // namespace hedgerow::steer
