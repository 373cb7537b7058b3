// SPDX-License-Identifier: Apache-2.0
//
// Nodes that have lost what they promised, in one process with those that have not: they say so, take part in
// nothing, and are told so by their peers when somebody has emptied their folder.
#include "cluster/node/identity/lost_node.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/node/testing/fake_node_control.h"
#include "cluster/node/testing/node_testing.h"
#include "cluster/node/status/status_message.h"
#include "cluster/storage/errors.h"
#include "cluster/wire/peer.h"

namespace hedgerow::node {
namespace {

using ::testing::HasSubstr;

class EmptiedFolderTest : public NodeTest {};

INSTANTIATE_TEST_SUITE_P(Durability, EmptiedFolderTest, testing::Values(Durability::kDisk, Durability::kMemory),
                         DurabilityOf);

// Who would be a member with an empty log under its old id, if nobody had recorded which log it had.
TEST_P(EmptiedFolderTest, IsNotTakenForANewLog) {
  const uint64_t leader = WaitForLeader();
  const uint64_t session = Open(leader);
  for (uint64_t seq = 1; seq <= 3; ++seq) EXPECT_EQ(Increment(leader, session, seq), std::to_string(seq));
  const uint64_t victim = leader % 3 + 1;
  const auto incarnation = [&] {
    for (const v1::Peer& peer : StatusOf(leader).peers) {
      if (peer.id() == victim) return peer.life();
    }
    return std::string();
  };
  Stop(victim);
  const std::string before = incarnation();
  EXPECT_NE(before, "");
  MoveAway(victim);

  absl::Status ended;
  {
    absl::StatusOr<std::unique_ptr<Node>> emptied = Node::Create(ConfigOf(victim));
    ASSERT_TRUE(emptied.ok()) << emptied.status();
    std::atomic<bool> done = false;
    std::thread thread([&] {
      ended = (*emptied)->Run();
      done = true;
    });
    EXPECT_TRUE(Eventually([&] { return done.load(); }));
    (*emptied)->RequestStop();
    thread.join();
  }
  EXPECT_TRUE(storage::IsLost(ended)) << ended;
  EXPECT_THAT(std::string(ended.message()), HasSubstr("has recorded another"));
  EXPECT_TRUE(storage::IsLost(Node::Create(ConfigOf(victim)).status())) << "however often it is started";
  EXPECT_EQ(incarnation(), before) << "nothing of it was believed";
  EXPECT_EQ(Increment(leader, session, 4), "4");

  std::filesystem::remove_all(ConfigOf(victim).data_dir);
  std::filesystem::rename(ConfigOf(victim).data_dir + ".before", ConfigOf(victim).data_dir);
  Start(victim);
  EXPECT_EQ(Increment(WaitForLeader(), session, 5), "5");
  EXPECT_TRUE(Eventually([&] { return incarnation() != before; })) << "with its own log it is a member as before";
}

// All of them at once have no log that anybody remembers.
TEST_P(EmptiedFolderTest, AClusterThatIsSetUpAgainRemembersNoCopies) {
  WaitForLeader();
  for (uint64_t id = 1; id <= 3; ++id) Stop(id);
  for (uint64_t id = 1; id <= 3; ++id) {
    MoveAway(id);
    Start(id);
  }
  const uint64_t leader = WaitForLeader();
  EXPECT_EQ(Increment(leader, Open(leader), 1), "1");
}

// An older copy of a folder is put back, as a snapshot of its volume would be. The nodes have no administration
// socket but in tests that say so, and so the host remembers nothing.
class FolderThatWentBackTest : public NodeTest {
 protected:
  NodeConfig ConfigOf(uint64_t id) const override {
    NodeConfig config = NodeTest::ConfigOf(id);
    if (!sockets_.empty()) config.admin_socket = sockets_ + "/" + std::to_string(id);
    return config;
  }
  std::string FolderOf(uint64_t id) const { return ConfigOf(id).data_dir; }
  // Of a node that does not run.
  void Copy(uint64_t id) const {
    std::filesystem::copy(FolderOf(id), FolderOf(id) + ".copy", std::filesystem::copy_options::recursive);
  }
  void PutBack(uint64_t id) const {
    std::filesystem::rename(FolderOf(id), FolderOf(id) + ".latest");
    std::filesystem::rename(FolderOf(id) + ".copy", FolderOf(id));
  }
  // Runs the node until it ends by itself, or cannot be made.
  absl::Status EndOf(uint64_t id) {
    absl::StatusOr<std::unique_ptr<Node>> node = Node::Create(ConfigOf(id));
    if (!node.ok()) return node.status();
    absl::Status ended;
    std::atomic<bool> done = false;
    std::thread thread([&] {
      ended = (*node)->Run();
      done = true;
    });
    EXPECT_TRUE(Eventually([&] { return done.load(); }));
    (*node)->RequestStop();
    thread.join();
    return ended;
  }

  std::string sockets_;
};

INSTANTIATE_TEST_SUITE_P(Durability, FolderThatWentBackTest, testing::Values(Durability::kDisk, Durability::kMemory),
                         DurabilityOf);

TEST_P(FolderThatWentBackTest, TheOthersRememberALaterStart) {
  const uint64_t leader = WaitForLeader();
  const uint64_t session = Open(leader);
  EXPECT_EQ(Increment(leader, session, 1), "1");
  const uint64_t victim = leader % 3 + 1;
  Stop(victim);
  Copy(victim);
  Start(victim);
  ASSERT_TRUE(WaitUntilLeads(leader)) << "a leader of this run must remember what the member promised";
  EXPECT_EQ(Increment(leader, session, 2), "2");
  Stop(victim);
  PutBack(victim);
  const absl::Status ended = EndOf(victim);
  EXPECT_TRUE(storage::IsLost(ended)) << ended;
  EXPECT_THAT(std::string(ended.message()), HasSubstr("or a later state of it"));
  EXPECT_TRUE(storage::IsLost(Node::Create(ConfigOf(victim)).status())) << "however often it is started";
  EXPECT_EQ(Increment(leader, session, 3), "3");

  std::filesystem::remove_all(FolderOf(victim));
  std::filesystem::rename(FolderOf(victim) + ".latest", FolderOf(victim));
  Start(victim);
  EXPECT_EQ(Increment(WaitForLeader(), session, 4), "4") << "with its latest folder it is a member as before";
}

// The copy was made in the midst of the node's last incarnation, so it counts as many starts.
TEST_P(FolderThatWentBackTest, ItsLeaderRemembersWhatItAcknowledged) {
  const uint64_t leader = WaitForLeader();
  const uint64_t session = Open(leader);
  EXPECT_EQ(Increment(leader, session, 1), "1");
  const uint64_t victim = leader % 3 + 1;
  Stop(victim);
  Copy(victim);
  Start(victim);
  ASSERT_TRUE(WaitUntilLeads(leader));
  for (uint64_t seq = 2; seq <= 4; ++seq) EXPECT_EQ(Increment(leader, session, seq), std::to_string(seq));
  ASSERT_TRUE(Eventually([&] { return StatusOf(victim).durable_index == StatusOf(leader).last_index; }));
  Stop(victim);
  std::filesystem::copy_file(FolderOf(victim) + "/identity", FolderOf(victim) + ".copy/identity",
                             std::filesystem::copy_options::overwrite_existing);
  PutBack(victim);
  const absl::Status ended = EndOf(victim);
  EXPECT_TRUE(storage::IsLost(ended)) << ended;
  EXPECT_EQ(Increment(leader, session, 5), "5");
}

// Two of three would be a majority that has forgotten what it acknowledged, and the third is down.
TEST_P(FolderThatWentBackTest, TheHostRemembersALaterStartWithoutTheOthers) {
  const uint64_t leader = WaitForLeader();
  const uint64_t session = Open(leader);
  sockets_ = folder_ + "/run";
  std::filesystem::create_directory(sockets_);
  for (uint64_t id = 1; id <= 3; ++id) {
    if (id == leader) continue;
    Stop(id);
    Copy(id);
    Start(id);
    ASSERT_TRUE(WaitUntilLeads(leader));
  }
  EXPECT_EQ(Increment(leader, session, 1), "1");
  for (uint64_t id = 1; id <= 3; ++id) Stop(id);
  for (uint64_t id = 1; id <= 3; ++id) {
    if (id == leader) continue;
    PutBack(id);
    for (int start = 0; start < 2; ++start) {
      const absl::Status ended = EndOf(id);
      EXPECT_TRUE(storage::IsLost(ended)) << ended;
      EXPECT_THAT(std::string(ended.message()), HasSubstr("this host remembers a later start"));
    }
  }
  Start(leader);  // which lacks nothing
  EXPECT_EQ(StatusOf(leader).lost, "");
}

class LostNodeTest : public NodeTest {};
INSTANTIATE_TEST_SUITE_P(Durability, LostNodeTest, testing::Values(Durability::kMemory), DurabilityOf);

TEST_P(LostNodeTest, SaysSoAndTellsTheOthersAndDoesNothing) {
  const uint64_t leader = WaitForLeader();
  std::vector<std::unique_ptr<LostNode>> lost;
  std::vector<std::thread> threads;
  const auto lose = [&](uint64_t id) {
    Stop(id);
    lost.push_back(std::make_unique<LostNode>(ConfigOf(id), "its memory is gone"));
    threads.emplace_back([node = lost.back().get()] { node->Run(); });
  };
  const uint64_t first = leader % 3 + 1;
  const uint64_t second = first % 3 + 1;
  lose(first);
  const auto reported_by = [&](uint64_t id, uint64_t of) {
    for (const v1::Peer& peer : StatusOf(id).peers) {
      if (peer.id() == of) return peer.lost();
    }
    return false;
  };
  EXPECT_TRUE(Eventually([&] { return reported_by(leader, first); }));
  EXPECT_EQ(StatusOf(leader).cluster_lost, "") << "two of three go on";
  EXPECT_TRUE(StatusOf(leader).ready);
  const absl::StatusOr<NodeStatus> own = lost[0]->Status();
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(own->lost, "its memory is gone");
  EXPECT_FALSE(own->ready);
  EXPECT_EQ(ToMessage(*own, {}).role(), "lost");
  EXPECT_TRUE(absl::IsFailedPrecondition(lost[0]->Transfer(raft::NodeId(1))));
  EXPECT_TRUE(absl::IsFailedPrecondition(lost[0]->OpenBackup().status()));

  lose(second);
  EXPECT_TRUE(Eventually([&] { return reported_by(leader, second); }));
  EXPECT_THAT(StatusOf(leader).cluster_lost, HasSubstr("of 3 nodes, 2 have lost what they promised"));
  EXPECT_TRUE(Eventually([&] { return !lost[0]->Status()->cluster_lost.empty(); }));
  for (const auto& node : lost) node->RequestStop();
  for (std::thread& thread : threads) thread.join();
}

// The file still has all three, as it may.
TEST_P(LostNodeTest, GoesByTheMembersOfItsLog) {
  const uint64_t leader = WaitForLeader();
  const uint64_t removed = leader % 3 + 1;
  const uint64_t lost = removed % 3 + 1;
  ASSERT_TRUE(Change({{.kind = raft::MemberChange::Kind::kRemove, .node = raft::NodeId(removed)}}));
  ASSERT_TRUE(Eventually([&] { return StatusOf(lost).committed_epoch == 2; }));
  Stop(removed);
  Stop(lost);
  LostNode node(ConfigOf(lost), "its memory is gone");
  const absl::StatusOr<NodeStatus> status = node.Status();
  ASSERT_TRUE(status.ok());
  ASSERT_EQ(status->peers.size(), 1);
  EXPECT_EQ(status->peers[0].id(), leader);
  EXPECT_THAT(status->cluster_lost, HasSubstr("of 2 nodes, 1 have lost what they promised (this one)"));
}

// It has joined, and its folder was emptied: its log names nobody, and its file but itself.
TEST_P(LostNodeTest, InformsSendersWhereItsLogNamesNoMembers) {
  const uint64_t leader = WaitForLeader();
  const uint64_t lost = leader % 3 + 1;
  Stop(lost);
  NodeConfig config = ConfigOf(lost);
  config.data_dir += ".empty";
  config.join = true;
  std::erase_if(config.members, [&config](const MemberConfig& member) { return member.id != config.self; });
  LostNode node(config, "its folder was emptied");
  std::thread thread([&node] { node.Run(); });
  EXPECT_TRUE(Eventually([&] {
    for (const v1::Peer& peer : StatusOf(leader).peers) {
      if (peer.id() == lost) return peer.lost();
    }
    return false;
  }));
  EXPECT_EQ(node.Status()->cluster_lost, "") << "it does not know how many there are";
  node.RequestStop();
  thread.join();
}

// The folder was put back, and the member was added since; or it has another address since.
TEST_P(LostNodeTest, TellsAMemberThatItsLogDoesNotName) {
  const uint64_t lost = WaitForLeader() % 3 + 1;
  Stop(lost);
  LostNode node(ConfigOf(lost), "its folder went back");
  std::thread thread([&node] { node.Run(); });
  for (const uint64_t id : {uint64_t{9}, lost % 3 + 1}) {
    const std::unique_ptr<UdpSocket> socket = AnySocket();
    wire::PeerCodec member(
        {.cluster_id = 7, .keys = ConfigOf(lost).cluster_keys, .self = raft::NodeId(id), .incarnation = 1000});
    EXPECT_TRUE(Eventually([&] {
      socket->Send(members_[lost - 1].peer,
                   member.Seal(raft::NodeId(lost), wire::CopyIdTerm(5), wire::Hello{.nonce = 9}));
      socket->Flush();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      bool reported = false;
      for (const Datagram& datagram : socket->Receive(Now_ns())) {
        const wire::Opened opened = member.Open(datagram.bytes);
        reported = reported || (opened.ok() && opened.header.term == wire::kLostTerm);
      }
      return reported;
    })) << id;
  }
  node.RequestStop();
  thread.join();
}

// As a file with a wrong address would have a member greet it.
TEST_P(LostNodeTest, TakesNoIdThatItsLogNames) {
  const uint64_t leader = WaitForLeader();
  const uint64_t lost = leader % 3 + 1;
  const uint64_t other = lost % 3 + 1;
  Stop(lost);
  LostNode node(ConfigOf(lost), "its memory is gone");
  std::thread thread([&node] { node.Run(); });
  const std::unique_ptr<UdpSocket> socket = AnySocket();
  const auto asked_as = [&](uint64_t id) {
    wire::PeerCodec greets(
        {.cluster_id = 7, .keys = ConfigOf(lost).cluster_keys, .self = raft::NodeId(leader), .incarnation = 1000 + id});
    for (int i = 0; i < 20; ++i) {
      socket->Send(members_[lost - 1].peer,
                   greets.Seal(raft::NodeId(id), wire::CopyIdTerm(5), wire::Hello{.nonce = 9}));
      socket->Flush();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      for (const Datagram& datagram : socket->Receive(Now_ns())) {
        const wire::Opened opened = greets.Open(datagram.bytes);
        EXPECT_TRUE(opened.ok() && std::holds_alternative<wire::Hello>(opened.body));
        if (opened.ok() && opened.header.from == raft::NodeId(id)) return true;
      }
    }
    return false;
  };
  EXPECT_TRUE(asked_as(7)) << "which its log does not know";
  EXPECT_FALSE(asked_as(other));
  node.RequestStop();
  thread.join();
  EXPECT_FALSE(node.rejoin().has_value());
}

TEST(WhyClusterLostTest, CountsByMajority) {
  NodeStatus status;
  for (const uint64_t id : {2, 3, 4}) AddPeer(status, raft::NodeId(id), {});
  EXPECT_EQ(WhyClusterLost(status, 4), "");
  status.peers[0].set_lost(true);
  EXPECT_EQ(WhyClusterLost(status, 4), "") << "three of four are left";
  status.peers[1].set_lost(true);
  EXPECT_NE(WhyClusterLost(status, 4), "") << "two of four are no majority";
  status.peers[1].set_lost(false);
  status.lost = "gone";
  EXPECT_NE(WhyClusterLost(status, 4), "");
}

// It would send an operator to `recover`, from a cluster that works.
TEST(WhyClusterLostTest, LearnersAreNotCounted) {
  NodeStatus status;
  for (const uint64_t id : {1, 2, 3}) AddMember(status, id, "voter");
  for (const uint64_t id : {4, 5}) AddMember(status, id, "learner");
  for (const uint64_t id : {2, 3, 4, 5}) AddPeer(status, raft::NodeId(id), {});
  for (const int peer : {2, 3}) status.peers[peer].set_lost(true);
  EXPECT_EQ(WhyClusterLost(status, 3), "") << "all three voters are there";
  status.peers[0].set_lost(true);
  EXPECT_EQ(WhyClusterLost(status, 3), "") << "two of three";
  status.peers[1].set_lost(true);
  EXPECT_THAT(WhyClusterLost(status, 3), HasSubstr("of 3 nodes, 2 have lost what they promised (2, 3)"));
}

}  // namespace
}  // namespace hedgerow::node
