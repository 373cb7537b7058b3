// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/admin/admin_client.h"

#include "absl/time/clock.h"
#include "cluster/node/status/status.h"
#include "operate/admin_socket.h"

namespace hedgerow::node {

absl::Status AdminClient::ReadBackup(const std::function<absl::Status(const std::string&)>& take) const {
  grpc::ClientContext context;
  const auto reader = stub().ReadBackup(&context, v1::ReadBackupRequest());
  v1::BackupPiece piece;
  absl::Status taken;
  // To the end, whatever becomes of it: else Finish does not return.
  while (reader->Read(&piece)) {
    if (taken.ok()) taken = take(piece.data());
    if (!taken.ok()) context.TryCancel();
  }
  const grpc::Status status = reader->Finish();
  return taken.ok() ? operate::FromGrpc(status) : taken;
}

absl::StatusOr<v1::NodeStatus> AdminClient::GetStatusOfStarted(const v1::GetStatusRequest& request) const {
  absl::StatusOr<v1::NodeStatus> status = GetStatus(request);
  if (status.ok() && !status->starting().empty()) return StartingError(status->starting());
  return status;
}

absl::StatusOr<v1::NodeStatus> AdminClient::Await(const Deadline& deadline, const Judge& judge, absl::string_view late,
                                                  absl::Duration poll) const {
  while (true) {
    absl::StatusOr<v1::NodeStatus> status = GetStatus();
    const absl::StatusOr<bool> done = status.ok() ? judge(*status) : absl::StatusOr<bool>(false);
    if (!done.ok()) return done.status();
    if (*done || (!status.ok() && !absl::IsDeadlineExceeded(status.status()))) return status;
    if (deadline.passed()) return status.ok() ? absl::DeadlineExceededError(late) : status;
    absl::SleepFor(poll);
  }
}

absl::StatusOr<AdminClient> AdminClient::Connect(const std::string& socket_path) {
  const auto channel = operate::OpenAdminChannel(
      socket_path,
      {.program = "hedgerow-node",
       .who_may = "the node's user and root may",
       .hint =
           "Start it with `systemctl start hedgerow-node` or `hedgerow-node run`, or name another socket with --socket"});
  if (!channel.ok()) return channel.status();
  return AdminClient(*channel);
}

}  // namespace hedgerow::node
