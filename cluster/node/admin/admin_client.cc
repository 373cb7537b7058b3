// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/admin/admin_client.h"

#include <grpcpp/grpcpp.h>

#include "absl/time/clock.h"
#include "cluster/api/node.grpc.pb.h"
#include "cluster/node/status/status.h"
#include "operate/admin_socket.h"
#include "operate/grpc_status.h"

namespace hedgerow::node {
namespace {

class GrpcClient final : public AdminClient {
 public:
  GrpcClient(const std::shared_ptr<grpc::Channel>& channel, absl::Duration timeout)
      : timeout_(timeout), stub_(v1::NodeAdmin::NewStub(channel)) {}

  using AdminClient::GetStatus;
  absl::StatusOr<v1::NodeStatus> GetStatus(const v1::GetStatusRequest& request) override {
    return Ask(&v1::NodeAdmin::Stub::GetStatus, request);
  }

  absl::Status Transfer(raft::NodeId target) override {
    v1::TransferRequest request;
    request.set_target(target.value());
    return Ask(&v1::NodeAdmin::Stub::Transfer, request).status();
  }

  absl::Status ReadBackup(const std::function<absl::Status(const std::string&)>& take) override {
    grpc::ClientContext context;
    const auto reader = stub_->ReadBackup(&context, v1::ReadBackupRequest());
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

  absl::StatusOr<raft::LogIndex> TakeSnapshot() override {
    const auto reply = Ask(&v1::NodeAdmin::Stub::TakeSnapshot, v1::TakeSnapshotRequest());
    if (!reply.ok()) return reply.status();
    return raft::LogIndex(reply->index());
  }

  absl::StatusOr<uint32_t> ChangeMembers(const v1::ChangeMembersRequest& request) override {
    const auto reply = Ask(&v1::NodeAdmin::Stub::ChangeMembers, request);
    if (!reply.ok()) return reply.status();
    return reply->epoch();
  }

  absl::StatusOr<v1::ChangeSettingsReply> ChangeSettings(const v1::ChangeSettingsRequest& request) override {
    return Ask(&v1::NodeAdmin::Stub::ChangeSettings, request);
  }

  absl::StatusOr<v1::Keys> ReloadKeys(bool force) override {
    v1::ReloadKeysRequest request;
    request.set_force(force);
    return Ask(&v1::NodeAdmin::Stub::ReloadKeys, request);
  }

  absl::StatusOr<v1::PurgeSomeReply> PurgeSome(const v1::PurgeSomeRequest& request) override {
    return Ask(&v1::NodeAdmin::Stub::PurgeSome, request);
  }

 private:
  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Ask(grpc::Status (v1::NodeAdmin::Stub::*call)(grpc::ClientContext*, const Request&, Reply*),
                            const Request& request) {
    Reply reply;
    grpc::ClientContext context;
    // By the monotonic clock: the wall clock may be set meanwhile.
    context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                      gpr_time_from_nanos(absl::ToInt64Nanoseconds(timeout_), GPR_TIMESPAN)));
    const grpc::Status status = ((*stub_).*call)(&context, request, &reply);
    if (!status.ok()) return operate::FromGrpc(status);
    return reply;
  }

  const absl::Duration timeout_;
  std::unique_ptr<v1::NodeAdmin::Stub> stub_;
};

}  // namespace

absl::StatusOr<v1::NodeStatus> AdminClient::GetStatusOfStarted(const v1::GetStatusRequest& request) {
  absl::StatusOr<v1::NodeStatus> status = GetStatus(request);
  if (status.ok() && !status->starting().empty()) return StartingError(status->starting());
  return status;
}

absl::StatusOr<v1::NodeStatus> AdminClient::Await(const Deadline& deadline, const Judge& judge, absl::string_view late,
                                                  absl::Duration poll) {
  while (true) {
    absl::StatusOr<v1::NodeStatus> status = GetStatus();
    const absl::StatusOr<bool> done = status.ok() ? judge(*status) : absl::StatusOr<bool>(false);
    if (!done.ok()) return done.status();
    if (*done || (!status.ok() && !absl::IsDeadlineExceeded(status.status()))) return status;
    if (deadline.passed()) return status.ok() ? absl::DeadlineExceededError(late) : status;
    absl::SleepFor(poll);
  }
}

absl::StatusOr<std::unique_ptr<AdminClient>> AdminClient::Connect(const std::string& socket_path,
                                                                  absl::Duration timeout) {
  const auto channel = operate::OpenAdminChannel(
      socket_path,
      {.program = "hedgerow-node",
       .who_may = "the node's user and root may",
       .hint =
           "Start it with `systemctl start hedgerow-node` or `hedgerow-node run`, or name another socket with --socket"});
  if (!channel.ok()) return channel.status();
  return std::make_unique<GrpcClient>(*channel, timeout);
}

}  // namespace hedgerow::node
