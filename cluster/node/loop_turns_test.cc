// SPDX-License-Identifier: Apache-2.0
//
// How often a node's loop turns: at rest, under load, while a disk writes, and while a member is gone. All
// threads share one processor, so that a thread which is woken displaces the one that woke it: what a wake-up
// says too early shows on every machine.
#include <sched.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "cluster/node/testing/node_testing.h"

namespace hedgerow::node {
namespace {

// A leader's rounds, a follower's lease and their answers: about 500 a second were counted.
constexpr double kAtRest_per_s = 1'500;
constexpr uint64_t kPuts = 200;
// One client's: its datagram, the entries or their acknowledgement, the durable write, and what sealed them
// meanwhile.
constexpr double kOfAPut = 6;

class LoopTurnsTest : public NodeTest {
 protected:
  void SetUp() override {
    ASSERT_EQ(sched_getaffinity(0, sizeof(allowed_), &allowed_), 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu)
      if (CPU_ISSET(cpu, &allowed_)) CPU_SET(cpu, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    NodeTest::SetUp();
  }
  void TearDown() override {
    NodeTest::TearDown();
    sched_setaffinity(0, sizeof(allowed_), &allowed_);
  }

  uint64_t TurnsOf(uint64_t id) { return Counter(id, "loop_turns", "true") + Counter(id, "loop_turns", "false"); }
  // At most `puts` times kOfAPut in each node that runs while `what` is done, and what the clock makes.
  void ExpectFewTurns(uint64_t puts, const std::function<void()>& what) {
    std::vector<uint64_t> before;
    for (uint64_t id = 1; id <= 3; ++id) before.push_back(nodes_[id - 1] == nullptr ? 0 : TurnsOf(id));
    const uint64_t began_ns = Now_ns();
    what();
    for (uint64_t id = 1; id <= 3; ++id) {
      if (nodes_[id - 1] == nullptr) continue;
      const double took_s = static_cast<double>(Now_ns() - began_ns) / 1e9;
      const uint64_t turns = TurnsOf(id) - before[id - 1];
      RecordProperty("turns_" + std::to_string(id), std::to_string(turns) + " in " + std::to_string(took_s));
      EXPECT_LE(static_cast<double>(turns), kOfAPut * static_cast<double>(puts) + kAtRest_per_s * took_s)
          << "node " << id << " of leader " << Leader() << " in " << took_s << " s";
    }
  }

 private:
  cpu_set_t allowed_{};
};

INSTANTIATE_TEST_SUITE_P(Durability, LoopTurnsTest, testing::Values(Durability::kDisk, Durability::kMemory),
                         DurabilityOf);

TEST_P(LoopTurnsTest, AtRestTheClockAloneTurnsIt) {
  ASSERT_NE(WaitForLeader(), 0u);
  ExpectFewTurns(0, [] { std::this_thread::sleep_for(std::chrono::seconds(1)); });
}

TEST_P(LoopTurnsTest, APutTakesAFewTurnsOfEachNode) {
  const uint64_t leader = WaitForLeader();
  const uint64_t session = Open(leader);
  ExpectFewTurns(kPuts, [&] {
    for (uint64_t seq = 1; seq <= kPuts; ++seq) ASSERT_EQ(Increment(leader, session, seq), std::to_string(seq));
  });
}

TEST_P(LoopTurnsTest, PutsThatComeTogetherTakeNoMore) {
  const uint64_t leader = WaitForLeader();
  const uint64_t session = Open(leader);
  const std::unique_ptr<UdpSocket> socket = AnySocket();
  ExpectFewTurns(kPuts, [&] {
    for (uint64_t seq = 1; seq <= kPuts; ++seq) {
      socket->Send(members_[leader - 1].serve,
                   wire::Encode(wire::HkvRequest{
                       .kind = wire::HkvKind::kWrite,
                       .timeout_us = 4'000'000,
                       .client_id = session,
                       .seq = seq,
                       .lowest_unanswered = 1,
                       .token = TokenOf(session),
                       .operations = {{.kind = kv::OperationKind::kIncrement, .key = "n", .delta = 1}}}));
    }
    socket->Flush();
    uint64_t answered = 0;
    EXPECT_TRUE(Eventually([&] { return (answered += socket->Receive(Now_ns()).size()) == kPuts; })) << answered;
  });
}

TEST_P(LoopTurnsTest, AMemberThatIsGoneMakesNoTurns) {
  const uint64_t leader = WaitForLeader();
  Stop(leader % 3 + 1);
  ASSERT_EQ(WaitForLeader(), leader);
  const uint64_t session = Open(leader);
  ExpectFewTurns(0, [] { std::this_thread::sleep_for(std::chrono::seconds(1)); });
  ExpectFewTurns(kPuts, [&] {
    for (uint64_t seq = 1; seq <= kPuts; ++seq) ASSERT_EQ(Increment(leader, session, seq), std::to_string(seq));
  });
}

}  // namespace
}  // namespace hedgerow::node
