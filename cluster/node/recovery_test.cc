// SPDX-License-Identifier: Apache-2.0
//
// Whole nodes in one process: a cluster is backed up while it serves, recovered from a survivor, and begun
// anew; what belongs to the one before counts for nothing.

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/node/backup_pieces.h"
#include "cluster/node/lost_node.h"
#include "cluster/node/node_testing.h"
#include "cluster/node/promise_mark.h"
#include "cluster/node/status_message.h"
#include "cluster/node/survivor.h"
#include "cluster/storage/backup_file.h"
#include "cluster/storage/beginning.h"
#include "cluster/storage/errors.h"
#include "cluster/wire/announce.h"
#include "cluster/wire/peer.h"

namespace hedgerow::node {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RecoveryTest : public NodeTest {
 protected:
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  void Backup(uint64_t id, const std::string& path) {
    const absl::StatusOr<raft::LogIndex> index = nodes_[id - 1]->node->TakeSnapshot();
    ASSERT_TRUE(index.ok()) << index.status();
    ASSERT_TRUE(Eventually([&] { return StatusOf(id).snapshots.last >= *index; }));
    const absl::StatusOr<BackupPieces> pieces = nodes_[id - 1]->node->OpenBackup();
    ASSERT_TRUE(pieces.ok()) << pieces.status();
    std::ofstream file(path, std::ios::binary);
    while (true) {
      const absl::StatusOr<std::string> piece = (*pieces)();
      ASSERT_TRUE(piece.ok()) << piece.status();
      if (piece->empty()) break;
      file << *piece;
    }
  }
  absl::Status Restore(uint64_t id, const std::string& path) {
    const NodeConfig config = ConfigOf(id);
    const absl::StatusOr<storage::Backup> backup = storage::OpenBackup(path);
    if (!backup.ok()) return backup.status();
    return storage::BeginLog(config.data_dir, {.cluster_id = config.cluster_id, .node = config.self},
                             backup->header.begins, *backup->snapshot, ConfigurationOf(config));
  }
  // Since the last time.
  std::set<uint64_t> EpochsAnnounced() {
    std::set<uint64_t> epochs;
    const wire::Key key = wire::DeriveProxyKey(wire::Key(), "proxy");
    for (int i = 0, quiet = 0; i < 200 && quiet < 5; ++i) {
      const std::vector<Datagram>& batch = proxy_socket_->Receive(Now_ns());
      quiet = batch.empty() ? quiet + 1 : 0;
      for (const Datagram& datagram : batch) {
        const std::optional<wire::Announcement> said = wire::OpenAnnouncement(datagram.bytes, key);
        if (said.has_value()) epochs.insert(said->cluster_epoch);
      }
      if (batch.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return epochs;
  }
  void MoveAway(uint64_t id) {
    std::filesystem::rename(ConfigOf(id).data_dir, ConfigOf(id).data_dir + ".before");
  }
};

INSTANTIATE_TEST_SUITE_P(Durability, RecoveryTest, testing::Values(Durability::kDisk, Durability::kMemory),
                         [](const auto& info) { return std::string(Name(info.param)); });

TEST_P(RecoveryTest, ABackupTakenWhileServingIsWhatWasAnsweredByThen) {
  const uint64_t leader = WaitForLeader();
  const uint64_t session = Open(leader);
  for (uint64_t seq = 1; seq <= 3; ++seq) EXPECT_EQ(Increment(leader, session, seq), std::to_string(seq));
  Backup(leader, Path("backup"));
  EXPECT_EQ(Increment(leader, session, 4), "4");
  for (uint64_t id = 1; id <= 3; ++id) {
    Stop(id);
    MoveAway(id);
    ASSERT_EQ(Restore(id, Path("backup")), absl::OkStatus());
  }
  for (uint64_t id = 1; id <= 3; ++id) Start(id);
  const uint64_t next = WaitForLeader();
  EXPECT_EQ(StatusOf(next).cluster_epoch, 1u);
  EXPECT_EQ(Get(next, 1), "3") << "the fourth came later";
  EXPECT_EQ(Increment(next, session, 3), "3") << "sessions are in it: not a second time";
  EXPECT_EQ(Increment(next, session, 4), "4");
}

// Who announces an epoch that a proxy's administrator has not accepted is refused there
// (bpf/tests/announce_test).
TEST_P(RecoveryTest, AnnouncementsCarryTheEpoch) {
  const uint64_t leader = WaitForLeader();
  EXPECT_EQ(Increment(leader, Open(leader), 1), "1");
  Backup(leader, Path("backup"));
  EXPECT_EQ(EpochsAnnounced(), (std::set<uint64_t>{0}));
  for (uint64_t id = 1; id <= 3; ++id) {
    Stop(id);
    MoveAway(id);
    ASSERT_EQ(Restore(id, Path("backup")), absl::OkStatus());
  }
  (void)EpochsAnnounced();
  for (uint64_t id = 1; id <= 3; ++id) Start(id);
  WaitForLeader();
  EXPECT_EQ(EpochsAnnounced(), (std::set<uint64_t>{1}));
}

TEST_P(RecoveryTest, WhoJoinsIsHeardOnceItsFileSaysWhichBeginning) {
  const uint64_t before = WaitForLeader();
  EXPECT_EQ(Increment(before, Open(before), 1), "1");
  Backup(before, Path("backup"));
  for (uint64_t id = 1; id <= 3; ++id) {
    Stop(id);
    MoveAway(id);
    ASSERT_EQ(Restore(id, Path("backup")), absl::OkStatus());
  }
  for (uint64_t id = 1; id <= 3; ++id) Start(id);
  const uint64_t leader = WaitForLeader();
  NodeConfig config = ConfigOf(1);
  config.self = raft::NodeId(4);
  config.join = true;
  config.members = {{.id = config.self, .peer = FreeAddress(), .serve = FreeAddress()}};
  config.serve = config.members[0].serve;
  config.data_dir = Path("4");
  const absl::StatusOr<uint32_t> added =
      nodes_[leader - 1]->node->ChangeMembers({{.kind = raft::MemberChange::Kind::kAddLearner,
                                                .node = config.self,
                                                .address = config.own().peer.ToString()}});
  ASSERT_TRUE(added.ok()) << added.status();
  const auto caught_up = [&] {
    for (const MemberStatus& member : StatusOf(leader).members) {
      if (member.id == config.self) return member.caught_up;
    }
    return false;
  };
  {
    const Running deaf(config);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    EXPECT_FALSE(caught_up()) << "it uses the key of the first beginning";
  }
  std::filesystem::remove_all(config.data_dir);  // nobody has heard of this log
  config.cluster_epoch = StatusOf(leader).cluster_epoch;
  config.beginning = StatusOf(leader).beginning;
  const Running joins(config);
  EXPECT_TRUE(Eventually(caught_up));
  EXPECT_EQ(joins.node->Status()->cluster_epoch, 1u);
}

TEST_P(RecoveryTest, WhatANewerProgramSaysIsCountedAndChangesNothing) {
  const uint64_t leader = WaitForLeader();
  wire::PeerCodec newer(
      {.cluster_id = 7, .key = ConfigOf(1).cluster_key, .self = raft::NodeId(leader % 3 + 1), .life = 5});
  std::string datagram = newer.Seal(raft::NodeId(leader), raft::Term(1'000'000), wire::Hello{.nonce = 9});
  datagram[4] = static_cast<char>(datagram[4] + 1);  // the version
  const std::unique_ptr<UdpSocket> socket = AnySocket();
  socket->Send(members_[leader - 1].peer, std::move(datagram));
  socket->Flush();
  const auto dropped = [&] {
    for (const NodeCounter& counter : StatusOf(leader).counters) {
      if (counter.name == "peer_dropped" && counter.reason == "version") return counter.value;
    }
    return uint64_t{0};
  };
  EXPECT_TRUE(Eventually([&] { return dropped() == 1; }));
  EXPECT_LT(StatusOf(leader).term, raft::Term(1'000'000));
  EXPECT_EQ(WaitForLeader(), leader);
}

TEST_P(RecoveryTest, WhoIsOfTheClusterBeforeIsHeardByNobody) {
  const uint64_t leader = WaitForLeader();
  const uint64_t session = Open(leader);
  EXPECT_EQ(Increment(leader, session, 1), "1");
  Backup(leader, Path("backup"));
  for (uint64_t id = 1; id <= 3; ++id) Stop(id);
  for (const uint64_t id : {1, 2}) {
    MoveAway(id);
    ASSERT_EQ(Restore(id, Path("backup")), absl::OkStatus());
  }
  for (uint64_t id = 1; id <= 3; ++id) Start(id);
  uint64_t next = 0;
  ASSERT_TRUE(Eventually([&] {
    next = StatusOf(1).leader.value();
    return StatusOf(1).ready && StatusOf(2).ready && next != 0;
  }));
  EXPECT_EQ(Increment(next, session, 2), "2");
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_NE(next, 3u);
  const NodeStatus before = StatusOf(3);
  EXPECT_EQ(before.cluster_epoch, 0u);
  EXPECT_FALSE(before.ready);
  EXPECT_FALSE(before.leader.IsSet());
  for (const PeerStatus& peer : before.peers) EXPECT_EQ(peer.life, 0u) << peer.id.value();
  for (const PeerStatus& peer : StatusOf(1).peers) EXPECT_EQ(peer.life != 0, peer.id.value() != 3);
}

TEST_P(RecoveryTest, ASurvivorsLogIsAllThatTheNextClusterHas) {
  const uint64_t leader = WaitForLeader();
  const uint64_t session = Open(leader);
  for (uint64_t seq = 1; seq <= 3; ++seq) EXPECT_EQ(Increment(leader, session, seq), std::to_string(seq));
  EXPECT_TRUE(absl::IsUnavailable(ReadSurvivor(ConfigOf(leader)).status())) << "it runs";
  for (uint64_t id = 1; id <= 3; ++id) Stop(id);
  {
    absl::StatusOr<Survivor> survivor = ReadSurvivor(ConfigOf(leader));
    ASSERT_TRUE(survivor.ok()) << survivor.status();
    EXPECT_THAT(survivor->log.doubts, IsEmpty());
    const auto header = WriteBeginning(Path("beginning"), ConfigOf(leader), *survivor);
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->begins.epoch, 1u);
    EXPECT_TRUE(absl::IsAlreadyExists(WriteBeginning(Path("beginning"), ConfigOf(leader), *survivor).status()));
  }
  for (uint64_t id = 1; id <= 3; ++id) {
    EXPECT_TRUE(absl::IsAlreadyExists(Restore(id, Path("beginning")))) << "not over a log";
    MoveAway(id);
    ASSERT_EQ(Restore(id, Path("beginning")), absl::OkStatus());
    Start(id);
  }
  const uint64_t next = WaitForLeader();
  EXPECT_EQ(Increment(next, session, 3), "3") << "not a second time";
  EXPECT_EQ(Increment(next, session, 4), "4");
  EXPECT_EQ(StatusOf(next).cluster_epoch, 1u);
}

// Who would be a member with an empty log under its old id, if nobody had recorded which log it had.
TEST_P(RecoveryTest, AnEmptiedFolderIsNotTakenForANewLog) {
  const uint64_t leader = WaitForLeader();
  const uint64_t session = Open(leader);
  for (uint64_t seq = 1; seq <= 3; ++seq) EXPECT_EQ(Increment(leader, session, seq), std::to_string(seq));
  const uint64_t victim = leader % 3 + 1;
  const auto life = [&] {
    for (const PeerStatus& peer : StatusOf(leader).peers) {
      if (peer.id.value() == victim) return peer.life;
    }
    return uint64_t{0};
  };
  Stop(victim);
  const uint64_t before = life();
  EXPECT_NE(before, 0u);
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
  EXPECT_EQ(life(), before) << "nothing of it was believed";
  EXPECT_EQ(Increment(leader, session, 4), "4");

  std::filesystem::remove_all(ConfigOf(victim).data_dir);
  std::filesystem::rename(ConfigOf(victim).data_dir + ".before", ConfigOf(victim).data_dir);
  Start(victim);
  EXPECT_EQ(Increment(WaitForLeader(), session, 5), "5");
  EXPECT_TRUE(Eventually([&] { return life() != before; })) << "with its own log it is a member as before";
}

// All of them at once have no log that anybody remembers. Nor has one whose peers have begun anew.
TEST_P(RecoveryTest, AClusterThatBeginsAgainRemembersNobody) {
  WaitForLeader();
  for (uint64_t id = 1; id <= 3; ++id) Stop(id);
  for (uint64_t id = 1; id <= 3; ++id) {
    MoveAway(id);
    Start(id);
  }
  const uint64_t leader = WaitForLeader();
  EXPECT_EQ(Increment(leader, Open(leader), 1), "1");
}

class LostNodeTest : public NodeTest {};
INSTANTIATE_TEST_SUITE_P(Durability, LostNodeTest, testing::Values(Durability::kMemory),
                         [](const auto& info) { return std::string(Name(info.param)); });

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
  const auto said_by = [&](uint64_t id, uint64_t of) {
    for (const PeerStatus& peer : StatusOf(id).peers) {
      if (peer.id.value() == of) return peer.lost;
    }
    return false;
  };
  EXPECT_TRUE(Eventually([&] { return said_by(leader, first); }));
  EXPECT_EQ(StatusOf(leader).cluster_lost, "") << "two of three go on";
  EXPECT_TRUE(StatusOf(leader).ready);
  const absl::StatusOr<NodeStatus> own = lost[0]->Status();
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(own->lost, "its memory is gone");
  EXPECT_FALSE(own->ready);
  EXPECT_EQ(ToMessage(*own, {}).role(), "lost");
  EXPECT_TRUE(absl::IsFailedPrecondition(lost[0]->Transfer(raft::NodeId(1))));
  EXPECT_TRUE(absl::IsUnimplemented(lost[0]->OpenBackup().status()));

  lose(second);
  EXPECT_TRUE(Eventually([&] { return said_by(leader, second); }));
  EXPECT_THAT(StatusOf(leader).cluster_lost, HasSubstr("of 3 nodes, 2 have lost what they promised"));
  EXPECT_TRUE(Eventually([&] { return !lost[0]->Status()->cluster_lost.empty(); }));
  for (const auto& node : lost) node->RequestStop();
  for (std::thread& thread : threads) thread.join();
}

TEST(WhyClusterLostTest, CountsByMajority) {
  NodeStatus status;
  for (const uint64_t id : {2, 3, 4}) status.peers.push_back({.id = raft::NodeId(id)});
  EXPECT_EQ(WhyClusterLost(status, 4), "");
  status.peers[0].lost = true;
  EXPECT_EQ(WhyClusterLost(status, 4), "") << "three of four are left";
  status.peers[1].lost = true;
  EXPECT_NE(WhyClusterLost(status, 4), "") << "two of four are no majority";
  status.peers[1].lost = false;
  status.lost = "gone";
  EXPECT_NE(WhyClusterLost(status, 4), "");
}

TEST(PromiseMarkTest, OfWhatIsLostStandsInEveryRunOfTheHost) {
  std::string folder = testing::TempDir() + "hedgerow-mark-test.XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const PromiseMark now(folder, "this run");
  const PromiseMark next(folder, "the next run");
  ASSERT_EQ(now.Set(), absl::OkStatus());
  EXPECT_TRUE(now.Stands());
  EXPECT_FALSE(next.Stands()) << "its log is worth nothing there, which the log itself says";
  EXPECT_FALSE(now.Lost());
  ASSERT_EQ(now.SetLost(), absl::OkStatus());
  EXPECT_TRUE(next.Stands());
  EXPECT_TRUE(next.Lost());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace hedgerow::node
