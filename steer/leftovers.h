// SPDX-License-Identifier: Apache-2.0
//
// Pins, workers and files of a group whose supervisor died: whether the next supervisor can take it over, and how it is
// removed. Called at each start and by `hedgerow steer clean`; the caller holds the group's lock.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "steer/api/record.pb.h"
#include "steer/process.h"
#include "steer/settings.h"

namespace hedgerow::steer {

struct Leftovers {
  bool has_record = false;
  v1::Record record{};
  bool has_pins = false;
  std::string bpffs{};
  std::vector<Process> workers{};  // those that run
  bool adoptable = false;          // record and pins

  bool any() const { return has_record || has_pins; }
};

// FailedPrecondition, with advice: the group cannot be taken over, and removing it would end workers that run.
absl::StatusOr<Leftovers> FindLeftovers(const Places& places, const std::string& bpffs);
// The same without that check.
Leftovers LookForLeftovers(const Places& places, const std::string& bpffs);

// Ends workers, and removes pins and folder. `removed` gets a line for each.
absl::Status RemoveLeftovers(const Places& places, const Leftovers& found, std::vector<std::string>* removed = nullptr);

// The files of a group's folder, and the folder.
void RemoveFolder(const Places& places);

}  // namespace hedgerow::steer
