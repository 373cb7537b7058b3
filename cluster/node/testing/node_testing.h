// SPDX-License-Identifier: Apache-2.0
//
// For tests: whole nodes in one process, on loopback sockets and real storage; three of them, and a client's
// datagrams.

#pragma once

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <poll.h>

#include <gtest/gtest.h>

#include "cluster/node/node.h"
#include "cluster/node/testing/socket_testing.h"

namespace hedgerow::node {

// A node with its thread.
struct Running {
  std::unique_ptr<Node> node;
  std::thread thread;
  absl::Status ended;

  explicit Running(const NodeConfig& config) {
    absl::StatusOr<std::unique_ptr<Node>> made = Node::Create(config);
    EXPECT_TRUE(made.ok()) << made.status();
    node = *std::move(made);
    thread = std::thread([this] { ended = node->Run(); });
  }
  ~Running() {
    node->RequestStop();
    thread.join();
    EXPECT_TRUE(ended.ok()) << ended;
  }
};

// For the names of cases.
inline std::string DurabilityOf(const testing::TestParamInfo<Durability>& info) {
  return std::string(Name(info.param));
}

// A folder for the nodes of one cluster; which nodes those are is the fixture's that derives from this one.
class NodeFolderTest : public testing::TestWithParam<Durability> {
 protected:
  void SetUp() override {
    std::string made = testing::TempDir() + "hedgerow-node-test.XXXXXX";
    ASSERT_NE(mkdtemp(made.data()), nullptr);
    folder_ = made;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // Of one node, without the members and what it serves.
  NodeConfig ConfigWithoutMembers(uint64_t id) const {
    NodeConfig config;
    config.cluster_id = 7;
    wire::Key key;
    key.bytes.fill(0x11);
    config.cluster_keys = key;
    config.self = raft::NodeId(id);
    config.durability = GetParam();
    config.data_dir = folder_ + "/" + std::to_string(id);
    config.snapshots = snapshots_;
    config.admin_socket.clear();  // a folder that is there would remember the node's starts
    return config;
  }
  static bool Eventually(const std::function<bool()>& holds) {
    for (int i = 0; i < 3000; ++i) {
      if (holds()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  static uint64_t CounterIn(const NodeStatus& status, const std::string& name, const std::string& reason) {
    for (const NodeCounter& counter : status.counters) {
      if (counter.name == name && counter.reason == reason) return counter.value;
    }
    ADD_FAILURE() << "no counter " << name << "." << reason;
    return 0;
  }
  // 0: there is none yet.
  virtual uint64_t Leader() = 0;
  uint64_t WaitForLeader() {
    uint64_t leader = 0;
    EXPECT_TRUE(Eventually([&] { return (leader = Leader()) != 0; }));
    return leader;
  }

  std::string folder_;
  SnapshotsConfig snapshots_;
};

// Nodes 1 to 3, which run, and a proxy's socket that they announce their leader to.
class NodeTest : public NodeFolderTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(NodeFolderTest::SetUp());
    for (uint64_t id = 1; id <= 3; ++id) {
      members_.push_back({.id = raft::NodeId(id), .peer = FreeAddress(), .serve = FreeAddress()});
    }
    proxy_socket_ = AnySocket();
    for (uint64_t id = 1; id <= 3; ++id) Start(id);
  }
  void TearDown() override {
    nodes_ = {};
    NodeFolderTest::TearDown();
  }

  virtual NodeConfig ConfigOf(uint64_t id) const {
    NodeConfig config = ConfigWithoutMembers(id);
    config.announce_keys = wire::Key();
    config.members = members_;
    config.serve = members_[id - 1].serve;
    config.proxies = {{.name = "proxy", .address = proxy_socket_->LocalAddress().value()}};
    config.waiting_max = waiting_max_;
    return config;
  }
  void Start(uint64_t id) { nodes_[id - 1] = std::make_unique<Running>(ConfigOf(id)); }
  void Stop(uint64_t id) { nodes_[id - 1].reset(); }
  // The folder of a node that does not run.
  void MoveAway(uint64_t id) const {
    std::filesystem::rename(ConfigOf(id).data_dir, ConfigOf(id).data_dir + ".before");
  }

  NodeStatus StatusOf(uint64_t id) { return nodes_[id - 1]->node->Status().value(); }
  uint64_t Counter(uint64_t node, const std::string& name, const std::string& reason) {
    return CounterIn(StatusOf(node), name, reason);
  }
  // 0: the nodes that run do not agree on one of them.
  uint64_t Leader() override {
    uint64_t leader = 0;
    for (uint64_t id = 1; id <= 3; ++id) {
      if (nodes_[id - 1] == nullptr) continue;
      const NodeStatus status = StatusOf(id);
      if (!status.ready || (leader != 0 && status.leader.value() != leader)) return 0;
      leader = status.leader.value();
    }
    return leader != 0 && nodes_[leader - 1] != nullptr ? leader : 0;
  }

  // A busy machine may let another node win an election meanwhile: that one hands over.
  bool WaitUntilLeads(uint64_t id) {
    return Eventually([&] {
      const uint64_t leader = Leader();
      if (leader != 0 && leader != id) (void)nodes_[leader - 1]->node->Transfer(raft::NodeId(id));
      return leader == id;
    });
  }

  // Asks the leader of the moment, until it accepts.
  bool Change(const std::vector<raft::MemberChange>& changes) {
    absl::Status refusal;
    const bool begun = Eventually([&] {
      const uint64_t leader = Leader();
      if (leader == 0) return false;
      refusal = nodes_[leader - 1]->node->ChangeMembers(changes).status();
      return refusal.ok();
    });
    EXPECT_TRUE(begun) << refusal;
    return begun;
  }

  // One datagram to one node, and its answer.
  std::optional<wire::HkvAnswer> Ask(uint64_t node, wire::HkvRequest request) {
    request.timeout_us = 4'000'000;
    const std::unique_ptr<UdpSocket> socket = AnySocket();
    socket->Send(members_[node - 1].serve, wire::Encode(request));
    socket->Flush();
    pollfd ready{.fd = socket->fd(), .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, 5000) != 1) return std::nullopt;
    const std::vector<Datagram>& received = socket->Receive(Now_ns());
    if (received.size() != 1) return std::nullopt;
    return wire::ParseHkvAnswer(received[0].bytes);
  }
  // The same again, as a client would, until it is done: on a busy machine a leader may lose its office for a
  // moment and win it back. After ten seconds: the last answer, if there was any.
  std::optional<wire::HkvAnswer> AskUntilDone(uint64_t node, const wire::HkvRequest& request) {
    const uint64_t until_ns = Now_ns() + 10'000'000'000;
    while (true) {
      const std::optional<wire::HkvAnswer> answer = Ask(node, request);
      const bool done = answer.has_value() && answer->status != wire::HkvStatus::kNotLeader &&
                        answer->status != wire::HkvStatus::kOverloaded;
      if (done || Now_ns() >= until_ns) return answer;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  uint64_t Open(uint64_t node) {
    const auto answer = AskUntilDone(node, {.kind = wire::HkvKind::kOpen, .seq = ++nonce_});
    EXPECT_TRUE(answer.has_value());
    if (!answer.has_value()) return 0;
    tokens_[answer->session] = answer->token;
    return answer->session;
  }
  // Of a session that was opened here; 0 of any other.
  uint64_t TokenOf(uint64_t session) const {
    const auto token = tokens_.find(session);
    return token == tokens_.end() ? 0 : token->second;
  }
  std::string Increment(uint64_t node, uint64_t session, uint64_t seq) {
    const auto answer =
        AskUntilDone(node, {.kind = wire::HkvKind::kWrite,
                            .client_id = session,
                            .seq = seq,
                            .lowest_unanswered = session != wire::kHkvNoSession ? seq : 0,
                            .token = TokenOf(session),
                            .operations = {{.kind = kv::OperationKind::kIncrement, .key = "n", .delta = 1}}});
    if (!answer.has_value() || answer->values.size() != 1) return "no answer";
    return answer->values[0];
  }
  std::string Get(uint64_t node, uint64_t seq) {
    const auto answer = AskUntilDone(node, {.kind = wire::HkvKind::kGet, .client_id = 5, .seq = seq, .key = "n"});
    return answer.has_value() ? answer->value : "no answer";
  }

  std::vector<MemberConfig> members_;
  std::unique_ptr<UdpSocket> proxy_socket_;
  std::array<std::unique_ptr<Running>, 3> nodes_;
  uint64_t nonce_ = 100;
  std::map<uint64_t, uint64_t> tokens_;  // by session
  size_t waiting_max_ = 16'384;
};

}  // namespace hedgerow::node
