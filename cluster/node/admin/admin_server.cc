// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/admin/admin_server.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "cluster/api/node.grpc.pb.h"
#include "cluster/node/config/setting_text.h"
#include "operate/audit.h"
#include "operate/grpc_status.h"
#include "operate/log.h"
#include "operate/unit.h"

namespace hedgerow::node {
namespace {

// A call holds a thread while it waits for the loop.
constexpr int kThreadsMax = 32;
constexpr int kRequestMax_bytes = 4096;

void WriteLine(const std::string& line) { LogInfo(line); }

std::optional<raft::MemberChange::Kind> KindOf(v1::MemberChange::Kind kind) {
  switch (kind) {
    case v1::MemberChange::ADD: return raft::MemberChange::Kind::kAddLearner;
    case v1::MemberChange::PROMOTE: return raft::MemberChange::Kind::kPromote;
    case v1::MemberChange::REMOVE: return raft::MemberChange::Kind::kRemove;
    case v1::MemberChange::MOVE: return raft::MemberChange::Kind::kMove;
    default: return std::nullopt;
  }
}

// What changes nothing. The monitoring socket has this call alone: gRPC refuses the others.
class Monitor : public v1::NodeAdmin::Service {
 public:
  Monitor(NodeControl& control, NodeFacts facts) : control_(control), facts_(std::move(facts)) {}

  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest* request, v1::NodeStatus* reply) override {
    if (request->ask_for_keys()) control_.AskForKeys();
    const absl::StatusOr<NodeStatus> status = control_.Status();
    if (!status.ok()) return operate::ToGrpc(status.status());
    *reply = ToMessage(*status, facts_);
    return grpc::Status::OK;
  }

 protected:
  NodeControl& control_;

 private:
  const NodeFacts facts_;
};

// Every call, for the node's owner. What changes something, or hands out the state, leaves a line in the log.
class Administration final : public Monitor {
 public:
  using Monitor::Monitor;

  grpc::Status Transfer(grpc::ServerContext* context, const v1::TransferRequest* request, v1::TransferReply*) override {
    return Audited(*context, *request, operate::ToGrpc(control_.Transfer(raft::NodeId(request->target()))));
  }

  grpc::Status ReadBackup(grpc::ServerContext* context, const v1::ReadBackupRequest* request,
                          grpc::ServerWriter<v1::BackupPiece>* writer) override {
    return Audited(*context, *request, Send(*context, *writer));
  }

  grpc::Status TakeSnapshot(grpc::ServerContext* context, const v1::TakeSnapshotRequest* request,
                            v1::TakeSnapshotReply* reply) override {
    const absl::StatusOr<raft::LogIndex> index = control_.TakeSnapshot();
    if (index.ok()) reply->set_index(index->value());
    return Audited(*context, *request, operate::ToGrpc(index.status()));
  }

  grpc::Status ChangeMembers(grpc::ServerContext* context, const v1::ChangeMembersRequest* request,
                             v1::ChangeMembersReply* reply) override {
    const absl::StatusOr<uint32_t> epoch = Change(*request);
    if (epoch.ok()) reply->set_epoch(*epoch);
    return Audited(*context, *request, operate::ToGrpc(epoch.status()));
  }

  grpc::Status ChangeSettings(grpc::ServerContext* context, const v1::ChangeSettingsRequest* request,
                              v1::ChangeSettingsReply* reply) override {
    return Audited(*context, *request, Give(Change(*request), reply));
  }

  grpc::Status ReloadKeys(grpc::ServerContext* context, const v1::ReloadKeysRequest* request,
                          v1::Keys* reply) override {
    return Audited(*context, *request, Give(control_.ReloadKeys(request->force()), reply));
  }

  // One line for a walk, which asks for many portions.
  grpc::Status PurgeSome(grpc::ServerContext* context, const v1::PurgeSomeRequest* request,
                         v1::PurgeSomeReply* reply) override {
    const grpc::Status result = Give(control_.PurgeSome(*request), reply);
    return request->has_position() ? result : Audited(*context, *request, result);
  }

 private:
  template <typename Reply>
  static grpc::Status Give(absl::StatusOr<Reply> given, Reply* reply) {
    if (given.ok()) *reply = *std::move(given);
    return operate::ToGrpc(given.status());
  }

  static grpc::Status Audited(const grpc::ServerContext& context, const google::protobuf::Message& request,
                              grpc::Status result) {
    return operate::Audited(WriteLine, context, request, std::move(result));
  }

  grpc::Status Send(const grpc::ServerContext& context, grpc::ServerWriter<v1::BackupPiece>& writer) {
    const absl::StatusOr<BackupPieces> pieces = control_.OpenBackup();
    if (!pieces.ok()) return operate::ToGrpc(pieces.status());
    while (!context.IsCancelled()) {
      absl::StatusOr<std::string> piece = (*pieces)();
      if (!piece.ok()) return operate::ToGrpc(piece.status());
      if (piece->empty()) return grpc::Status::OK;
      v1::BackupPiece message;
      message.set_data(*std::move(piece));
      if (!writer.Write(message)) break;
    }
    return grpc::Status::CANCELLED;
  }

  absl::StatusOr<uint32_t> Change(const v1::ChangeMembersRequest& request) {
    std::vector<raft::MemberChange> changes;
    for (const v1::MemberChange& change : request.changes()) {
      const std::optional<raft::MemberChange::Kind> kind = KindOf(change.kind());
      if (!kind.has_value()) return absl::InvalidArgumentError("a change of no known kind");
      changes.push_back({.kind = *kind, .node = raft::NodeId(change.node()), .address = change.address()});
    }
    return control_.ChangeMembers(std::move(changes));
  }

  absl::StatusOr<v1::ChangeSettingsReply> Change(const v1::ChangeSettingsRequest& request) {
    kv::SettingValues values;
    for (const v1::ChangeSettingsRequest::Change& change : request.changes()) {
      const absl::StatusOr<kv::SettingValue> value = ParseNamedSetting(change.name(), change.value());
      if (!value.ok()) return value.status();
      values.push_back(*value);
    }
    if (values.empty()) return absl::InvalidArgumentError("a change without a setting");
    return control_.ChangeSettings(std::move(values));
  }
};

operate::AdminSocket::Options OptionsOf(const std::string& hint, const std::string& group) {
  return {.threads_max = kThreadsMax,
          .request_max_bytes = kRequestMax_bytes,
          .hint = hint,
          .group = group,
          .log = WriteLine};
}

}  // namespace

absl::StatusOr<std::unique_ptr<operate::AdminSocket>> ServeAdmin(const std::string& socket_path, NodeControl& control,
                                                                 NodeFacts facts) {
  return operate::AdminSocket::Listen(socket_path, std::make_unique<Administration>(control, std::move(facts)),
                                      OptionsOf("give this node its own admin_socket", ""));
}

std::string MonitorSocketOf(const NodeConfig& config) {
  return operate::MonitorSocketOr(config.monitor_socket, config.admin_socket, config.monitor_group);
}

absl::StatusOr<std::unique_ptr<operate::AdminSocket>> ServeMonitor(const NodeConfig& config, NodeControl& control,
                                                                   NodeFacts facts) {
  return operate::AdminSocket::ListenForGroup(config.monitor_socket, config.admin_socket,
                                              std::make_unique<Monitor>(control, std::move(facts)),
                                              OptionsOf("give this node its own monitor_socket", config.monitor_group));
}

}  // namespace hedgerow::node
