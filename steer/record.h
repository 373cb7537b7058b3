// SPDX-License-Identifier: Apache-2.0
//
// record.json in a group's folder, by which the next supervisor finds the workers, and `explain` and `clean` the pins.
// And pins, workers and files of a group whose supervisor died: whether the next supervisor can take it over, and how
// it is removed. The caller holds the group's lock.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "steer/api/record.pb.h"
#include "steer/process.h"
#include "steer/settings.h"

namespace hedgerow::steer {

// Replaces the file whole.
absl::Status SaveRecord(const Places& places, const v1::Record& record);
// NotFound: there is none. FailedPrecondition: it cannot be read.
absl::StatusOr<v1::Record> LoadRecord(const Places& places);

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

// Ends workers, and removes pins and folder. Returns a line for each.
absl::StatusOr<std::vector<std::string>> RemoveLeftovers(const Places& places, const Leftovers& found);

// The files of a group's folder, and the folder.
void RemoveFolder(const Places& places);

}  // namespace hedgerow::steer
