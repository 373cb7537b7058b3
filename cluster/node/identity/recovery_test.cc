// SPDX-License-Identifier: Apache-2.0
//
// Whole nodes in one process: a cluster is backed up while it serves, and recovered from a backup or a seed;
// what belongs to the cluster before counts for nothing.

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "cluster/node/snapshots/backup_pieces.h"
#include "cluster/node/admin/commands.h"
#include "cluster/node/identity/commands_recovery.h"
#include "cluster/node/identity/identity_keeper.h"
#include "cluster/node/identity/lost_node.h"
#include "cluster/node/testing/node_testing.h"
#include "cluster/node/status/status_message.h"
#include "cluster/node/identity/recovery_seed.h"
#include "cluster/storage/backup_file.h"
#include "cluster/storage/restore_log.h"
#include "cluster/storage/errors.h"
#include "cluster/storage/identity.h"
#include "cluster/wire/announce.h"
#include "cluster/wire/peer.h"

namespace hedgerow::node {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RecoveryTest : public NodeTest {
 protected:
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  // With all that was answered: somebody else may lead since then.
  void Backup(uint64_t id, const std::string& path) {
    raft::LogIndex applied{};
    for (uint64_t other = 1; other <= 3; ++other) {
      if (nodes_[other - 1] != nullptr) applied = std::max(applied, StatusOf(other).applied);
    }
    ASSERT_TRUE(Eventually([&] { return StatusOf(id).applied >= applied; }));
    const absl::StatusOr<raft::LogIndex> index = nodes_[id - 1]->node->TakeSnapshot();
    ASSERT_TRUE(index.ok()) << index.status();
    ASSERT_TRUE(Eventually([&] { return StatusOf(id).snapshots.last_index() >= index->value(); }));
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
    return storage::RestoreLog(config.data_dir, {.cluster_id = config.cluster_id, .node = config.self},
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
        const std::optional<wire::Announcement> announcement = wire::OpenAnnouncement(datagram.bytes, key);
        if (announcement.has_value()) epochs.insert(announcement->cluster_epoch);
      }
      if (batch.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return epochs;
  }
  // A file as an operator writes one; `ids` above 3 get an address now.
  std::string WriteConfig(uint64_t self, const std::vector<uint64_t>& ids, bool join, const std::string& more = "") {
    std::string text =
        absl::StrCat("cluster_id: 7\ncluster_key: \"", std::string(32, '1'), "\"\nnode: ", self,
                     "\ndurability: ", std::string(Name(GetParam())), "\ndata_dir: ", Path(absl::StrCat(self)),
                     "\nadmin_socket: ", Path(absl::StrCat(self, ".sock")), "\nmetrics_listen: \"\"\n",
                     join ? "join: on\n" : "", more, "members:\n");
    for (const uint64_t id : ids) {
      while (members_.size() < id) {
        members_.push_back({.id = raft::NodeId(members_.size() + 1), .peer = FreeAddress(), .serve = FreeAddress()});
      }
      absl::StrAppend(&text, "  - {id: ", id, ", peer: \"", members_[id - 1].peer.ToString(), "\", serve: \"",
                      members_[id - 1].serve.ToString(), "\"}\n");
    }
    const std::string path = Path(absl::StrCat(self, ".yaml"));
    std::ofstream(path) << text;
    std::filesystem::permissions(path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    return path;
  }
  struct Outcome {
    int exit_code;
    std::string out;
    std::string err;
  };
  static Outcome Command(const std::vector<std::string>& words) {
    std::ostringstream out;
    std::ostringstream err;
    const int exit_code = operate::Run(WithRecovery(TheProgram()), words, out, err);
    return {exit_code, out.str(), err.str()};
  }
  void AllBeginAnewWith(const std::string& backup) {
    for (uint64_t id = 1; id <= 3; ++id) {
      Stop(id);
      MoveAway(id);
      ASSERT_EQ(Restore(id, backup), absl::OkStatus());
    }
    for (uint64_t id = 1; id <= 3; ++id) Start(id);
  }
};

INSTANTIATE_TEST_SUITE_P(Durability, RecoveryTest, testing::Values(Durability::kDisk, Durability::kMemory),
                         DurabilityOf);

TEST_P(RecoveryTest, ABackupTakenWhileServingIsWhatWasAnsweredByThen) {
  const uint64_t leader = WaitForLeader();
  const uint64_t session = Open(leader);
  for (uint64_t seq = 1; seq <= 3; ++seq) EXPECT_EQ(Increment(leader, session, seq), std::to_string(seq));
  Backup(leader, Path("backup"));
  EXPECT_EQ(Increment(leader, session, 4), "4");
  ASSERT_NO_FATAL_FAILURE(AllBeginAnewWith(Path("backup")));
  const uint64_t next = WaitForLeader();
  EXPECT_EQ(StatusOf(next).cluster_epoch, 1u);
  EXPECT_EQ(Get(next, 1), "3") << "the fourth came later";
  EXPECT_EQ(Increment(next, session, 3), "3") << "sessions are in it: not a second time";
  EXPECT_EQ(Increment(next, session, 4), "4");
}

// Its key is that of the recovery generation, which `status` says.
TEST_P(RecoveryTest, ANodeJoinsARecoveredClusterOnceItsFileNamesTheGeneration) {
  const uint64_t before = WaitForLeader();
  EXPECT_EQ(Increment(before, Open(before), 1), "1");
  Backup(before, Path("backup"));
  ASSERT_NO_FATAL_FAILURE(AllBeginAnewWith(Path("backup")));
  const uint64_t leader = WaitForLeader();
  EXPECT_EQ(Increment(leader, Open(leader), 1), "2");

  const std::vector<MemberConfig> three = members_;
  const absl::StatusOr<NodeConfig> silent = LoadNodeConfig(WriteConfig(4, {4}, /*join=*/true));
  ASSERT_TRUE(silent.ok()) << silent.status();
  ASSERT_TRUE(Change({{.kind = raft::MemberChange::Kind::kAddLearner,
                       .node = raft::NodeId(4),
                       .address = members_[3].peer.ToString()}}));
  const auto caught_up = [&] {  // as whoever leads sees it
    for (const uint64_t id : {1, 2, 3}) {
      for (const NodeStatus status = StatusOf(id); const v1::Member& member : status.members) {
        if (member.id() == 4 && member.caught_up()) return true;
      }
    }
    return false;
  };
  {
    const Running deaf(*silent);  // and says nothing, since it knows nobody else
    EXPECT_TRUE(Eventually([&] { return CounterIn(*deaf.node->Status(), "peer_dropped", "tag") > 3; }));
    EXPECT_FALSE(caught_up()) << "it uses the key of generation 0";
  }
  std::filesystem::remove_all(silent->data_dir);  // nobody has heard of this log

  const std::string beginning = ToMessage(StatusOf(leader), {}).beginning();
  const absl::StatusOr<NodeConfig> config =
      LoadNodeConfig(WriteConfig(4, {4}, /*join=*/true, absl::StrCat("beginning: 1/", beginning, "\n")));
  ASSERT_TRUE(config.ok()) << config.status();
  const Running joins(*config);
  EXPECT_EQ(joins.node->Status()->cluster_epoch, 1u);
  EXPECT_TRUE(Eventually(caught_up));
  EXPECT_TRUE(Eventually([&] { return joins.node->Status()->applied == StatusOf(leader).applied; }));
  members_ = three;
}

// With its own entry alone in its file it would have been a majority, under the key that all of them have.
TEST_P(RecoveryTest, AJoinerDoesNotBegin) {
  const uint64_t leader = WaitForLeader();
  EXPECT_EQ(Increment(leader, Open(leader), 1), "1");
  Backup(leader, Path("backup"));
  const std::vector<MemberConfig> three = members_;
  const std::string file = WriteConfig(4, {4}, /*join=*/true);
  const Outcome refused = Command({"restore", "--config", file, "--from", Path("backup")});
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.err, HasSubstr("take `join` out of its file and list all members"));
  EXPECT_FALSE(std::filesystem::exists(Path("4")));
  members_ = three;
}

// {1, 2} of one file and {1, 2, 3} of another could be two clusters.
TEST_P(RecoveryTest, AllBeginWithTheMembersOfTheFileUnlessTold) {
  const uint64_t leader = WaitForLeader();
  EXPECT_EQ(Increment(leader, Open(leader), 1), "1");
  Backup(leader, Path("backup"));
  Stop(1);
  MoveAway(1);
  const std::string file = WriteConfig(1, {1, 2}, /*join=*/false);
  const Outcome refused = Command({"restore", "--config", file, "--from", Path("backup")});
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.err, HasSubstr("the backup has 1, 2, 3, and the configuration file has 1, 2"));
  EXPECT_FALSE(std::filesystem::exists(Path("1")));
  // No proxy takes such an epoch, and no recovery could go beyond it.
  const Outcome beyond = Command(
      {"restore", "--config", file, "--from", Path("backup"), "--other-members", "--epoch", "18446744073709551615"});
  EXPECT_EQ(beyond.exit_code, kExitUsage);
  EXPECT_THAT(beyond.err,
              HasSubstr("--epoch: got \"18446744073709551615\", expected a number from 1 to 1000000000000000000"));
  EXPECT_FALSE(std::filesystem::exists(Path("1")));
  const Outcome restored = Command({"restore", "--config", file, "--from", Path("backup"), "--other-members"});
  EXPECT_EQ(restored.exit_code, 0) << restored.err;
}

// A session that was opened after the backup is unknown in the next cluster, and stays that.
TEST_P(RecoveryTest, ASessionThatIsGoneIsUnknownLater) {
  const uint64_t leader = WaitForLeader();
  EXPECT_EQ(Increment(leader, Open(leader), 1), "1");
  Backup(leader, Path("backup"));
  const uint64_t gone = Open(leader);
  EXPECT_EQ(Increment(leader, gone, 1), "2");
  ASSERT_NO_FATAL_FAILURE(AllBeginAnewWith(Path("backup")));
  const uint64_t next = WaitForLeader();
  for (uint64_t i = 0; i < 8; ++i) EXPECT_NE(Open(next), gone) << i;
  EXPECT_EQ(Increment(next, gone, 1), "no answer") << "refused as unknown";
  EXPECT_EQ(Get(next, 1), "1");
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

TEST_P(RecoveryTest, WhatANewerProgramSaysIsCountedAndChangesNothing) {
  const uint64_t leader = WaitForLeader();
  wire::PeerCodec newer(
      {.cluster_id = 7, .keys = ConfigOf(1).cluster_keys, .self = raft::NodeId(leader % 3 + 1), .incarnation = 5});
  std::string datagram = newer.Seal(raft::NodeId(leader), raft::Term(1'000'000), wire::Hello{.nonce = 9});
  datagram[4] = static_cast<char>(datagram[4] + 1);  // the version
  const std::unique_ptr<UdpSocket> socket = AnySocket();
  socket->Send(members_[leader - 1].peer, std::move(datagram));
  socket->Flush();
  EXPECT_TRUE(Eventually([&] { return Counter(leader, "peer_dropped", "version") == 1; }));
  WaitForLeader();  // perhaps another one: a busy machine may keep this leader from running
  for (uint64_t id = 1; id <= 3; ++id) EXPECT_LT(StatusOf(id).term, raft::Term(1'000'000));
}

TEST_P(RecoveryTest, ANodeOfTheClusterBeforeIsNotHeard) {
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
  for (const v1::Peer& peer : before.peers) EXPECT_EQ(peer.life(), "") << peer.id();
  for (const v1::Peer& peer : StatusOf(1).peers) EXPECT_EQ(!peer.life().empty(), peer.id() != 3);
}

TEST_P(RecoveryTest, ASurvivorsLogIsAllThatTheNextClusterHas) {
  const uint64_t leader = WaitForLeader();
  const uint64_t session = Open(leader);
  for (uint64_t seq = 1; seq <= 3; ++seq) EXPECT_EQ(Increment(leader, session, seq), std::to_string(seq));
  EXPECT_TRUE(absl::IsFailedPrecondition(ReadRecoverySeed(ConfigOf(leader)).status())) << "it runs";
  for (uint64_t id = 1; id <= 3; ++id) Stop(id);
  {
    absl::StatusOr<RecoverySeed> seed = ReadRecoverySeed(ConfigOf(leader));
    ASSERT_TRUE(seed.ok()) << seed.status();
    EXPECT_THAT(seed->log.doubts, IsEmpty());
    const auto header = WriteRecoveryBackup(Path("beginning"), ConfigOf(leader), *seed);
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->begins.epoch, 1u);
    EXPECT_TRUE(absl::IsAlreadyExists(WriteRecoveryBackup(Path("beginning"), ConfigOf(leader), *seed).status()));
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

// Its file may have the members that it began with, or itself alone.
TEST_P(RecoveryTest, TheNewAndTheFormerMembersAreNamed) {
  const uint64_t leader = WaitForLeader();
  EXPECT_EQ(Increment(leader, Open(leader), 1), "1");
  const uint64_t gone = leader % 3 + 1;
  ASSERT_TRUE(Change({{.kind = raft::MemberChange::Kind::kRemove, .node = raft::NodeId(gone)}}));
  ASSERT_TRUE(Eventually([&] { return StatusOf(leader).committed_epoch == 2; }));
  for (uint64_t id = 1; id <= 3; ++id) Stop(id);
  const Outcome plan = Command({"recover", "--config", WriteConfig(leader, {1, 2, 3}, /*join=*/false)});
  EXPECT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("those of the configuration file: 1, 2, 3\n"));
  const uint64_t other = 6 - leader - gone;
  EXPECT_THAT(plan.out, HasSubstr(absl::StrCat("IN DOUBT: by its log the voters were ", std::min(leader, other), ", ",
                                               std::max(leader, other))));
  const Outcome joins = Command({"recover", "--config", WriteConfig(leader, {leader}, /*join=*/true), "--out",
                                 Path("beginning"), "--accept-data-loss", "--yes"});
  EXPECT_NE(joins.exit_code, 0);
  EXPECT_THAT(joins.err, HasSubstr("join is on"));
  EXPECT_FALSE(std::filesystem::exists(Path("beginning")));
}

// What is advised depends on which it is: to start a lost node brings nothing back.
TEST_P(RecoveryTest, WhatTheKernelHeldIsInDoubtInTwoWays) {
  WaitForLeader();
  Stop(1);
  const auto doubts = [&] {
    const absl::StatusOr<RecoverySeed> seed = ReadRecoverySeed(ConfigOf(1));
    EXPECT_TRUE(seed.ok()) << seed.status();
    return seed.ok() ? seed->log.doubts : std::vector<std::string>();
  };
  const auto keeper = IdentityKeeper::Open(ConfigOf(1));
  ASSERT_TRUE(keeper.ok()) << keeper.status();
  ASSERT_EQ((*keeper)->SetKernelHolds(), absl::OkStatus());
  EXPECT_THAT(doubts(), testing::ElementsAre(HasSubstr("start it and stop it in order first")));
  ASSERT_EQ((*keeper)->SetKernelLost(), absl::OkStatus());
  EXPECT_THAT(doubts(), testing::ElementsAre(HasSubstr("to start it brings nothing back")));
}

// Who takes it for the seed would begin with next to nothing.
TEST_P(RecoveryTest, AnEmptiedFolderIsInDoubt) {
  WaitForLeader();
  Stop(1);
  const auto doubts = [&] {
    const absl::StatusOr<RecoverySeed> seed = ReadRecoverySeed(ConfigOf(1));
    EXPECT_TRUE(seed.ok()) << seed.status();
    return seed.ok() ? seed->log.doubts : std::vector<std::string>();
  };
  EXPECT_THAT(doubts(), IsEmpty());
  const std::string folder = ConfigOf(1).data_dir;
  const storage::Identity whole = storage::ReadIdentity(folder)->value();
  storage::Identity marked = whole;
  marked.unknown_to = raft::NodeId(2);
  ASSERT_EQ(storage::WriteIdentity(folder, marked), absl::OkStatus());
  EXPECT_THAT(doubts(), testing::ElementsAre(HasSubstr("another member has recorded another copy")));
  storage::Identity of_another = whole;
  ++of_another.copy_id;
  ASSERT_EQ(storage::WriteIdentity(folder, of_another), absl::OkStatus());
  EXPECT_THAT(doubts(), testing::ElementsAre(HasSubstr("or `identity` is of another one")));
  std::filesystem::remove(folder + "/identity");
  EXPECT_THAT(doubts(), testing::ElementsAre(HasSubstr("there is no file `identity`")));
}

}  // namespace
}  // namespace hedgerow::node
