// SPDX-License-Identifier: Apache-2.0
//
// The command line's side of a node's administration socket. Any thread.

#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cluster/api/node.grpc.pb.h"
#include "cluster/node/host/deadline.h"
#include "operate/admin_client.h"

namespace hedgerow::node {

class AdminClient : public operate::AdminClient<v1::NodeAdmin> {
 public:
  // Unavailable, saying so in words, when no node answers on the socket; PermissionDenied when this user may
  // not open it.
  static absl::StatusOr<AdminClient> Connect(const std::string& socket_path);

  // Errors are those of NodeControl.
  absl::StatusOr<v1::NodeStatus> GetStatus(const v1::GetStatusRequest& request = {}) const {
    return Ask(&Stub::GetStatus, request);
  }
  // For commands that show or change what a node has only once it is there: StartingError before.
  absl::StatusOr<v1::NodeStatus> GetStatusOfStarted(const v1::GetStatusRequest& request = {}) const;
  // `take` gets the file's bytes in order; what it returns ends it. Takes as long as it takes.
  absl::Status ReadBackup(const std::function<absl::Status(const std::string&)>& take) const;

  // Asks until `judge` has seen what a command waits for: that status, or the error that `judge` gives.
  // DeadlineExceeded, with the text `late`: it did not come about in time. A node whose loop is late once is asked
  // again.
  using Judge = std::function<absl::StatusOr<bool>(const v1::NodeStatus&)>;
  absl::StatusOr<v1::NodeStatus> Await(const Deadline& deadline, const Judge& judge, absl::string_view late,
                                       absl::Duration poll = absl::Milliseconds(20)) const;

 private:
  using operate::AdminClient<v1::NodeAdmin>::AdminClient;
};

}  // namespace hedgerow::node
