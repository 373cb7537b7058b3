// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/status/stall_problem.h"

#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/node/testing/fake_node_control.h"
#include "cluster/node/status/status_message.h"

namespace hedgerow::node {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr uint64_t kSecond = 1'000'000'000;

NodeStatus LeaderOfThree() {
  NodeStatus status;
  status.node = raft::NodeId(1);
  status.role = raft::Role::kLeader;
  status.last_index = raft::LogIndex(20);
  status.commit = raft::LogIndex(12);
  for (const uint64_t id : {1, 2, 3}) AddMember(status, id, "voter");
  for (const uint64_t id : {2, 3}) {
    v1::Peer& peer = AddPeer(status, raft::NodeId(id), {});
    peer.set_heard_ago_ns(kSecond / 100);
    peer.set_match_index(id == 2 ? 12 : 20);
  }
  return status;
}

TEST(StallProblem, ALogThatMovesIsNone) {
  NodeStatus status = LeaderOfThree();
  status.commit_stalled_ns = kSecond / 10;
  status.disk_stalled_ns = kSecond / 10;
  status.leaderless_ns = kSecond / 2;
  EXPECT_THAT(StallProblems(status), IsEmpty());
}

TEST(StallProblem, NamesTheVotersThatAnswerAndDoNotAcknowledge) {
  NodeStatus status = LeaderOfThree();
  status.commit_stalled_ns = 3 * kSecond;
  EXPECT_THAT(StallProblems(status),
              ElementsAre(AllOf(HasSubstr("for 3.00s while 8 entries wait"), HasSubstr("node 2 answers heartbeats"),
                                Not(HasSubstr("node 3")))));
}

TEST(StallProblem, ADiskThatHangsIsNamedOnTheNodeThatHasIt) {
  EXPECT_THAT(DiskProblem(2 * kSecond), HasSubstr("has not finished for 2.00s"));
  EXPECT_THAT(DiskProblem(kSecond / 10), IsEmpty());
}

TEST(StallProblem, ANodeWithoutALeaderSaysSo) {
  NodeStatus status = LeaderOfThree();
  status.role = raft::Role::kFollower;
  status.leaderless_ns = 5 * kSecond;
  EXPECT_THAT(StallProblems(status), ElementsAre(HasSubstr("no leader is known for 5.00s")));
  status.lost = "its host has rebooted";
  EXPECT_THAT(StallProblems(status), IsEmpty()) << "a lost node knows why";
}

// ---- Whatever keeps writes from being done, `problems` names it ----

struct Cause {
  const char* what;
  std::function<void(NodeStatus&)> happens;
  const char* message;  // of the cause
  const char* advice;   // what to do about it, or where to look
};

class WhyNothingIsWritten : public testing::TestWithParam<Cause> {};

TEST_P(WhyNothingIsWritten, IsAProblemWithAdvice) {
  NodeStatus status = FakeStatus();
  v1::Peer& third = status.peers[1];
  third.set_life("0000000000000003");
  third.set_heard_ago_ns(kSecond / 1000);
  third.set_match_index(1043);
  ASSERT_THAT(ToMessage(status, FakeFacts()).problems(), IsEmpty()) << "nothing is wrong yet";
  GetParam().happens(status);
  EXPECT_THAT(ToMessage(status, FakeFacts()).problems(),
              testing::Contains(AllOf(HasSubstr(GetParam().message), HasSubstr(GetParam().advice))));
}

void NobodyLeads(NodeStatus& status) {
  status.role = raft::Role::kFollower;
  status.leader = raft::NodeId();
  status.leaderless_ns = 3 * kSecond;
}

const Cause kCauses[] = {
    {"a_majority_is_down", NobodyLeads, "no leader is known", "a majority of the voters must run"},
    {"its_disk_hangs", [](NodeStatus& status) { status.storage = DiskProblem(3 * kSecond); },
     "has not finished for 3.00s", "the disk hangs"},
    {"its_disk_is_full", [](NodeStatus& status) { status.storage = "no space left on device; writes wait"; },
     "storage: no space left", "writes wait"},
    {"the_disks_of_others_hang",
     [](NodeStatus& status) {
       status.commit_stalled_ns = kSecond;
       status.peers[1].set_match_index(1);
     },
     "node 2 and node 3 answer heartbeats and do not acknowledge", "a disk there is full or hangs"},
    {"the_network_drops_what_is_large",
     [](NodeStatus& status) {
       status.commit_stalled_ns = kSecond;
       status.peers[1].set_match_index(1);
     },
     "nothing has been committed for 1.00s", "the network drops larger datagrams"},
    {"the_others_answer_nothing",
     [](NodeStatus& status) {
       status.commit_stalled_ns = kSecond;
       for (v1::Peer& peer : status.peers) peer.set_heard_ago_ns(5 * kSecond);
     },
     "nothing has been committed", "too few members answer"},
    {"another_durability",
     [](NodeStatus& status) {
       NobodyLeads(status);
       status.peers[0].set_incompatible(
           "has `durability: memory`, and this node `durability: disk`: stop the node whose file is wrong, correct the key there, and start it");
     },
     "`durability: memory`", "correct the key there"},
    {"another_key",
     [](NodeStatus& status) {
       NobodyLeads(status);
       status.peers[0].set_heard_ago_ns(-1);
     },
     "nothing that can be believed has come from node 2", "the same cluster_id and cluster key"},
    {"it_is_lost", [](NodeStatus& status) { status.lost = "its folder was emptied: ..."; }, "LOST: its folder", ""},
    {"too_many_are_lost", [](NodeStatus& status) { status.cluster_lost = "2 of 3 ..."; }, "LOST: 2 of 3", ""},
    {"it_was_removed", [](NodeStatus& status) { status.removed = "this node is no member ..."; }, "REMOVED: ", ""},
    {"it_is_yet_to_be_added",
     [](NodeStatus& status) {
       NobodyLeads(status);
       status.members.Clear();
       status.peers.Clear();
       status.joins = true;
     },
     "has not been added", "members add"},
    {"a_limit_is_reached", [](NodeStatus& status) { status.full = {"as many sessions are open as may be"}; },
     "as many sessions", ""},
    {"whatever_else",
     [](NodeStatus& status) {
       status.failing_writes = 12;
       status.failing_ns = 2 * kSecond;
     },
     "no write that was sent to this node has been done in 2.00s: 12 were refused", "The leader's `status`"},
};
INSTANTIATE_TEST_SUITE_P(Causes, WhyNothingIsWritten, testing::ValuesIn(kCauses),
                         [](const auto& info) { return std::string(info.param.what); });

TEST(StallProblem, FewRefusalsInAShortTimeAreNone) {
  NodeStatus status = LeaderOfThree();
  status.failing_writes = 5;
  status.failing_ns = kSecond / 2;
  EXPECT_THAT(StallProblems(status), IsEmpty());
}

class FullProblemsTest : public testing::Test {
 protected:
  void Apply(kv::Command command) { state_.Apply(++index_, command); }
  void Limit(kv::Setting setting, uint64_t value) {
    Apply({.key = {.kind = kv::CommandKind::kSettings}, .settings = {{setting, value}}});
  }

  kv::StateMachine state_;
  uint64_t index_ = 0;
};

TEST_F(FullProblemsTest, EachLimitThatIsReachedIsNamedWithItsSetting) {
  EXPECT_THAT(FullProblems(state_), IsEmpty());
  Limit(kv::Setting::kSessionsMax, 2);
  Limit(kv::Setting::kWindowMax, 2);
  Limit(kv::Setting::kMemcachedWindowMax, 2);
  for (uint64_t i = 1; i <= 2; ++i) {
    EXPECT_THAT(FullProblems(state_), IsEmpty());
    Apply({.key = {.kind = kv::CommandKind::kOpen, .a = i}, .session = {.id = i}});
    EXPECT_THAT(FullProblems(state_), IsEmpty()) << "a session that never wrote makes room";
    const std::vector<kv::Operation> put = {{.kind = kv::OperationKind::kPut, .key = "k", .value = "v"}};
    Apply({.key = kv::WriteKey({.id = i}, 1, put), .operations = put});
    Apply({.key = {.kind = kv::CommandKind::kWindowed, .a = i}});
    Apply({.key = {.kind = kv::CommandKind::kMemcached, .a = i},
           .item = {.verb = kv::ItemVerb::kSet, .key = "k", .value = "v"}});
  }
  EXPECT_THAT(FullProblems(state_), ElementsAre(HasSubstr("`sessions.max`"), HasSubstr("`requests.window_max`"),
                                                HasSubstr("`memcached.window_max`")));
}

TEST_F(FullProblemsTest, AStoreThatIsNearlyFullIsAProblem) {
  Limit(kv::Setting::kMemory, 1 << 20);
  for (uint64_t i = 0; i < 20; ++i) {
    Apply({.key = {.kind = kv::CommandKind::kWindowed, .a = i},
           .operations = {
               {.kind = kv::OperationKind::kPut, .key = "k" + std::to_string(i), .value = std::string(60'000, 'v')}}});
    if (i == 8) EXPECT_THAT(FullProblems(state_), IsEmpty());
  }
  for (uint64_t i = 100; i < 150; ++i) {
    Apply({.key = {.kind = kv::CommandKind::kWindowed, .a = i},
           .operations = {
               {.kind = kv::OperationKind::kPut, .key = "s" + std::to_string(i), .value = std::string(900, 'v')}}});
  }
  EXPECT_THAT(FullProblems(state_), ElementsAre(HasSubstr("`memory.limit_mib`")));
  Apply({.key = {.kind = kv::CommandKind::kPurge}, .operations = {{.kind = kv::OperationKind::kDelete, .key = "k1"}}});
  EXPECT_THAT(FullProblems(state_), IsEmpty());
}

TEST(MemoryProblem, NamesANodeWithLessMemoryThanAFullStoreMayNeed) {
  v1::Memory memory;
  memory.set_limit_bytes(uint64_t{1024} << 20);
  memory.set_available_bytes(uint64_t{2048} << 20);
  EXPECT_THAT(MemoryProblem(memory),
              HasSubstr("has 2048 MiB of memory, and with a full store of `memory.limit_mib` (1024) it may "
                        "need 3184 MiB: give it more, or set a limit of at most 645"));
  memory.set_limit_bytes(uint64_t{645} << 20);
  EXPECT_EQ(MemoryProblem(memory), "");
  memory.set_limit_bytes(uint64_t{1024} << 20);
  memory.set_available_bytes(0);
  EXPECT_EQ(MemoryProblem(memory), "") << "nothing says how much it has";
}

TEST_F(FullProblemsTest, ItemsThatTakeNearlyAllOfTheirMemoryAreAProblem) {
  Limit(kv::Setting::kMemcachedMemory, 1 << 20);
  for (uint64_t i = 0; i < 20; ++i) {
    Apply({.key = {.kind = kv::CommandKind::kMemcached, .a = i},
           .item = {.verb = kv::ItemVerb::kSet, .key = "k" + std::to_string(i), .value = std::string(60'000, 'v')}});
    if (i == 8) EXPECT_THAT(FullProblems(state_), IsEmpty());
  }
  EXPECT_THAT(FullProblems(state_), ElementsAre(HasSubstr("`memcached.memory_mib`")));
}

}  // namespace
}  // namespace hedgerow::node
