// SPDX-License-Identifier: Apache-2.0
//
// The command line's side of a node's administration socket: one
// short-lived connection per command. Any thread.

#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cluster/api/node.pb.h"
#include "cluster/node/host/deadline.h"
#include "cluster/raft/types.h"

namespace hedgerow::node {

class AdminClient {
 public:
  // Longer than a node's own timeout with its loop, so that the node's words arrive.
  static constexpr absl::Duration kTimeout = absl::Seconds(10);

  // Unavailable, saying so in words, when no node answers on the socket; PermissionDenied when this user may
  // not open it. A call that takes longer than `timeout` is DeadlineExceeded.
  static absl::StatusOr<std::unique_ptr<AdminClient>> Connect(const std::string& socket_path,
                                                              absl::Duration timeout = kTimeout);
  virtual ~AdminClient() = default;

  // Errors are those of NodeControl.
  virtual absl::StatusOr<v1::NodeStatus> GetStatus(const v1::GetStatusRequest& request) = 0;
  absl::StatusOr<v1::NodeStatus> GetStatus() { return GetStatus(v1::GetStatusRequest()); }
  // For commands that show or change what a node has only once it is there: StartingError before.
  absl::StatusOr<v1::NodeStatus> GetStatusOfStarted(const v1::GetStatusRequest& request = {});
  virtual absl::Status Transfer(raft::NodeId target) = 0;
  // `take` gets the file's bytes in order; what it returns ends it. Takes as long as it takes.
  virtual absl::Status ReadBackup(const std::function<absl::Status(const std::string&)>& take) = 0;
  virtual absl::StatusOr<raft::LogIndex> TakeSnapshot() = 0;
  virtual absl::StatusOr<uint32_t> ChangeMembers(const v1::ChangeMembersRequest& request) = 0;
  virtual absl::StatusOr<v1::ChangeSettingsReply> ChangeSettings(const v1::ChangeSettingsRequest& request) = 0;
  virtual absl::StatusOr<v1::Keys> ReloadKeys(bool force) = 0;
  virtual absl::StatusOr<v1::PurgeSomeReply> PurgeSome(const v1::PurgeSomeRequest& request) = 0;

  // Asks until `judge` has seen what a command waits for: that status, or the error that `judge` gives.
  // DeadlineExceeded, with the text `late`: it did not come about in time. A node whose loop is late once is asked
  // again.
  using Judge = std::function<absl::StatusOr<bool>(const v1::NodeStatus&)>;
  absl::StatusOr<v1::NodeStatus> Await(const Deadline& deadline, const Judge& judge, absl::string_view late,
                                       absl::Duration poll = absl::Milliseconds(20));
};

}  // namespace hedgerow::node
