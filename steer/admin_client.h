// SPDX-License-Identifier: Apache-2.0
//
// The client of a supervisor's administration service (admin.h). Used by the command line, and by hedgerowd for its
// page.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "operate/admin_client.h"
#include "steer/api/steer.grpc.pb.h"
#include "steer/settings.h"

namespace hedgerow::steer {

// The groups of a run folder, by name.
std::vector<std::string> ListGroups(const std::string& run_dir);

class AdminClient : public operate::AdminClient<v1::Steer> {
 public:
  // Unavailable, in words, when no supervisor answers; PermissionDenied when this user may not ask.
  static absl::StatusOr<AdminClient> Connect(const Places& places) {
    return Open(places.admin(), "the supervisor's own user and root may");
  }
  // The same, for `show` alone, and for members of kMonitorGroup as well.
  static absl::StatusOr<AdminClient> ConnectToMonitor(const Places& places) {
    return Open(places.monitor(), "members of the group hedgerow-monitor and root may");
  }

 private:
  static absl::StatusOr<AdminClient> Open(const std::string& path, const std::string& who_may);
  using operate::AdminClient<v1::Steer>::AdminClient;
};

}  // namespace hedgerow::steer
