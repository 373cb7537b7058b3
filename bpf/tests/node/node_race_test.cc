// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// R0 and R1 with two CPUs. Frames run on one while the process's control requests run on the other; an
// invariant checker reads every answer. HR_RACE_S is how long each race lasts (`./dev test --long`: 60).
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <thread>

#include "bpf/tests/node/node_fixture.h"

namespace hedgerow::packets {
namespace {

constexpr uint32_t kAll =
    HR_NODE_CAN_HEARTBEAT | HR_NODE_CAN_VOTE | HR_NODE_CAN_GRANT | HR_NODE_CAN_APPEND | HR_NODE_CAN_COUNT;

uint64_t Duration_ns() {
  const char *const text = std::getenv("HR_RACE_S");
  return (text == nullptr ? 3 : std::strtoull(text, nullptr, 10)) * 1'000'000'000;
}

void StayOn(std::thread &thread, unsigned cpu) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(cpu % std::max(1u, std::thread::hardware_concurrency()), &cpus);
  pthread_setaffinity_np(thread.native_handle(), sizeof(cpus), &cpus);
}

class NodeRaceTest : public NodeTest {
 protected:
  // Sends until told to stop: appends that follow the log's end as last seen, heartbeats, and votes of new
  // terms.
  void Sender(uint32_t from, uint32_t seed) {
    std::mt19937 random(seed);
    uint64_t number = 0;
    while (!stop_.load(std::memory_order_relaxed)) {
      const hr_node_shared shared = node().Shared();  // may be torn: then the datagram is merely one that is passed on
      const auto send = [&](hr_peer_kind kind, const Bytes &body, uint64_t term) {
        hr_peer_header header = PeerHead(kind, from, ++number, term);
        return node().Xdp(PeerFrame(from, SealPeer(header, body), ipv6())).action;
      };
      if (random() % 16 == 0 && votes_) {
        const uint64_t term = shared.raft.term + 1;
        const hr_peer_vote_request request{.asked_term = term,
                                           .last_index = shared.raft.last_index + 5,
                                           .last_term = shared.raft.last_term,
                                           .transfer_term = 0,
                                           .pre_vote = 0,
                                           .reserved = 0};
        if (send(HR_PEER_VOTE_REQUEST, BodyBytes(request), term) == XDP_TX) ++answered_;
      } else {
        const size_t payload_bytes = random() % 2 == 0 ? 16 : 600;
        if (send(HR_PEER_APPEND,
                 AppendBody(shared.raft.last_index, shared.raft.last_term, shared.raft.term, {payload_bytes}),
                 shared.raft.term) == XDP_TX)
          ++answered_;
      }
    }
  }

  // What the ring says must be what the state says: the log grows without a gap, and each term's vote is one.
  void Check(const std::vector<offload::RingRecord> &records) {
    for (const offload::RingRecord &record : records) {
      if (record.head.kind == HR_NODE_RECORD_VOTE) {
        const auto [vote, is_new] = votes_given_.try_emplace(record.head.term, record.head.from);
        ASSERT_TRUE(is_new || vote->second == record.head.from) << "two votes in term " << record.head.term;
        continue;
      }
      ASSERT_TRUE(appended_.try_emplace(record.head.last_index, record.head.term).second) << record.head.last_index;
    }
  }
  // After a drain to a fence: nothing is missing below the state's end.
  void CheckWhole(const hr_node_shared &shared) {
    ASSERT_EQ(appended_.empty() ? checked_ : appended_.rbegin()->first, shared.raft.last_index);
    for (const auto &[index, term] : appended_) {
      ASSERT_EQ(index, checked_ + 1);
      ++checked_;
    }
    appended_.clear();
  }

  std::atomic<bool> stop_ = false;
  std::atomic<uint64_t> answered_ = 0;
  bool votes_ = false;
  std::map<uint64_t, uint32_t> votes_given_;
  std::map<uint64_t, uint64_t> appended_;
  uint64_t checked_ = kLastIndex;
};

// R1: after a fence and a drain to the position read behind it, nothing more is accepted until the state is
// opened.
TEST_P(NodeRaceTest, NothingIsAcceptedAfterTheFence) {
  votes_ = true;
  std::thread sender([this] { Sender(kLeader, 1); }), other([this] { Sender(kPeer, 2); });
  StayOn(sender, 1);
  StayOn(other, 1);
  const uint64_t end_ns = MonotonicNs() + Duration_ns();
  uint64_t fences = 0;
  while (MonotonicNs() < end_ns && !HasFatalFailure()) {
    const hr_node_control fenced = Control(HR_NODE_FENCE);
    ASSERT_EQ(fenced.result, uint32_t{HR_NODE_DONE});
    ASSERT_EQ(fenced.shared.capabilities, 0u);
    std::vector<offload::RingRecord> records;
    const uint64_t position = kernel().ProducerPosition();
    ASSERT_EQ(kernel().Take(position, true, records), position);
    Check(records);
    CheckWhole(fenced.shared);
    for (int i = 0; i < 20; ++i) {
      const hr_node_control later = Control(HR_NODE_READ);
      ASSERT_EQ(std::memcmp(&later.shared, &fenced.shared, sizeof(later.shared)), 0)
          << "the state changed behind the fence";
    }
    records.clear();
    const uint64_t quiet = kernel().ProducerPosition();
    kernel().Take(quiet, true, records);
    ASSERT_TRUE(records.empty()) << "accepted behind the fence";
    kernel().Release(quiet);
    hr_node_shared next = fenced.shared;
    next.capabilities = kAll;
    next.raft.leader = kLeader;
    next.election_timeout_ns = 0;  // else whoever sends appends keeps every vote from being given
    next.lease_until_ns = ~0ull;
    ASSERT_EQ(Control(HR_NODE_OPEN, &next).result, uint32_t{HR_NODE_DONE});
    for (int i = 0; i < 50; ++i) Control(HR_NODE_READ);
    ++fences;
  }
  stop_ = true;
  sender.join();
  other.join();
  std::printf("%llu fences, %llu answers, %llu entries, %zu votes\n", static_cast<unsigned long long>(fences),
              static_cast<unsigned long long>(answered_.load()), static_cast<unsigned long long>(checked_ - kLastIndex),
              votes_given_.size());
  EXPECT_GT(fences, 100u);
  EXPECT_GT(checked_, kLastIndex + 100);
  EXPECT_GT(votes_given_.size(), 10u);
}

// The same without the fence must be found out.
TEST_P(NodeRaceTest, WithoutAFenceTheStateChanges) {
  std::thread sender([this] { Sender(kLeader, 5); });
  StayOn(sender, 1);
  const uint64_t end_ns = MonotonicNs() + 20'000'000'000;
  bool changed = false;
  while (MonotonicNs() < end_ns && !changed) {
    const hr_node_control before = Control(HR_NODE_READ);
    const uint64_t position = kernel().ProducerPosition();
    std::vector<offload::RingRecord> records;
    kernel().Take(position, true, records);
    for (int i = 0; i < 20 && !changed; ++i) {
      const hr_node_control later = Control(HR_NODE_READ);
      changed = std::memcmp(&later.shared, &before.shared, sizeof(later.shared)) != 0;
    }
    kernel().Release(position);
  }
  stop_ = true;
  sender.join();
  EXPECT_TRUE(changed);
}

// R0: leases and reads while entries are accepted on the other CPU lose nothing of either.
TEST_P(NodeRaceTest, ControlRequestsUndoNothing) {
  std::thread sender([this] { Sender(kLeader, 3); });
  StayOn(sender, 1);
  const uint64_t end_ns = MonotonicNs() + Duration_ns();
  uint64_t requests = 0, last_index = kLastIndex, loop_seq = 42;
  while (MonotonicNs() < end_ns && !HasFatalFailure()) {
    for (int i = 0; i < 200; ++i, ++requests) {
      hr_node_shared lease{};
      lease.lease_until_ns = ~0ull - requests;
      const hr_node_control answer = Control(HR_NODE_LEASE, &lease);
      ASSERT_EQ(answer.shared.lease_until_ns, lease.lease_until_ns);
      ASSERT_EQ(answer.shared.loop_seq, ++loop_seq);
      ASSERT_GE(answer.shared.raft.last_index, last_index) << "an accepted entry was undone";
      ASSERT_EQ(answer.shared.matched, answer.shared.raft.last_index) << "torn";
      ASSERT_EQ(answer.shared.raft.term, kTerm);
      last_index = answer.shared.raft.last_index;
    }
    std::vector<offload::RingRecord> records;
    const uint64_t taken = kernel().Take(~0ull, false, records);
    Check(records);
    kernel().Release(taken);
  }
  stop_ = true;
  sender.join();
  Check(node().TakeAll());
  CheckWhole(node().Shared());
  std::printf("%llu control requests, %llu entries\n", static_cast<unsigned long long>(requests),
              static_cast<unsigned long long>(checked_ - kLastIndex));
  EXPECT_GT(checked_, kLastIndex + 100);
}

// The same with what R0 forbids, a plain update of the element, must be found out.
TEST_P(NodeRaceTest, APlainUpdateIsFoundOut) {
  std::thread sender([this] { Sender(kLeader, 4); });
  StayOn(sender, 1);
  const uint64_t end_ns = MonotonicNs() + 20'000'000'000;
  uint64_t last_index = kLastIndex;
  bool undone = false;
  while (MonotonicNs() < end_ns && !undone) {
    hr_node_shared shared = Control(HR_NODE_READ).shared;
    for (int i = 0; i < 3; ++i) sched_yield();
    node().SetShared(shared);
    const hr_node_shared after = Control(HR_NODE_READ).shared;
    std::vector<offload::RingRecord> records = node().TakeAll();
    for (const offload::RingRecord &record : records) {
      undone = undone || record.head.last_index <= last_index;
      last_index = std::max<uint64_t>(last_index, record.head.last_index);
    }
    undone = undone || after.raft.last_index < last_index;
    kernel().Release(kernel().Take(0, false, records));
  }
  stop_ = true;
  sender.join();
  EXPECT_TRUE(undone) << "either the machine has one CPU, or the checker sees nothing";
}

INSTANTIATE_TEST_SUITE_P(Ip, NodeRaceTest, ::testing::Values(false), [](const auto &) { return "v4"; });

}  // namespace
}  // namespace hedgerow::packets
