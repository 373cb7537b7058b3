// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The control programs against the same functions natively, and the numbers that process and kernel draw
// together.
#include <cstring>

#include "bpf/node/raft/control.h"
#include "bpf/tests/node/node_fixture.h"

namespace hedgerow::packets {
namespace {

class NodeControlTest : public NodeTest {
 protected:
  // The kernel's answer and state are those of the native function.
  hr_node_control_result Expect(hr_node_control request) {
    hr_node_shared shared = node().Shared();
    const hr_node_control_result result = hr_node_control_shared(&shared, &request);
    kernel().Control(request);
    const hr_node_shared after = node().Shared();
    EXPECT_EQ(request.result, static_cast<uint32_t>(result));
    EXPECT_EQ(std::memcmp(&shared, &after, sizeof(shared)), 0);
    EXPECT_EQ(std::memcmp(&shared, &request.shared, sizeof(shared)), 0);
    return result;
  }
  hr_node_control Request(uint32_t operation) {
    hr_node_control request{};
    request.operation = operation;
    request.incarnation = kOwnIncarnation;
    request.shared = node().Shared();
    return request;
  }
};

TEST_P(NodeControlTest, EveryOperationIsTheNativeOne) {
  EXPECT_EQ(Expect(Request(HR_NODE_READ)), HR_NODE_DONE);
  hr_node_control open = Request(HR_NODE_OPEN);
  open.shared.raft.term = kTerm + 1;
  open.shared.role = HR_NODE_LEADER;
  open.shared.members[3].match = 9;
  EXPECT_EQ(Expect(open), HR_NODE_REFUSED) << "not fenced";
  EXPECT_EQ(Expect(Request(HR_NODE_FENCE)), HR_NODE_DONE);
  EXPECT_EQ(node().Shared().capabilities, 0u);
  EXPECT_EQ(Expect(open), HR_NODE_DONE);
  EXPECT_EQ(node().Shared().capabilities, open.shared.capabilities);
  EXPECT_EQ(Expect(Request(HR_NODE_FENCE)), HR_NODE_DONE);
  hr_node_control back = Request(HR_NODE_OPEN);
  back.shared.raft.term = kTerm;
  EXPECT_EQ(Expect(back), HR_NODE_REFUSED) << "a term never goes down";
  hr_node_control lease = Request(HR_NODE_LEASE);
  lease.shared.lease_until_ns = 12345;
  EXPECT_EQ(Expect(lease), HR_NODE_DONE);
  hr_node_control granting = Request(HR_NODE_OPEN);
  granting.shared.capabilities = HR_NODE_CAN_VOTE | HR_NODE_CAN_GRANT;
  EXPECT_EQ(Expect(granting), HR_NODE_DONE);
  hr_node_control longer = Request(HR_NODE_LEASE);
  longer.shared.raft.last_index = kLastIndex + 9;
  EXPECT_EQ(Expect(longer), HR_NODE_DONE);
  EXPECT_EQ(node().Shared().raft.last_index, kLastIndex) << "who may vote by the log's end owns it";
  EXPECT_EQ(Expect(Request(HR_NODE_FENCE)), HR_NODE_DONE);
  EXPECT_EQ(Expect(granting), HR_NODE_DONE);
  hr_node_control stale = Request(HR_NODE_FENCE);
  stale.incarnation = kOwnIncarnation + 1;
  EXPECT_EQ(Expect(stale), HR_NODE_STALE);
  stale.operation = HR_NODE_ADOPT;
  EXPECT_EQ(Expect(stale), HR_NODE_DONE);
  EXPECT_EQ(node().Shared().incarnation, kOwnIncarnation + 1);
  EXPECT_EQ(node().Shared().capabilities, 0u);
  hr_node_control none = Request(99);
  none.incarnation = kOwnIncarnation + 1;
  EXPECT_EQ(Expect(none), HR_NODE_INVALID);
}

TEST_P(NodeControlTest, AShorterLogThanWasAcknowledgedInTheTermIsRefused) {
  EXPECT_EQ(Expect(Request(HR_NODE_FENCE)), HR_NODE_DONE);
  hr_node_control open = Request(HR_NODE_OPEN);
  ASSERT_GT(open.shared.matched, 0u);
  open.shared.raft.last_index = open.shared.matched - 1;
  EXPECT_EQ(Expect(open), HR_NODE_REFUSED);
  open.shared.raft.term = kTerm + 1;
  EXPECT_EQ(Expect(open), HR_NODE_DONE) << "another leader may have truncated it";
}

TEST_P(NodeControlTest, AnIncarnationBeginsAnEmptyWindow) {
  hr_node_window window{};
  for (auto &word : window.seen) word = ~0ull;
  node().SetWindow(2, window);
  kernel().SetIncarnation(2, 7, 1234);
  window = kernel().ReadWindow(2);
  EXPECT_EQ(window.incarnation, 7u);
  EXPECT_EQ(window.floor, 1234u);
  EXPECT_EQ(window.highest, 1234u);
  for (const uint64_t word : window.seen) EXPECT_EQ(word, 0u);
}

// The process has seen more than the kernel, or less, while no program was attached.
TEST_P(NodeControlTest, WhatWasSeenOfAnIncarnationStaysSeen) {
  kernel().SetIncarnation(2, 7, 1234);
  kernel().SetIncarnation(2, 7, 2000);
  EXPECT_EQ(kernel().ReadWindow(2).floor, 2000u);
  kernel().SetIncarnation(2, 7, 100);
  EXPECT_EQ(kernel().ReadWindow(2).floor, 2000u);
  kernel().SetIncarnation(2, 8, 100);
  EXPECT_EQ(kernel().ReadWindow(2).floor, 100u);
}

TEST_P(NodeControlTest, ProcessAndKernelDrawDifferentNumbers) {
  node().SetNumbers(500);
  EXPECT_EQ(kernel().DrawPacketNumber(), 501u);
  const hr_peer_heartbeat heartbeat{.round = 7, .commit = 4, .election_timeout_ns = 20'000'000};
  EXPECT_EQ(Send(HR_PEER_HEARTBEAT, kLeader, heartbeat).header.packet_number, 502u);
  EXPECT_EQ(kernel().DrawPacketNumber(), 503u);
  EXPECT_EQ(kernel().DrawAnnounceSequence(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Ip, NodeControlTest, ::testing::Bool(),
                         [](const auto &info) { return info.param ? "v6" : "v4"; });

}  // namespace
}  // namespace hedgerow::packets
