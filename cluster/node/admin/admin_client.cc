// SPDX-License-Identifier: Apache-2.0
//
// The administration client; see the header.

#include "cluster/node/admin/admin_client.h"

#include <grpcpp/grpcpp.h>

#include "cluster/api/node.grpc.pb.h"
#include "operate/admin_socket.h"
#include "operate/grpc_status.h"

namespace hedgerow::node {
namespace {

// By the monotonic clock: the wall clock may be set meanwhile.
gpr_timespec DeadlineAfter(absl::Duration patience) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(absl::ToInt64Nanoseconds(patience), GPR_TIMESPAN));
}

class GrpcClient final : public AdminClient {
 public:
  GrpcClient(const std::shared_ptr<grpc::Channel>& channel, absl::Duration patience)
      : patience_(patience), stub_(v1::NodeAdmin::NewStub(channel)) {}

  absl::StatusOr<v1::NodeStatus> GetStatus() override {
    v1::NodeStatus reply;
    grpc::ClientContext context;
    context.set_deadline(DeadlineAfter(patience_));
    const grpc::Status status = stub_->GetStatus(&context, v1::GetStatusRequest(), &reply);
    if (!status.ok()) return operate::FromGrpc(status);
    return reply;
  }

  absl::Status Transfer(raft::NodeId target) override {
    v1::TransferRequest request;
    request.set_target(target.value());
    v1::TransferReply reply;
    grpc::ClientContext context;
    context.set_deadline(DeadlineAfter(patience_));
    return operate::FromGrpc(stub_->Transfer(&context, request, &reply));
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
    v1::TakeSnapshotReply reply;
    grpc::ClientContext context;
    context.set_deadline(DeadlineAfter(patience_));
    const grpc::Status status = stub_->TakeSnapshot(&context, v1::TakeSnapshotRequest(), &reply);
    if (!status.ok()) return operate::FromGrpc(status);
    return raft::LogIndex(reply.index());
  }

  absl::StatusOr<uint32_t> ChangeMembers(const v1::ChangeMembersRequest& request) override {
    v1::ChangeMembersReply reply;
    grpc::ClientContext context;
    context.set_deadline(DeadlineAfter(patience_));
    const grpc::Status status = stub_->ChangeMembers(&context, request, &reply);
    if (!status.ok()) return operate::FromGrpc(status);
    return reply.epoch();
  }

  absl::StatusOr<uint64_t> ChangeSettings(const v1::ChangeSettingsRequest& request) override {
    v1::ChangeSettingsReply reply;
    grpc::ClientContext context;
    context.set_deadline(DeadlineAfter(patience_));
    const grpc::Status status = stub_->ChangeSettings(&context, request, &reply);
    if (!status.ok()) return operate::FromGrpc(status);
    return reply.version();
  }

  absl::StatusOr<v1::Keys> ReloadKeys(bool force) override {
    v1::ReloadKeysRequest request;
    request.set_force(force);
    v1::Keys reply;
    grpc::ClientContext context;
    context.set_deadline(DeadlineAfter(patience_));
    const grpc::Status status = stub_->ReloadKeys(&context, request, &reply);
    if (!status.ok()) return operate::FromGrpc(status);
    return reply;
  }

  absl::StatusOr<v1::PurgeSomeReply> PurgeSome(const v1::PurgeSomeRequest& request) override {
    v1::PurgeSomeReply reply;
    grpc::ClientContext context;
    context.set_deadline(DeadlineAfter(patience_));
    const grpc::Status status = stub_->PurgeSome(&context, request, &reply);
    if (!status.ok()) return operate::FromGrpc(status);
    return reply;
  }

 private:
  const absl::Duration patience_;
  std::unique_ptr<v1::NodeAdmin::Stub> stub_;
};

}  // namespace

absl::StatusOr<v1::NodeStatus> AdminClient::AwaitStatus(const Deadline& deadline) {
  while (true) {
    absl::StatusOr<v1::NodeStatus> status = GetStatus();
    if (!absl::IsDeadlineExceeded(status.status()) || deadline.passed()) return status;
  }
}

absl::StatusOr<std::unique_ptr<AdminClient>> AdminClient::Connect(const std::string& socket_path,
                                                                  absl::Duration patience) {
  const auto channel = operate::OpenAdminChannel(
      socket_path, {.program = "hedgerow-node", .who_may = "the node's user and root may",
                    .hint = "Start it with `systemctl start hedgerow-node` or `hedgerow-node run`, or name another socket with --socket"});
  if (!channel.ok()) return channel.status();
  return std::make_unique<GrpcClient>(*channel, patience);
}

}  // namespace hedgerow::node
