// SPDX-License-Identifier: Apache-2.0
//
// Changes of membership with whole nodes, on loopback sockets and real storage, while a client writes: no write
// is lost, none is done twice, and none goes unanswered.
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <poll.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/node/testing/node_testing.h"
#include "cluster/node/status/status_message.h"

namespace hedgerow::node {
namespace {

using namespace std::chrono_literals;
using Kind = raft::MemberChange::Kind;
using testing::HasSubstr;

class NodeMembersTest : public NodeFolderTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(NodeFolderTest::SetUp());
    for (uint64_t id = 1; id <= 5; ++id) {
      addresses_[id] = {.id = raft::NodeId(id), .peer = FreeAddress(), .serve = FreeAddress()};
    }
    snapshots_.tail_entries = 1;  // of a snapshot that is asked for
    for (uint64_t id = 1; id <= 3; ++id) Start(id, {1, 2, 3}, false);
    ASSERT_NE(WaitForLeader(), 0u);
  }
  void TearDown() override {
    StopWriting();
    nodes_.clear();
    NodeFolderTest::TearDown();
  }

  void Start(uint64_t id, const std::vector<uint64_t>& members, bool join) {
    nodes_[id] = std::make_unique<Running>(ConfigOf(id, members, join));
  }
  NodeConfig ConfigOf(uint64_t id, const std::vector<uint64_t>& members, bool join) {
    NodeConfig config = ConfigWithoutMembers(id);
    for (const uint64_t member : members) config.members.push_back(addresses_.at(member));
    config.serve = addresses_.at(id).serve;
    config.join = join;
    return config;
  }
  void Join(uint64_t id) { Start(id, {id}, true); }
  void Stop(uint64_t id) { nodes_.erase(id); }
  NodeStatus StatusOf(uint64_t id) { return nodes_.at(id)->node->Status().value(); }

  uint64_t Leader() override {
    for (const auto& [id, running] : nodes_) {
      if (StatusOf(id).role == raft::Role::kLeader && StatusOf(id).ready) return id;
    }
    return 0;
  }
  // Asks whoever leads until it is taken up, then until it is done.
  bool Change(const std::vector<raft::MemberChange>& changes) {
    uint32_t epoch = 0;
    uint64_t leader = 0;
    const bool begun = Eventually([&] {
      leader = WaitForLeader();
      const auto taken = nodes_.at(leader)->node->ChangeMembers(changes);
      if (!taken.ok()) last_refusal_ = taken.status();
      if (taken.ok()) epoch = *taken;
      return taken.ok();
    });
    EXPECT_TRUE(begun) << last_refusal_;
    return begun && Eventually([&] {
             for (const auto& [id, running] : nodes_) {
               if (StatusOf(id).role == raft::Role::kLeader && StatusOf(id).committed_epoch >= epoch) return true;
             }
             return false;
           });
  }
  raft::MemberChange Of(Kind kind, uint64_t id) const {
    return {.kind = kind,
            .node = raft::NodeId(id),
            .address = kind == Kind::kAddLearner ? addresses_.at(id).peer.ToString() : ""};
  }
  std::string RoleOf(uint64_t seen_by, uint64_t id) {
    for (const NodeStatus status = StatusOf(seen_by); const v1::Member& member : status.members) {
      if (member.id() == id) return member.role();
    }
    return "none";
  }

  // The same request again until it has an answer; at whoever gave the last one, then at the others.
  std::optional<wire::HkvAnswer> Ask(const wire::HkvRequest& request) {
    for (int i = 0; i < 40 && !stop_writing_; ++i) {
      const auto socket = AnySocket();
      const uint64_t to = 1 + asked_ % 5;
      socket->Send(addresses_.at(to).serve, wire::Encode(request));
      socket->Flush();
      pollfd ready{.fd = socket->fd(), .events = POLLIN, .revents = 0};
      if (poll(&ready, 1, 300) == 1) {
        const std::vector<Datagram>& received = socket->Receive(Now_ns());
        const auto answer = received.size() == 1 ? wire::ParseHkvAnswer(received[0].bytes) : std::nullopt;
        if (answer.has_value() && answer->status == wire::HkvStatus::kOk) return answer;
      }
      ++asked_;
    }
    return std::nullopt;
  }
  void StartWriting() {
    writer_ = std::thread([this] {
      const auto opened = Ask({.kind = wire::HkvKind::kOpen, .timeout_us = 250'000, .seq = 77});
      if (!opened.has_value()) return;
      while (!stop_writing_) {
        const uint64_t seq = written_ + 1;
        const auto answer = Ask({.kind = wire::HkvKind::kWrite,
                                 .timeout_us = 250'000,
                                 .client_id = opened->session,
                                 .seq = seq,
                                 .lowest_unanswered = seq,
                                 .token = opened->token,
                                 .operations = {{.kind = kv::OperationKind::kIncrement, .key = "n", .delta = 1}}});
        if (stop_writing_) return;
        if (!answer.has_value() || answer->values.size() != 1 || answer->values[0] != std::to_string(seq)) {
          ++wrong_;
          return;
        }
        written_ = seq;
      }
    });
  }
  void StopWriting() {
    stop_writing_ = true;
    if (writer_.joinable()) writer_.join();
  }
  bool WritesGoOn() {
    const uint64_t before = written_;
    return Eventually([&] { return wrong_ != 0 || written_ >= before + 20; }) && wrong_ == 0;
  }

  std::map<uint64_t, MemberConfig> addresses_;
  std::map<uint64_t, std::unique_ptr<Running>> nodes_;
  absl::Status last_refusal_;
  std::thread writer_;
  std::atomic<bool> stop_writing_ = false;
  std::atomic<uint64_t> written_ = 0;
  std::atomic<uint64_t> wrong_ = 0;
  std::atomic<uint64_t> asked_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Durability, NodeMembersTest, testing::Values(Durability::kDisk, Durability::kMemory),
                         DurabilityOf);

TEST_P(NodeMembersTest, ANodeIsAddedCatchesUpAndReplacesAnother) {
  StartWriting();
  ASSERT_TRUE(WritesGoOn());
  Join(4);
  EXPECT_TRUE(StatusOf(4).members.empty()) << "it waits";
  ASSERT_TRUE(Change({Of(Kind::kAddLearner, 4)}));
  EXPECT_TRUE(Eventually([&] { return RoleOf(4, 4) == "learner"; })) << "it has the log";
  const uint64_t leader = WaitForLeader();
  const uint64_t out = leader % 3 + 1;
  ASSERT_TRUE(Change({Of(Kind::kPromote, 4), Of(Kind::kRemove, out)}));
  EXPECT_TRUE(Eventually([&] { return RoleOf(4, 4) == "voter"; }));
  EXPECT_TRUE(Eventually([&] { return RoleOf(leader, out) != "voter"; }));
  EXPECT_TRUE(WritesGoOn());
  // The new one counts: with it and one other there is a majority.
  Stop(6 - leader - out);
  EXPECT_TRUE(WritesGoOn());
  // It knows the members from its log.
  Stop(4);
  Join(4);
  EXPECT_TRUE(WritesGoOn());
  EXPECT_EQ(RoleOf(4, 4), "voter");
  EXPECT_EQ(wrong_, 0u);
}

// The log does not reach back to the cluster's beginning any more, on any of the three.
TEST_P(NodeMembersTest, ANodeJoinsByASnapshot) {
  StartWriting();
  ASSERT_TRUE(WritesGoOn());
  for (uint64_t id = 1; id <= 3; ++id) {
    const auto index = nodes_.at(id)->node->TakeSnapshot();
    ASSERT_TRUE(index.ok()) << index.status();
    ASSERT_TRUE(Eventually([&] { return StatusOf(id).snapshots.log_start() > 0; }));
  }
  Join(4);
  ASSERT_TRUE(Change({Of(Kind::kAddLearner, 4)}));
  ASSERT_TRUE(Eventually([&] { return StatusOf(4).snapshots.last_index() > 0; }));
  ASSERT_TRUE(Change({Of(Kind::kPromote, 4)}));
  EXPECT_TRUE(Eventually([&] { return RoleOf(4, 4) == "voter"; }));
  EXPECT_EQ(StatusOf(4).members.size(), 4);
  // It counts: with it and two others there is a majority of four, and it is one of those who can lead.
  const uint64_t leader = WaitForLeader();
  Stop(leader % 3 + 1);
  EXPECT_TRUE(WritesGoOn());
  EXPECT_EQ(wrong_, 0u);
}

TEST_P(NodeMembersTest, TheLeaderIsRemovedAndIsListenedToNoMore) {
  StartWriting();
  ASSERT_TRUE(WritesGoOn());
  const uint64_t former = WaitForLeader();
  ASSERT_TRUE(Change({Of(Kind::kRemove, former)}));
  EXPECT_TRUE(Eventually([&] { return StatusOf(former).role != raft::Role::kLeader; }));
  EXPECT_TRUE(WritesGoOn());
  const uint64_t leader = WaitForLeader();
  EXPECT_NE(leader, former);
  EXPECT_EQ(StatusOf(leader).peers.size(), 1) << "no member speaks to it";
  // With its log and its old file, and not knowing that it has left.
  const uint64_t term = StatusOf(former).term.value();
  Stop(former);
  Start(former, {1, 2, 3}, false);
  EXPECT_TRUE(WritesGoOn());
  std::this_thread::sleep_for(200ms);  // several election timeouts
  EXPECT_LE(StatusOf(former).term.value(), term) << "nobody would vote for it, so it raises no term";
  EXPECT_EQ(StatusOf(WaitForLeader()).peers.size(), 1);
  EXPECT_EQ(wrong_, 0u);
}

// Else 1 and 4 could be a majority of what two files say, and 2 and 3 one of what the others say.
TEST_P(NodeMembersTest, ANodeThatWasRemovedWhileItWasDownIsToldAndMayComeBack) {
  const uint64_t gone = WaitForLeader() % 3 + 1;
  Stop(gone);
  ASSERT_TRUE(Change({Of(Kind::kRemove, gone)}));
  Start(gone, {1, 2, 3}, false);
  EXPECT_TRUE(Eventually([&] { return !StatusOf(gone).removed.empty(); }));
  EXPECT_THAT(StatusOf(gone).removed, HasSubstr("members add " + std::to_string(gone)));
  const v1::NodeStatus reported = ToMessage(StatusOf(gone), {});
  EXPECT_EQ(reported.role(), "removed");
  EXPECT_FALSE(reported.ready());
  EXPECT_THAT(reported.problems(0), HasSubstr("REMOVED: this node is no member"));
  // It asks for no pre-votes any more.
  EXPECT_TRUE(Eventually([&] { return StatusOf(gone).role == raft::Role::kFollower; }));
  for (int look = 0; look < 50; ++look) {
    std::this_thread::sleep_for(10ms);
    ASSERT_EQ(StatusOf(gone).role, raft::Role::kFollower) << look;
  }
  EXPECT_FALSE(StatusOf(gone).removed.empty());
  // Its client is not kept waiting for a leader that never comes.
  const auto socket = AnySocket();
  socket->Send(addresses_.at(gone).serve,
               wire::Encode(wire::HkvRequest{.kind = wire::HkvKind::kGet, .client_id = 5, .seq = 1, .key = "n"}));
  socket->Flush();
  pollfd ready{.fd = socket->fd(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&ready, 1, 10'000), 1);
  EXPECT_EQ(wire::ParseHkvAnswer(socket->Receive(Now_ns()).at(0).bytes)->status, wire::HkvStatus::kNotLeader);

  ASSERT_TRUE(Change({Of(Kind::kAddLearner, gone)}));
  EXPECT_TRUE(Eventually([&] { return StatusOf(gone).removed.empty() && StatusOf(gone).leader.IsSet(); }));
  EXPECT_TRUE(Eventually([&] { return RoleOf(gone, gone) == "learner"; })) << "its log goes on";
}

TEST_P(NodeMembersTest, ANodeThatIsRemovedWhileItRunsSaysSo) {
  const uint64_t leader = WaitForLeader();
  ASSERT_TRUE(Change({Of(Kind::kRemove, leader)}));
  EXPECT_TRUE(Eventually([&] { return !StatusOf(leader).removed.empty(); }));
  for (const auto& [id, running] : nodes_) EXPECT_EQ(StatusOf(id).removed.empty(), id != leader) << id;
}

TEST_P(NodeMembersTest, ANodeWithAnEditedFileDoesNotStart) {
  StartWriting();
  const uint64_t edited = WaitForLeader() % 3 + 1;
  Stop(edited);
  const auto why = [&](const std::vector<uint64_t>& members) {
    return std::string(Node::Create(ConfigOf(edited, members, false)).status().message());
  };
  EXPECT_THAT(why({1, 2, 3, 4, 5}), HasSubstr("put 1, 2, 3 back"));
  EXPECT_THAT(why({edited}), HasSubstr("put 1, 2, 3 back"));
  Start(edited, {1, 2, 3}, false);
  EXPECT_TRUE(WritesGoOn());
  EXPECT_EQ(RoleOf(edited, 4), "none");
  // Nor does one that waits to be added begin a cluster of its own, and others' files do not add it.
  Join(4);
  Stop(4);
  EXPECT_THAT(std::string(Node::Create(ConfigOf(4, {4}, false)).status().message()), HasSubstr("put `join: on` back"));
  Start(5, {1, 2, 3, 4, 5}, false);
  EXPECT_TRUE(WritesGoOn());
  EXPECT_NE(StatusOf(5).role, raft::Role::kLeader);
  EXPECT_EQ(StatusOf(WaitForLeader()).members.size(), 3);
  EXPECT_EQ(wrong_, 0u);
}

TEST_P(NodeMembersTest, WhatMakesNoSenseIsRefusedWithAReason) {
  const auto refusal_of = [&](uint64_t node, const std::vector<raft::MemberChange>& changes) {
    return std::string(nodes_.at(node)->node->ChangeMembers(changes).status().message());
  };
  // The leader's. A busy machine may elect another node at any time, and the former leader speaks of its office then.
  const auto refusal = [&](const std::vector<raft::MemberChange>& changes) {
    std::string refusal;
    EXPECT_TRUE(Eventually([&] {
      const uint64_t leader = Leader();
      if (leader == 0) return false;
      refusal = refusal_of(leader, changes);
      return refusal.find("no node leads now") == std::string::npos &&
             refusal.find(" leads; ask it") == std::string::npos;
    }));
    return refusal;
  };
  EXPECT_EQ(refusal({Of(Kind::kRemove, 5)}), "node 5 is no member");
  EXPECT_EQ(refusal({Of(Kind::kAddLearner, 2)}), "node 2 is a member already");
  EXPECT_TRUE(Eventually([&] {
    const uint64_t leader = Leader();
    return leader != 0 && refusal_of(leader % 3 + 1, {Of(Kind::kAddLearner, 2)}) ==
                              "node " + std::to_string(leader) + " leads; ask it";
  })) << "once it has heard of it";
  EXPECT_EQ(refusal({}), "that changes nothing");
  // No file would be taken with such a peer address, and this one is there to stay.
  const auto at = [](Kind kind, uint64_t id, const std::string& address) {
    return raft::MemberChange{.kind = kind, .node = raft::NodeId(id), .address = address};
  };
  EXPECT_EQ(refusal({at(Kind::kAddLearner, 4, "0.0.0.0:4802")}),
            "got \"0.0.0.0:4802\", expected a unicast address (this is an unspecified address)");
  EXPECT_THAT(refusal({at(Kind::kMove, 2, "224.0.0.1:4802")}), HasSubstr("this is a multicast address"));
  EXPECT_THAT(refusal({at(Kind::kMove, 2, "[fd00::2]:4802")}), HasSubstr("expected an IPv4 address"));
  EXPECT_THAT(refusal({at(Kind::kAddLearner, 4, addresses_.at(2).serve.ToString())}),
              HasSubstr("where node 2 serves clients"));
  EXPECT_EQ(StatusOf(WaitForLeader()).members.size(), 3);
  ASSERT_TRUE(Change({Of(Kind::kAddLearner, 4)}));
  EXPECT_EQ(refusal({Of(Kind::kPromote, 4)}),
            "node 4 has not caught up with the leader, or does not answer; ask again");
}

// Whom an operator means to remove is the one that is down.
TEST_P(NodeMembersTest, WhatWouldLeaveNoMajorityThatAnswersIsRefused) {
  StartWriting();
  ASSERT_TRUE(WritesGoOn());
  const uint64_t down = WaitForLeader() % 3 + 1;
  ASSERT_TRUE(Eventually([&] {
    for (const v1::Peer& peer : StatusOf(WaitForLeader()).peers) {
      if (peer.id() == down) return peer.heard_ago_ns() >= 0;
    }
    return false;
  })) << "a node that has started after the election is heard a moment later";
  Stop(down);
  const uint64_t leader = WaitForLeader();
  const uint64_t up = 6 - leader - down;
  ASSERT_TRUE(Eventually([&] {
    const NodeStatus status = StatusOf(leader);
    for (const v1::Peer& peer : status.peers) {
      if (peer.id() == down) return peer.heard_ago_ns() > static_cast<int64_t>(3 * status.election_timeout_ns);
    }
    return false;
  }));
  const auto refused = nodes_.at(leader)->node->ChangeMembers({Of(Kind::kRemove, up)});
  EXPECT_TRUE(absl::IsFailedPrecondition(refused.status()));
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("a majority does not answer (" + std::to_string(down) + ")"));
  EXPECT_TRUE(WritesGoOn());
  EXPECT_EQ(RoleOf(leader, up), "voter");
  ASSERT_TRUE(Change({Of(Kind::kRemove, down)}));
  EXPECT_TRUE(WritesGoOn());
}

// Without it neither this change nor one that takes it back could be committed.
TEST_P(NodeMembersTest, AMoveToWhereTheMemberDoesNotAnswerIsRefused) {
  StartWriting();
  ASSERT_TRUE(WritesGoOn());
  const uint64_t down = WaitForLeader() % 3 + 1;
  ASSERT_TRUE(Eventually([&] {
    for (const v1::Peer& peer : StatusOf(WaitForLeader()).peers) {
      if (peer.id() == down) return peer.heard_ago_ns() >= 0;
    }
    return false;
  }));
  Stop(down);
  const uint64_t leader = WaitForLeader();
  const uint64_t up = 6 - leader - down;
  const auto refusal = [&](uint64_t id, const std::string& address) {
    const auto asked =
        nodes_.at(leader)->node->ChangeMembers({{.kind = Kind::kMove, .node = raft::NodeId(id), .address = address}});
    EXPECT_TRUE(absl::IsFailedPrecondition(asked.status())) << id << " " << asked.status();
    return std::string(asked.status().message());
  };
  const std::string mistyped = FreeAddress().ToString();
  EXPECT_THAT(refusal(up, mistyped), HasSubstr("does not answer at " + mistyped + ": stop the node, set"));
  EXPECT_THAT(refusal(down, mistyped), HasSubstr("does not answer at"));
  EXPECT_THAT(refusal(leader, mistyped), HasSubstr("this node listens at"));
  EXPECT_THAT(refusal(up, ""), HasSubstr("keeps its address"));
  EXPECT_TRUE(WritesGoOn());
}

// One of three is down for good, so the two others need each other all the time.
TEST_P(NodeMembersTest, AMemberIsMovedOnceItWasStartedAtItsNewAddress) {
  StartWriting();
  ASSERT_TRUE(WritesGoOn());
  const uint64_t down = WaitForLeader() % 3 + 1;
  Stop(down);
  const uint64_t moved = 6 - down - WaitForLeader();
  Stop(moved);
  const NetAddress before = addresses_.at(moved).peer;
  addresses_.at(moved).peer = FreeAddress();
  const std::string now = addresses_.at(moved).peer.ToString();
  Start(moved, {1, 2, 3}, false);
  EXPECT_TRUE(WritesGoOn()) << "the other one reaches it there before anybody has moved it";
  const uint64_t other = 6 - down - moved;
  EXPECT_TRUE(Eventually([&] {
    const NodeStatus status = StatusOf(other);
    for (const v1::Peer& peer : status.peers) {
      if (peer.id() == moved)
        return peer.address() == before.ToString() && peer.answers_at() == addresses_.at(moved).peer.ToString();
    }
    return false;
  }));
  ASSERT_TRUE(Change({{.kind = Kind::kMove, .node = raft::NodeId(moved), .address = now}}));
  EXPECT_TRUE(Eventually([&] {
    for (const v1::Peer& peer : StatusOf(other).peers) {
      if (peer.id() == moved) return peer.address() == now && peer.answers_at().empty();
    }
    return false;
  }));
  EXPECT_TRUE(WritesGoOn());
  Stop(other);
  Start(other, {1, 2, 3}, false);
  EXPECT_TRUE(WritesGoOn());
  EXPECT_EQ(wrong_, 0u);
}

TEST_P(NodeMembersTest, ALeaderThatDiesInTheMidstLosesNothing) {
  StartWriting();
  for (const uint64_t id : {4, 5}) {
    Join(id);
    ASSERT_TRUE(Change({Of(Kind::kAddLearner, id)}));
  }
  const uint64_t leader = WaitForLeader();
  ASSERT_TRUE(Eventually([&] {
    return nodes_.at(WaitForLeader())->node->ChangeMembers({Of(Kind::kPromote, 4), Of(Kind::kPromote, 5)}).ok();
  }));
  Stop(leader);
  EXPECT_TRUE(WritesGoOn());
  const uint64_t next = WaitForLeader();
  EXPECT_TRUE(Eventually([&] { return !StatusOf(next).joint; })) << "what was begun is ended, or has not been";
  EXPECT_EQ(RoleOf(next, 4), RoleOf(next, 5));
  EXPECT_EQ(wrong_, 0u);
}

}  // namespace
}  // namespace hedgerow::node
