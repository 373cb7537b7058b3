// SPDX-License-Identifier: Apache-2.0
//
// The administration service end to end in one process: real gRPC over a real unix socket, a fake node. What
// the socket itself guarantees is tested in operate/.

#include <stdlib.h>
#include <unistd.h>

#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "cluster/node/admin/admin_client.h"
#include "cluster/node/admin/admin_server.h"
#include "cluster/node/testing/fake_node_control.h"
#include "operate/admin_socket.h"
#include "operate/call_each_test.h"

namespace hedgerow::node {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Stub = AdminClient::Stub;

class NodeAdminTest : public testing::Test {
 protected:
  NodeAdminTest() {
    char pattern[] = "/tmp/hedgerow-node-admin-test.XXXXXX";
    folder_ = mkdtemp(pattern);
    socket_ = folder_ + "/run/admin.sock";
    auto server = ServeAdmin(socket_, control_, FakeFacts());
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~NodeAdminTest() override {
    server_.reset();
    rmdir((folder_ + "/run").c_str());
    EXPECT_EQ(rmdir(folder_.c_str()), 0) << "something was left in " << folder_;
  }
  AdminClient Connect() {
    auto client = AdminClient::Connect(socket_);
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

  FakeNodeControl control_;
  std::string folder_;
  std::string socket_;
  std::unique_ptr<operate::AdminSocket> server_;
};

TEST_F(NodeAdminTest, StatusCrossesTheSocket) {
  const auto status = Connect().GetStatus();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->pid(), getpid());
  EXPECT_EQ(status->term(), 4u);
  EXPECT_EQ(status->peers_size(), 2);
  EXPECT_EQ(status->counters().at("hkv_requests"), 1234u);
}

TEST_F(NodeAdminTest, AChangeOfMembersReachesTheNodeAsOneStep) {
  v1::ChangeMembersRequest request;
  auto& promote = *request.add_changes();
  promote.set_kind(v1::MemberChange::PROMOTE);
  promote.set_node(4);
  auto& remove = *request.add_changes();
  remove.set_kind(v1::MemberChange::REMOVE);
  remove.set_node(2);
  const auto client = Connect();
  const auto epoch = client.Ask(&Stub::ChangeMembers, request);
  ASSERT_TRUE(epoch.ok()) << epoch.status();
  EXPECT_EQ(epoch->epoch(), 2u);
  ASSERT_EQ(control_.changes().size(), 1u);
  EXPECT_EQ(control_.changes()[0].size(), 2u);
  EXPECT_EQ(control_.changes()[0][1].kind, raft::MemberChange::Kind::kRemove);
  EXPECT_EQ(control_.changes()[0][1].node, raft::NodeId(2));
  request.add_changes();
  EXPECT_TRUE(absl::IsInvalidArgument(client.Ask(&Stub::ChangeMembers, request).status())) << "of no known kind";
  control_.FailChanges(absl::FailedPreconditionError("node 4 has not caught up"));
  request.mutable_changes()->RemoveLast();
  EXPECT_TRUE(absl::IsFailedPrecondition(client.Ask(&Stub::ChangeMembers, request).status()));
}

// A call that is added later is refused to monitors, and leaves a line, unless it is listed here.
TEST_F(NodeAdminTest, WhatIsNoReadIsForTheOwnerAndLeavesALineInTheLog) {
  const std::set<std::string> reads = {"GetStatus"};
  NodeConfig config;
  config.monitor_socket = folder_ + "/run/monitor.sock";
  config.monitor_group = absl::StrCat(getegid());
  auto monitor = ServeMonitor(config, control_, FakeFacts());
  ASSERT_TRUE(monitor.ok()) << monitor.status();
  const google::protobuf::ServiceDescriptor& service =
      *google::protobuf::DescriptorPool::generated_pool()->FindServiceByName("hedgerow.node.v1.NodeAdmin");
  const operate::AdminPeer peer{.program = "hedgerow-node", .who_may = "", .hint = ""};
  for (const auto& [name, status] :
       operate::CallEach(*operate::OpenAdminChannel(config.monitor_socket, peer), service)) {
    EXPECT_EQ(status.ok(), reads.contains(name)) << name;
    EXPECT_EQ(operate::IsMissing(status), !reads.contains(name)) << name;
  }
  testing::internal::CaptureStderr();
  const auto called = operate::CallEach(*operate::OpenAdminChannel(socket_, peer), service);
  server_.reset();  // waits for handlers that are still at work
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_GT(called.size(), reads.size());
  for (const auto& [name, status] : called) {
    EXPECT_FALSE(operate::IsMissing(status)) << name;
    const std::string line = absl::StrCat("process ", getpid(), ": ", name, " {");
    EXPECT_EQ(absl::StrContains(log, line), !reads.contains(name)) << log;
  }
}

TEST_F(NodeAdminTest, ATransferReachesTheNodeWithItsTarget) {
  auto client = Connect();
  v1::TransferRequest request;
  request.set_target(3);
  EXPECT_TRUE(client.Ask(&Stub::Transfer, request).ok());
  EXPECT_TRUE(client.Ask(&Stub::Transfer).ok());
  EXPECT_THAT(control_.targets(), ElementsAre(raft::NodeId(3), raft::NodeId()));
}

TEST_F(NodeAdminTest, ASnapshotIsTaken) {
  const auto index = Connect().Ask(&Stub::TakeSnapshot);
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_EQ(index->index(), 1042u);
  EXPECT_EQ(Connect().GetStatus()->snapshots().last_index(), 1042u);
}

TEST_F(NodeAdminTest, TheNodesErrorsReachTheCaller) {
  control_.FailTransfers(absl::FailedPreconditionError("node 2 leads; ask it"));
  const absl::Status transfer = Connect().Ask(&Stub::Transfer).status();
  EXPECT_EQ(transfer.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(transfer.message(), "node 2 leads; ask it");
  control_.Set(absl::DeadlineExceededError("the loop does not answer"));
  const absl::Status status = Connect().GetStatus().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(status.message(), "the loop does not answer");
}

TEST_F(NodeAdminTest, ManyMayAskAtOnce) {
  std::vector<std::thread> askers;
  for (int i = 0; i < 16; ++i) {
    askers.emplace_back([this] {
      const auto client = AdminClient::Connect(socket_);
      ASSERT_TRUE(client.ok()) << client.status();
      for (int j = 0; j < 20; ++j) EXPECT_TRUE(client->GetStatus().ok());
    });
  }
  for (std::thread& asker : askers) asker.join();
}

// Answers when told to.
class SlowControl final : public NodeControl {
 public:
  absl::StatusOr<NodeStatus> Status() override {
    released.WaitForNotification();
    return FakeStatus();
  }
  absl::Status Transfer(raft::NodeId) override { return absl::OkStatus(); }
  absl::Notification released;
};

TEST_F(NodeAdminTest, AClientWaitsNoLongerThanItsTimeout) {
  SlowControl slow;
  const std::string path = folder_ + "/slow.sock";
  auto server = ServeAdmin(path, slow, FakeFacts());
  ASSERT_TRUE(server.ok()) << server.status();
  const auto client = AdminClient::Connect(path);
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ(client->Ask(&Stub::GetStatus, {}, absl::Milliseconds(100)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(client->Ask(&Stub::Transfer).ok()) << "one stuck call does not stop others";
  slow.released.Notify();
}

TEST_F(NodeAdminTest, ASecondServerOnTheSameSocketIsRefused) {
  const auto second = ServeAdmin(socket_, control_, FakeFacts());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("; give this node its own admin_socket"));
  EXPECT_TRUE(Connect().GetStatus().ok()) << "the first one is unharmed";
}

TEST(NodeAdminClient, AMissingServerIsUnavailable) {
  const auto client = AdminClient::Connect("/tmp/hedgerow-no-such-node.sock");
  EXPECT_EQ(client.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(client.status().message()), HasSubstr("hedgerow-node is not running"));
}

}  // namespace
}  // namespace hedgerow::node
