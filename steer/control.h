// SPDX-License-Identifier: Apache-2.0
//
// A running group as the administration service and the metrics page see it. Called on the event loop's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "steer/api/steer.pb.h"

namespace hedgerow::steer {

class Control {
 public:
  virtual ~Control() = default;
  virtual absl::StatusOr<v1::Group> Show() = 0;
  virtual absl::StatusOr<v1::Change> Resize(uint32_t workers) = 0;
  virtual absl::StatusOr<v1::Change> SetWeights(const std::vector<double>& weights) = 0;
  virtual absl::StatusOr<v1::Change> Drain(uint32_t slot, bool drain) = 0;
  virtual absl::StatusOr<v1::Slot> RestartWorker(uint32_t slot) = 0;
  // Replaces the worker of a slot, or of each in turn, by one that serves beside it until it is ready. Returns when the
  // first one is started.
  virtual absl::StatusOr<v1::Group> Reload(std::optional<uint32_t> slot) = 0;
  // Begins the shutdown and returns before it is complete.
  virtual absl::StatusOr<v1::StopReply> Stop() = 0;
};

}  // namespace hedgerow::steer
