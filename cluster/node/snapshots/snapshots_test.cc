// SPDX-License-Identifier: Apache-2.0
//
// Whole nodes that cut their logs: what was written is there and happened once, whether it comes from a log or
// from a snapshot, and whoever sent that.
#include "cluster/node/snapshots/snapshots.h"

#include <atomic>
#include <fstream>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "build_paths.h"
#include "cluster/node/testing/node_testing.h"

namespace hedgerow::node {
namespace {

class SnapshotsTest : public NodeTest {
 protected:
  SnapshotsTest() { snapshots_ = {.every_entries = 300, .tail_entries = 50}; }

  // Adds so many to "n", one entry each, with seqs from `first` on. False: not all were answered.
  bool IncrementMany(uint64_t node, uint64_t session, uint64_t first, uint64_t count) {
    const std::unique_ptr<UdpSocket> socket = AnySocket();
    std::vector<bool> answered(count);
    uint64_t lowest = 0;
    for (int tries = 0; tries < 2000 && lowest < count; ++tries) {
      for (uint64_t i = lowest; i < std::min(count, lowest + 64); ++i) {
        if (answered[i]) continue;
        socket->Send(members_[node - 1].serve,
                     wire::Encode({.kind = wire::HkvKind::kWrite,
                                   .timeout_us = 1'000'000,
                                   .client_id = session,
                                   .seq = first + i,
                                   .lowest_unanswered = first + lowest,
                                   .token = TokenOf(session),
                                   .operations = {{.kind = kv::OperationKind::kIncrement, .key = "n", .delta = 1}}}));
      }
      socket->Flush();
      pollfd ready{.fd = socket->fd(), .events = POLLIN, .revents = 0};
      for (uint64_t end = std::min(count, lowest + 64); lowest < end && poll(&ready, 1, 100) == 1;) {
        for (const Datagram& datagram : socket->Receive(Now_ns())) {
          const auto answer = wire::ParseHkvAnswer(datagram.bytes);
          if (answer.has_value() && answer->status == wire::HkvStatus::kOk) answered[answer->seq - first] = true;
        }
        while (lowest < count && answered[lowest]) ++lowest;
      }
    }
    return lowest == count;
  }
  bool AllHaveApplied(uint64_t leader) {
    const raft::LogIndex commit = StatusOf(leader).commit;
    for (uint64_t id = 1; id <= 3; ++id) {
      if (nodes_[id - 1] != nullptr && StatusOf(id).applied < commit) return false;
    }
    return true;
  }
};

INSTANTIATE_TEST_SUITE_P(Durability, SnapshotsTest, testing::Values(Durability::kDisk, Durability::kMemory),
                         DurabilityOf);

TEST_P(SnapshotsTest, LogsAreCutAndARestartGoesOnFromSnapshotAndTail) {
  uint64_t leader = WaitForLeader();
  const uint64_t session = Open(leader);
  ASSERT_TRUE(IncrementMany(leader, session, 1, 1000));
  for (uint64_t id = 1; id <= 3; ++id) {
    EXPECT_TRUE(Eventually([&] { return StatusOf(id).snapshots.last_index() >= 700; })) << id;
    const NodeStatus status = StatusOf(id);
    EXPECT_EQ(status.snapshots.log_start() + 50, status.snapshots.last_index()) << "the tail";
    EXPECT_GT(status.snapshots.size_bytes(), 50u);
    EXPECT_EQ(status.snapshot_problem, "");
    EXPECT_TRUE(Eventually([&] {
      const std::filesystem::directory_iterator files(folder_ + "/" + std::to_string(id) + "/snapshots");
      return std::distance(begin(files), end(files)) == 1;
    })) << "older ones go";
  }
  const std::string last = Increment(leader, session, 1001);
  EXPECT_EQ(last, "1001");
  for (uint64_t id = 1; id <= 3; ++id) Stop(id);
  for (uint64_t id = 1; id <= 3; ++id) Start(id);
  leader = WaitForLeader();
  EXPECT_GE(StatusOf(leader).snapshots.last_index(), 700u);
  EXPECT_EQ(Increment(leader, session, 1001), "1001") << "not a second time";
  EXPECT_EQ(Increment(leader, session, 1002), "1002");
}

TEST_P(SnapshotsTest, AFollowerThatWasAwayCatchesUpBySnapshotUnderLoad) {
  const uint64_t leader = WaitForLeader();
  const uint64_t away = leader % 3 + 1;
  const uint64_t session = Open(leader);
  ASSERT_TRUE(IncrementMany(leader, session, 1, 200));
  ASSERT_TRUE(Eventually([&] { return AllHaveApplied(leader); }));
  Stop(away);
  ASSERT_TRUE(IncrementMany(leader, session, 201, 600));
  ASSERT_EQ(Increment(leader, session, 801), "801");
  ASSERT_TRUE(IncrementMany(leader, Open(leader), 1, 399));
  ASSERT_TRUE(Eventually([&] { return StatusOf(leader).snapshots.log_start() > 300; }));

  std::atomic<bool> enough = false;
  std::atomic<uint64_t> written = 1200;
  std::thread load([&] {
    const uint64_t its_own = Open(leader);
    for (uint64_t seq = 1; !enough; seq += 50, written += 50) {
      EXPECT_TRUE(IncrementMany(leader, its_own, seq, 50));
    }
  });
  Start(away);
  EXPECT_TRUE(Eventually([&] { return Counter(away, "snapshots", "installed") >= 1; }));
  EXPECT_TRUE(Eventually([&] { return StatusOf(away).applied.value() + 200 > StatusOf(leader).commit.value(); }))
      << "and it keeps up";
  enough = true;
  load.join();
  EXPECT_TRUE(Eventually([&] { return AllHaveApplied(leader); }));
  uint64_t delivered = 0;  // by whoever led by then
  for (uint64_t id = 1; id <= 3; ++id) delivered += Counter(id, "snapshot_transfers", "send_delivered");
  EXPECT_GE(delivered, 1u);
  EXPECT_EQ(StatusOf(leader).term, StatusOf(away).term);

  // Asked again of the one that never saw the entry, only the snapshot.
  EXPECT_EQ(Increment(away, session, 801), "801") << "the old answer, from the snapshot's tables";
  EXPECT_EQ(Get(away, 1), std::to_string(written.load())) << "and nothing was done twice";
  EXPECT_EQ(Get(leader, 2), std::to_string(written.load()));

  // It is a full member: what it has is enough without the former leader.
  Stop(leader);
  const uint64_t next = WaitForLeader();
  EXPECT_EQ(Increment(next, session, 801), "801");
  EXPECT_EQ(Increment(next, session, 802), std::to_string(written + 1));
}

TEST_P(SnapshotsTest, WhyAFollowerDoesNotGetOneIsSaid) {
  const uint64_t leader = WaitForLeader();
  const uint64_t away = leader % 3 + 1;
  const uint64_t session = Open(leader);
  Stop(away);
  ASSERT_TRUE(IncrementMany(leader, session, 1, 600));
  for (uint64_t id = 1; id <= 3; ++id) {
    if (id == away) continue;
    ASSERT_TRUE(Eventually([&] { return StatusOf(id).snapshots.log_start() > 100; })) << id;
    // Where its file would be written there is a folder.
    const v1::Snapshots last = StatusOf(id).snapshots;
    std::filesystem::create_directory(absl::StrCat(folder_, "/", away, "/snapshots/",
                                                   absl::Hex(last.last_index(), absl::kZeroPad16), "-",
                                                   absl::Hex(last.last_term(), absl::kZeroPad16), ".receiving"));
  }
  Start(away);
  EXPECT_TRUE(Eventually([&] {
    const uint64_t leads = StatusOf(leader).leader.value();  // 0: none, on a busy machine
    if (leads == 0) return false;
    const std::string problem = StatusOf(leads).snapshot_problem;
    return absl::StrContains(problem, absl::StrCat("node ", away, " needs one and does not get it: node ")) &&
           absl::StrContains(problem, "cannot make");
  })) << StatusOf(leader).snapshot_problem;
}

TEST_P(SnapshotsTest, OneIsTakenOnRequest) {
  const uint64_t leader = WaitForLeader();
  const uint64_t session = Open(leader);
  ASSERT_TRUE(IncrementMany(leader, session, 1, 20));
  const absl::StatusOr<raft::LogIndex> index = nodes_[leader - 1]->node->TakeSnapshot();
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_GE(index->value(), 20u);
  EXPECT_TRUE(Eventually([&] { return StatusOf(leader).snapshots.last_index() >= index->value(); }));
  EXPECT_EQ(Counter(leader, "snapshots", "taken"), 1u);
  // A busy machine may elect a leader meanwhile, which is an entry.
  EXPECT_TRUE(Eventually([&] {
    const absl::StatusOr<raft::LogIndex> again = nodes_[leader - 1]->node->TakeSnapshot();
    return again.ok() && again->value() == StatusOf(leader).snapshots.last_index();
  })) << "nothing new";
}

TEST_P(SnapshotsTest, ASnapshotFromASenderWithoutTheKeyIsRefused) {
  const uint64_t leader = WaitForLeader();
  const std::string file = folder_ + "/stranger";
  std::ofstream(file) << std::string(1000, 'x');
  wire::Key other;
  other.bytes.fill(0x22);
  const transfer::SharedKeys keys{wire::KeyRing(other)};
  transfer::Sender stranger({.cluster_id = 7,
                             .keys = &keys,
                             .self = raft::NodeId(leader % 3 + 1),
                             .retry = absl::Milliseconds(1),
                             .tries_max = 2},
                            [](raft::NodeId, raft::LogIndex, const absl::Status&) {});
  stranger.Send({.to = raft::NodeId(leader),
                 .address = members_[leader - 1].peer.ToString(),
                 .term = raft::Term(1000),
                 .last = {.index = raft::LogIndex(1'000'000), .term = raft::Term(999)},
                 .path = file});
  EXPECT_TRUE(Eventually([&] { return Counter(leader, "snapshot_transfers", "unauthenticated") == 2; }));
  EXPECT_EQ(Counter(leader, "snapshot_transfers", "receive_begun"), 0u);
  EXPECT_LT(StatusOf(leader).term, raft::Term(1000)) << "the stranger's";
}

// What peers' datagrams are asked is asked of an offer, too: a sender with the key is at fault.
TEST_P(SnapshotsTest, AnOfferIsJudgedAsAMembersDatagramIs) {
  const uint64_t leader = WaitForLeader();
  const std::string file = folder_ + "/stranger";
  std::ofstream(file) << std::string(1000, 'x');
  const transfer::SharedKeys keys{wire::KeyRing(ConfigOf(leader).cluster_keys)};
  const auto said_to = [&](uint64_t from, uint64_t incarnation, uint64_t term, uint64_t last_term) {
    absl::Mutex mutex;
    std::optional<absl::Status> ended;
    transfer::Sender sender({.cluster_id = 7,
                             .keys = &keys,
                             .self = raft::NodeId(from),
                             .incarnation = incarnation,
                             .retry = absl::Milliseconds(1),
                             .tries_max = 1},
                            [&](raft::NodeId, raft::LogIndex, const absl::Status& status) {
                              const absl::MutexLock lock(&mutex);
                              ended = status;
                            });
    sender.Send({.to = raft::NodeId(leader),
                 .address = members_[leader - 1].peer.ToString(),
                 .term = raft::Term(term),
                 .last = {.index = raft::LogIndex(1'000'000), .term = raft::Term(last_term)},
                 .path = file});
    EXPECT_TRUE(Eventually([&] {
      const absl::MutexLock lock(&mutex);
      return ended.has_value();
    }));
    const absl::MutexLock lock(&mutex);
    return std::string(ended->message());
  };
  const uint64_t member = leader % 3 + 1;
  const NodeStatus status = StatusOf(leader);
  const uint64_t possible = status.term.value() + 10;
  const auto is_it = [member](const v1::Peer& peer) { return peer.id() == member; };
  const std::string life = std::find_if(status.peers.begin(), status.peers.end(), is_it)->life();
  const uint64_t known = std::stoull(life, nullptr, 16);
  EXPECT_THAT(said_to(member, known, UINT64_MAX, 1), testing::HasSubstr("elections cannot have reached that term"));
  EXPECT_THAT(said_to(member, known, UINT64_MAX, UINT64_MAX),
              testing::HasSubstr("elections cannot have reached that term"));
  EXPECT_THAT(said_to(member, 0, UINT64_MAX, 1), testing::HasSubstr("elections cannot have reached that term"));
  EXPECT_EQ(Counter(leader, "peer_dropped", "term"), 3u) << "as its datagrams are";
  EXPECT_THAT(said_to(member, 5, possible, 1), testing::HasSubstr("in another incarnation"));
  EXPECT_THAT(said_to(member, known, possible, possible + 1), testing::HasSubstr("of a later term than the offer"));
  EXPECT_THAT(said_to(9, 0, possible, 1), testing::HasSubstr("no datagram of that node is believed"));
  EXPECT_THAT(said_to(member, known, possible, 1), testing::HasSubstr("damaged"))
      << "it is taken, and the file is none";
  EXPECT_LT(StatusOf(leader).term, raft::Term(possible));
}

TEST_P(SnapshotsTest, EveryCounterIsDocumented) {
  std::ifstream file(std::string(HEDGEROW_SOURCE_DIR) + "/docs/metrics.md");
  std::stringstream docs;
  docs << file.rdbuf();
  size_t found = 0;
  for (const NodeCounter& counter : StatusOf(1).counters) {
    if (!absl::StartsWith(counter.name, "snapshot")) continue;
    ++found;
    EXPECT_TRUE(absl::StrContains(docs.str(), absl::StrCat("| `hedgerow_node_", counter.name, "_total` |")));
    EXPECT_TRUE(absl::StrContains(docs.str(), absl::StrCat("`", counter.reason, "`"))) << counter.reason;
  }
  EXPECT_GT(found, 10u);
}

}  // namespace
}  // namespace hedgerow::node
