// SPDX-License-Identifier: Apache-2.0
//
// What an operator reads: the message, the text, and when a node calls itself ready.

#include "cluster/node/status/status.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "cluster/node/testing/fake_node_control.h"
#include "cluster/node/status/status_message.h"
#include "cluster/node/status/status_text.h"
#include "config/json.h"
#include "operate/version.h"

namespace hedgerow::node {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST(Readiness, NeedsALeaderAndWhatItHadCommittedApplied) {
  Readiness readiness;
  const raft::NodeId leader(2);
  EXPECT_FALSE(readiness.Observe(raft::NodeId(), raft::LogIndex(0), raft::LogIndex(0)));
  EXPECT_FALSE(readiness.Observe(leader, raft::LogIndex(0), raft::LogIndex(0))) << "no commit is known yet";
  EXPECT_FALSE(readiness.Observe(leader, raft::LogIndex(10), raft::LogIndex(3)));
  EXPECT_FALSE(readiness.Observe(leader, raft::LogIndex(20), raft::LogIndex(9)));
  EXPECT_TRUE(readiness.Observe(leader, raft::LogIndex(20), raft::LogIndex(10))) << "later commits are not waited for";
  EXPECT_FALSE(readiness.Observe(raft::NodeId(), raft::LogIndex(20), raft::LogIndex(20))) << "nobody leads";
  EXPECT_TRUE(readiness.Observe(leader, raft::LogIndex(30), raft::LogIndex(20)));
}

TEST(StatusMessage, CarriesEveryNumber) {
  const v1::NodeStatus message = ToMessage(FakeStatus(), FakeFacts());
  EXPECT_FALSE(message.version().empty());
  EXPECT_EQ(message.cluster_id(), "7");
  EXPECT_EQ(message.node(), 1u);
  EXPECT_EQ(message.role(), "leader");
  EXPECT_TRUE(message.ready());
  EXPECT_EQ(message.term(), 4u);
  EXPECT_EQ(message.leader(), 1u);
  EXPECT_EQ(message.commit(), 1042u);
  EXPECT_EQ(message.applied(), 1042u);
  EXPECT_EQ(message.last_index(), 1043u);
  EXPECT_EQ(message.durable_index(), 1042u);
  EXPECT_EQ(message.election_timeout_ns(), 20'000'000);
  EXPECT_EQ(message.sessions(), 12u);
  EXPECT_EQ(message.waiting(), 3u);
  EXPECT_EQ(message.durability(), "disk");
  EXPECT_EQ(message.serve(), "10.0.0.1:4801");
  EXPECT_EQ(message.metrics(), "127.0.0.1:9465");
  EXPECT_EQ(message.uptime_ns(), 3'720'000'000'000);
  ASSERT_EQ(message.peers_size(), 2);
  EXPECT_EQ(message.peers(0).life(), "0123456789abcdef");
  EXPECT_EQ(message.peers(0).heard_ago_ns(), 3'100'000);
  EXPECT_EQ(message.peers(0).round_trip_ns(), 210'000);
  EXPECT_EQ(message.peers(0).match_index(), 1040u);
  EXPECT_EQ(message.peers(0).build(), "0.2.0");
  EXPECT_EQ(message.peers(1).build(), "");
  EXPECT_EQ(message.peers(1).life(), "");
  EXPECT_EQ(message.peers(1).heard_ago_ns(), -1);
  EXPECT_EQ(message.peers(1).round_trip_ns(), -1);
  EXPECT_EQ(message.peers(1).match_index(), 0u);
  EXPECT_EQ(message.counters().at("hkv_requests"), 1234u);
  EXPECT_EQ(message.counters().at("peer_dropped.replayed"), 5u);
  EXPECT_EQ(message.counters().at("peer_dropped.tag"), 0u);
  EXPECT_EQ(message.counters().at("peer_sent@2"), 77u);
}

std::vector<std::string> Problems(const NodeStatus& status) {
  const v1::NodeStatus message = ToMessage(status, FakeFacts());
  return {message.problems().begin(), message.problems().end()};
}

TEST(StatusMessage, APeerThatWasNeverBelievedIsAProblemOnceItHadTime) {
  NodeStatus status = FakeStatus();
  EXPECT_THAT(Problems(status),
              ElementsAre("nothing that can be believed has come from node 3 (10.0.0.3:4802) yet: "
                          "does it run, and has it the same cluster_id and cluster key? If another member's "
                          "`status` has a line `epoch`, the cluster was recovered, and this folder is not of it"));
  status.uptime_ns = 1'000'000'000;
  EXPECT_THAT(Problems(status), IsEmpty());
}

TEST(StatusMessage, APeerThatIsNotCompatibleIsNamedWithTheReason) {
  NodeStatus status = FakeStatus();
  status.peers.RemoveLast();
  status.peers[0].set_incompatible("has `durability: memory`");
  EXPECT_THAT(Problems(status),
              ElementsAre("nothing that node 2 (10.0.0.2:4802) sends is believed: it has `durability: memory`"));
}

TEST(StatusMessage, ASilentPeerIsALeadersProblemOnly) {
  NodeStatus status = FakeStatus();
  status.peers.RemoveLast();
  status.peers[0].set_heard_ago_ns(1'500'000'000);
  EXPECT_THAT(Problems(status), ElementsAre("node 2 (10.0.0.2:4802) is silent for 1.50s"));
  status.role = raft::Role::kFollower;
  EXPECT_THAT(Problems(status), IsEmpty()) << "followers have nothing to say to each other";
}

TEST(StatusMessage, AMemberThatAnswersElsewhereIsToBeMoved) {
  NodeStatus status = FakeStatus();
  status.peers.RemoveLast();
  status.peers[0].set_answers_at("10.0.0.9:4802");
  EXPECT_THAT(Problems(status),
              ElementsAre("node 2 (10.0.0.2:4802) answers at 10.0.0.9:4802 instead: `members move 2 10.0.0.9:4802` at "
                          "the leader, or start it at the address that the others know"));
}

TEST(StatusMessage, AMemberThatPeerClientsShutsOutIsNamedWithItsSource) {
  NodeStatus status = FakeStatus();
  status.peers.RemoveLast();
  status.peers[0].set_heard_ago_ns(-1);
  status.peers[0].set_excluded_at("10.0.0.9:4802");
  EXPECT_THAT(
      Problems(status),
      ElementsAre(
          "node 2 (10.0.0.2:4802) sends from 10.0.0.9:4802, and this node's `peer_clients` does not list that address: nothing of it is "
          "heard. If it is that node's own, list it, or let the node send from a listed one"));
}

TEST(StatusMessage, StorageSaysWhatIsWrong) {
  NodeStatus status = FakeStatus();
  status.peers.Clear();
  status.storage = "no space left on device; writes wait";
  EXPECT_THAT(Problems(status), ElementsAre("storage: no space left on device; writes wait"));
}

// A member that was restored from another file, or not at all, is heard by nobody for its key.
TEST(StatusMessage, APeerUnheardByARecoveredClusterMayBeOfAnotherGeneration) {
  NodeStatus status = FakeStatus();
  status.cluster_epoch = 2;
  status.recovery_nonce = 7;
  EXPECT_THAT(Problems(status), testing::Contains(testing::HasSubstr("must show the same line `epoch`")));
}

TEST(StatusText, OfALeader) {
  v1::NodeStatus message = ToMessage(FakeStatus(), FakeFacts());
  message.set_version("0.2.0");
  message.set_pid(321);
  EXPECT_EQ(StatusText(message),
            R"(hedgerow-node 0.2.0  cluster 7  node 1  leader  ready  pid 321  up 1h 2m
  PROBLEM: nothing that can be believed has come from node 3 (10.0.0.3:4802) yet: does it run, and has it the same cluster_id and cluster key? If another member's `status` has a line `epoch`, the cluster was recovered, and this folder is not of it
  term         4, this node leads, election timeout 20.0ms
  log          last 1043, durable here 1042, committed 1042, applied 1042
  durability   disk
  clients      10.0.0.1:4801, 12 sessions, 3 requests waiting
  metrics      http://127.0.0.1:9465/metrics
  snapshots    none yet

  node   address                      build      incarnation      last heard   round trip log
  2      10.0.0.2:4802                0.2.0      0123456789abcdef 3.10ms ago   210us      1040 (3 behind)
  3      10.0.0.3:4802                -          unknown          never        -          0 (1043 behind)

  hkv_requests                                   1234
  peer_dropped.replayed                             5
  peer_sent@2                                      77
)");
}

TEST(StatusMessage, AStateThatDiffersIsAProblem) {
  NodeStatus status = FakeStatus();
  status.peers.Clear();
  status.diverged = "after entry 5 the data of this node was not that of the leader";
  EXPECT_THAT(Problems(status),
              ElementsAre("DIVERGED: after entry 5 the data of this node was not that of the leader"));
}

TEST(StatusMessage, ANoteNamesTheBuildsOfAMixedCluster) {
  const auto notes = [](const NodeStatus& status) {
    const v1::NodeStatus message = ToMessage(status, FakeFacts());
    return std::vector<std::string>(message.notes().begin(), message.notes().end());
  };
  NodeStatus status = FakeStatus();
  for (v1::Peer& peer : status.peers) peer.set_build(operate::kVersion);
  EXPECT_THAT(notes(status), IsEmpty());
  status.peers[1].set_build("");
  EXPECT_THAT(notes(status), IsEmpty()) << "it has not told";
  status.peers[1].set_build("9.9");
  EXPECT_THAT(notes(status), ElementsAre(HasSubstr(absl::StrCat(operate::kVersion, " (node 1, 2), 9.9 (node 3)"))));
}

TEST(StatusText, NotesAreNoProblems) {
  NodeStatus status = FakeStatus();
  status.peers.Clear();
  status.notes = {"sessions.max is 5, and the file of this node says 6"};
  const v1::NodeStatus message = ToMessage(status, FakeFacts());
  EXPECT_THAT(message.problems(), IsEmpty());
  EXPECT_THAT(StatusText(message), HasSubstr("\n  note: sessions.max is 5, and the file of this node says 6\n"));
}

TEST(StatusText, SaysWhatIsInTheFileAndDoesNotHold) {
  NodeStatus status = FakeStatus();
  status.settings[1].set_in_file("6");
  const std::string text = SettingsText(ToMessage(status, FakeFacts()));
  EXPECT_THAT(text, HasSubstr("  sessions.max           100000     1 to 1000000       sessions at a time"));
  EXPECT_THAT(text, HasSubstr("the file of this node says 6, which only seeds a new cluster\n"));
}

TEST(StatusText, SaysWhatBecomesOfSnapshots) {
  NodeStatus status = FakeStatus();
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "last_index: 1000 last_term: 3 age_ns: 65000000000 size_bytes: 54525952 taking: true log_start: 900 "
      "transfers { peer: 3 direction: 'sends' index: 1000 done_bytes: 50 size_bytes: 200 percent: 25 }",
      &status.snapshots));
  status.snapshot_problem = "the disk is full";
  EXPECT_THAT(StatusText(ToMessage(status, FakeFacts())),
              HasSubstr("  snapshots    last at 1000, 52 MiB, 1m 5s old, log from 901, one is being taken\n"
                        "               sends to node 3: 25 % of the snapshot at 1000, 200 bytes\n"));
  EXPECT_THAT(Problems(status), testing::Contains("snapshots: the disk is full"));
}

TEST(StatusText, OfANodeWithoutALeader) {
  NodeStatus status = FakeStatus();
  status.role = raft::Role::kPreCandidate;
  status.leader = raft::NodeId();
  status.ready = false;
  const std::string text = StatusText(ToMessage(status, FakeFacts()));
  EXPECT_THAT(text, HasSubstr("candidate (asking whether it may stand)  NOT READY"));
  EXPECT_THAT(text, HasSubstr("no leader is known"));
  EXPECT_THAT(text, Not(HasSubstr("behind"))) << "only a leader knows";
}

TEST(StatusText, SaysWhatTheKernelDoesAndWhyNot) {
  NodeStatus status = FakeStatus();
  AddOffload(status, "heartbeat", true, "native XDP on eth0");
  AddOffload(status, "vote", true, "native XDP on eth0");
  AddOffload(status, "append", false, "durability is disk");
  EXPECT_THAT(StatusText(ToMessage(status, FakeFacts())),
              HasSubstr("  offloads     append off: durability is disk\n"
                        "               heartbeat, vote on: native XDP on eth0\n"));
}

TEST(StatusText, SaysWhatHappenedLately) {
  NodeStatus status = FakeStatus();
  EXPECT_THAT(StatusText(ToMessage(status, FakeFacts())), Not(HasSubstr("lately")));
  const auto add = [&status](uint64_t ago_ns, const char* what) {
    v1::Incident& incident = *status.incidents.Add();
    incident.set_ago_ns(ago_ns);
    incident.set_what(what);
  };
  add(12'000'000'000, "its loop stood still for 12.0ms");
  add(65'000'000'000, "wanted to lead in term 4: node 2 resigned");
  EXPECT_THAT(StatusText(ToMessage(status, FakeFacts())),
              HasSubstr("  lately       12s ago: its loop stood still for 12.0ms\n"
                        "               1m 5s ago: wanted to lead in term 4: node 2 resigned\n"));
  EXPECT_THAT(ToJson(ToMessage(status, FakeFacts())), HasSubstr("\"what\": \"wanted to lead"));
}

TEST(StatusText, SaysWhatMemcachedsClientsHave) {
  NodeStatus status = FakeStatus();
  EXPECT_FALSE(ToMessage(status, FakeFacts()).has_memcached());
  v1::Memcached& memcached = status.memcached.emplace();
  memcached.set_listen("10.0.0.1:11211");
  memcached.set_rate_per_s(3120);
  memcached.set_items(7);
  memcached.set_item_bytes(900);
  memcached.set_window_requests(3);
  memcached.set_clients(1);
  EXPECT_THAT(StatusText(ToMessage(status, FakeFacts())),
              HasSubstr("  memcached    10.0.0.1:11211, 7 items (900 bytes), 3 requests in the window, 1 clients, "
                        "at most 3120/s each\n"));
}

TEST(StatusText, OfAClusterOfOne) {
  NodeStatus status = FakeStatus();
  status.peers.Clear();
  EXPECT_THAT(StatusText(ToMessage(status, FakeFacts())), HasSubstr("this node is the whole cluster"));
}

TEST(StatusJson, HasEveryFieldAndNumbersAreNumbers) {
  const std::string json = ToJson(ToMessage(FakeStatus(), FakeFacts()));
  for (const char* line : {"\"cluster_id\": \"7\"", "\"term\": 4", "\"ready\": true", "\"leader\": 1",
                           "\"heard_ago_ns\": -1", "\"peer_dropped.tag\": 0", "\"uptime_ns\": 3720000000000"}) {
    EXPECT_THAT(json, HasSubstr(line));
  }
}

}  // namespace
}  // namespace hedgerow::node
