// SPDX-License-Identifier: Apache-2.0
//
// The gRPC administration server; see the header.

#include "cluster/node/admin/admin_server.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "cluster/api/node.grpc.pb.h"
#include "cluster/node/config/setting_text.h"
#include "operate/grpc_status.h"

namespace hedgerow::node {
namespace {

// A call holds a thread while it waits for the loop.
constexpr int kThreadsMax = 32;
constexpr int kRequestMax_bytes = 4096;

std::optional<raft::MemberChange::Kind> KindOf(v1::MemberChange::Kind kind) {
  switch (kind) {
    case v1::MemberChange::ADD:
      return raft::MemberChange::Kind::kAddLearner;
    case v1::MemberChange::PROMOTE:
      return raft::MemberChange::Kind::kPromote;
    case v1::MemberChange::REMOVE:
      return raft::MemberChange::Kind::kRemove;
    case v1::MemberChange::MOVE:
      return raft::MemberChange::Kind::kMove;
    default:
      return std::nullopt;
  }
}

class Service final : public v1::NodeAdmin::Service {
 public:
  Service(NodeControl& control, NodeFacts facts) : control_(control), facts_(std::move(facts)) {}

  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*, v1::NodeStatus* reply) override {
    const absl::StatusOr<NodeStatus> status = control_.Status();
    if (!status.ok()) return operate::ToGrpc(status.status());
    *reply = ToMessage(*status, facts_);
    return grpc::Status::OK;
  }

  grpc::Status Transfer(grpc::ServerContext*, const v1::TransferRequest* request, v1::TransferReply*) override {
    return operate::ToGrpc(control_.Transfer(raft::NodeId(request->target())));
  }

  grpc::Status ReadBackup(grpc::ServerContext* context, const v1::ReadBackupRequest*,
                          grpc::ServerWriter<v1::BackupPiece>* writer) override {
    const absl::StatusOr<BackupPieces> pieces = control_.OpenBackup();
    if (!pieces.ok()) return operate::ToGrpc(pieces.status());
    while (!context->IsCancelled()) {
      absl::StatusOr<std::string> piece = (*pieces)();
      if (!piece.ok()) return operate::ToGrpc(piece.status());
      if (piece->empty()) return grpc::Status::OK;
      v1::BackupPiece message;
      message.set_data(*std::move(piece));
      if (!writer->Write(message)) break;
    }
    return grpc::Status::CANCELLED;
  }

  grpc::Status TakeSnapshot(grpc::ServerContext*, const v1::TakeSnapshotRequest*,
                            v1::TakeSnapshotReply* reply) override {
    const absl::StatusOr<raft::LogIndex> index = control_.TakeSnapshot();
    if (!index.ok()) return operate::ToGrpc(index.status());
    reply->set_index(index->value());
    return grpc::Status::OK;
  }

  grpc::Status ChangeMembers(grpc::ServerContext*, const v1::ChangeMembersRequest* request,
                             v1::ChangeMembersReply* reply) override {
    std::vector<raft::MemberChange> changes;
    for (const v1::MemberChange& change : request->changes()) {
      const std::optional<raft::MemberChange::Kind> kind = KindOf(change.kind());
      if (!kind.has_value()) return operate::ToGrpc(absl::InvalidArgumentError("a change of no known kind"));
      changes.push_back({.kind = *kind, .node = raft::NodeId(change.node()), .address = change.address()});
    }
    const absl::StatusOr<uint32_t> epoch = control_.ChangeMembers(std::move(changes));
    if (!epoch.ok()) return operate::ToGrpc(epoch.status());
    reply->set_epoch(*epoch);
    return grpc::Status::OK;
  }

  grpc::Status ChangeSettings(grpc::ServerContext*, const v1::ChangeSettingsRequest* request,
                              v1::ChangeSettingsReply* reply) override {
    kv::SettingValues values;
    for (const v1::ChangeSettingsRequest::Change& change : request->changes()) {
      const absl::StatusOr<kv::SettingValue> value = ParseNamedSetting(change.name(), change.value());
      if (!value.ok()) return operate::ToGrpc(value.status());
      values.push_back(*value);
    }
    if (values.empty()) return operate::ToGrpc(absl::InvalidArgumentError("a change without a setting"));
    const absl::StatusOr<uint64_t> version = control_.ChangeSettings(std::move(values));
    if (!version.ok()) return operate::ToGrpc(version.status());
    reply->set_version(*version);
    return grpc::Status::OK;
  }

 private:
  NodeControl& control_;
  const NodeFacts facts_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<operate::AdminSocket>> ServeAdmin(const std::string& socket_path,
                                                                 NodeControl& control, NodeFacts facts) {
  return operate::AdminSocket::Listen(socket_path, std::make_unique<Service>(control, std::move(facts)),
                                      {.threads_max = kThreadsMax,
                                       .request_max_bytes = kRequestMax_bytes,
                                       .hint = "give this node its own admin_socket"});
}

}  // namespace hedgerow::node
