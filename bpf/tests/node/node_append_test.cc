// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Appends: stored in the ring before they are acknowledged, with every byte, or left to the process. Then the
// ring itself: both sizes of records, the way round its end, full, discarded, busy.

#include "bpf/tests/node/node_fixture.h"

namespace hedgerow::packets {
namespace {

class NodeAppendTest : public NodeTest {
 protected:
  void ExpectStored(const Outcome &outcome, uint64_t last_index) {
    ASSERT_EQ(outcome.action, XDP_TX);
    EXPECT_EQ(outcome.events, (std::map<int, int64_t>{{HR_NODE_EVENT_APPEND_STORED, 1}}));
    EXPECT_EQ(outcome.header.kind, HR_PEER_APPEND_REPLY);
    EXPECT_EQ(outcome.header.term, kTerm);
    EXPECT_EQ(outcome.body.append.index, last_index);
    EXPECT_EQ(outcome.body.append.accepted, 1u);
    EXPECT_EQ(outcome.body.append.loop_seq, 42u);
    EXPECT_EQ(outcome.body.append.conflict_index, 0u);
    const hr_node_shared shared = node().Shared();
    EXPECT_EQ(shared.raft.last_index, last_index);
    EXPECT_EQ(shared.raft.last_term, kTerm);
    EXPECT_EQ(shared.matched, last_index);
  }
};

TEST_P(NodeAppendTest, EveryLengthIsStoredAndAcknowledged) {
  uint64_t last = kLastIndex;
  for (size_t payload_bytes = 0;
       HR_NODE_ENTRIES_OFFSET + HR_NODE_ENTRY_HEAD_BYTES + payload_bytes <= HR_NODE_DATAGRAM_MAX_BYTES;
       payload_bytes += payload_bytes < 120 ? 1 : 13) {
    const Bytes datagram =
        SealPeer(PeerHead(HR_PEER_APPEND, kLeader, ++number_), AppendBody(last, kTerm, kTerm, {payload_bytes}, 9));
    const uint64_t before_ns = MonotonicNs();
    ExpectStored(Send(kLeader, datagram), ++last);
    const std::vector<offload::RingRecord> records = node().TakeAll();
    ASSERT_EQ(records.size(), 1u);
    EXPECT_EQ(Bytes(records[0].datagram.begin(), records[0].datagram.end()), datagram);
    EXPECT_EQ(records[0].head.kind, HR_NODE_RECORD_APPEND);
    EXPECT_EQ(records[0].head.from, kLeader);
    EXPECT_EQ(records[0].head.term, kTerm);
    EXPECT_EQ(records[0].head.prev_index, last - 1);
    EXPECT_EQ(records[0].head.last_index, last);
    EXPECT_GE(records[0].head.arrived_ns, before_ns);
    kernel().Release(records[0].end);
  }
  EXPECT_EQ(node().Shared().leader_commit, 9u);
}

TEST_P(NodeAppendTest, ALargestDatagramOfManyEntriesIsStored) {
  std::vector<size_t> payloads(HR_NODE_ENTRIES_MAX, 0);
  payloads[3] = (HR_NODE_DATAGRAM_MAX_BYTES - HR_NODE_ENTRIES_OFFSET) % HR_NODE_ENTRY_HEAD_BYTES;
  const Bytes body = AppendBody(kLastIndex, kTerm, kTerm, payloads);
  ASSERT_EQ(body.size() + HR_PEER_HEADER_BYTES, size_t{HR_NODE_DATAGRAM_MAX_BYTES});
  ExpectStored(SendAppend(body), kLastIndex + HR_NODE_ENTRIES_MAX);
  EXPECT_EQ(node().TakeAll().size(), 1u);
}

TEST_P(NodeAppendTest, OneThatAnotherFollowsIsStoredAndTheOtherAcknowledgesBoth) {
  Bytes body = AppendBody(kLastIndex, kTerm, kTerm, {8, 9}, 7);
  body[offsetof(hr_peer_append, flags)] = HR_PEER_APPEND_MORE;
  const Outcome outcome = SendAppend(body);
  EXPECT_EQ(outcome.action, XDP_DROP);
  EXPECT_EQ(outcome.events, (std::map<int, int64_t>{{HR_NODE_EVENT_APPEND_STORED_UNSAID, 1}}));
  EXPECT_EQ(node().Shared().raft.last_index, kLastIndex + 2);
  EXPECT_EQ(node().Shared().leader_commit, 7u);
  ExpectStored(SendAppend(AppendBody(kLastIndex + 2, kTerm, kTerm, {8})), kLastIndex + 3);
  const std::vector<offload::RingRecord> records = node().TakeAll();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].head.last_index, kLastIndex + 2);
  ExpectPassed(SendAppend(body), HR_NODE_EVENT_PASSED_HOLE);  // the log has grown
}

TEST_P(NodeAppendTest, WhatIsNotPlainIsTheProcesss) {
  ExpectPassed(SendAppend(AppendBody(kLastIndex, kTerm, kTerm, {})), HR_NODE_EVENT_PASSED_BATCH);
  Bytes configuration = AppendBody(kLastIndex, kTerm, kTerm, {8, 8});
  configuration[configuration.size() - 8 - 5] = HR_NODE_ENTRY_CONFIGURATION;  // the second entry's kind
  ExpectPassed(SendAppend(configuration), HR_NODE_EVENT_PASSED_CONFIGURATION);
  configuration[configuration.size() - 8 - 5] = HR_NODE_ENTRY_CONFIGURATION + 1;
  ExpectPassed(SendAppend(configuration), HR_NODE_EVENT_PASSED_MALFORMED);
  ExpectPassed(SendAppend(AppendBody(kLastIndex, kTerm, kTerm - 1, {8})), HR_NODE_EVENT_PASSED_BATCH);
  ExpectPassed(SendAppend(AppendBody(kLastIndex + 1, kTerm, kTerm, {8})), HR_NODE_EVENT_PASSED_HOLE);
  ExpectPassed(SendAppend(AppendBody(kLastIndex - 1, kTerm, kTerm, {8})), HR_NODE_EVENT_PASSED_HOLE);
  ExpectPassed(SendAppend(AppendBody(kLastIndex, kTerm - 1, kTerm, {8})), HR_NODE_EVENT_PASSED_HOLE);
  ExpectPassed(SendAppend(AppendBody(kLastIndex, kTerm, kTerm, {8}), kTerm + 1), HR_NODE_EVENT_PASSED_TERM);
  ExpectPassed(SendAppend(AppendBody(kLastIndex, kTerm, kTerm, {8}), kTerm - 1), HR_NODE_EVENT_PASSED_TERM);
  ExpectPassed(SendAppend(AppendBody(kLastIndex, kTerm, kTerm, {8}), kTerm, kPeer), HR_NODE_EVENT_PASSED_TERM);
}

TEST_P(NodeAppendTest, EntriesThatTheProcessCouldNotReadAreNotAcknowledged) {
  const Bytes right = AppendBody(kLastIndex, kTerm, kTerm, {8, 9});
  const auto changed = [&](size_t at, uint8_t value) {
    Bytes body = right;
    body[at] = value;
    return body;
  };
  const size_t entries = sizeof(hr_peer_append);
  const size_t second = entries + HR_NODE_ENTRY_HEAD_BYTES + 8;
  ExpectPassed(SendAppend(changed(32, 1)), HR_NODE_EVENT_PASSED_MALFORMED);  // one entry less than there are
  ExpectPassed(SendAppend(changed(32, 3)), HR_NODE_EVENT_PASSED_MALFORMED);
  ExpectPassed(SendAppend(changed(34, 1)), HR_NODE_EVENT_PASSED_MALFORMED);  // 65,538 entries
  ExpectPassed(SendAppend(changed(36, 2)), HR_NODE_EVENT_PASSED_MALFORMED);  // a flag that there is not
  ExpectPassed(SendAppend(changed(second, kTerm - 1)), HR_NODE_EVENT_PASSED_MALFORMED);
  ExpectPassed(SendAppend(changed(second + 8, kLastIndex + 1)), HR_NODE_EVENT_PASSED_MALFORMED);
  ExpectPassed(SendAppend(changed(second + 16, 3)), HR_NODE_EVENT_PASSED_MALFORMED);
  ExpectPassed(SendAppend(changed(second + 17, 10)), HR_NODE_EVENT_PASSED_MALFORMED);
  ExpectPassed(SendAppend(changed(second + 20, 0xff)), HR_NODE_EVENT_PASSED_MALFORMED);
  Bytes longer = right;
  longer.push_back(0);
  ExpectPassed(SendAppend(longer), HR_NODE_EVENT_PASSED_MALFORMED);
  ExpectStored(SendAppend(right), kLastIndex + 2);
}

TEST_P(NodeAppendTest, FencedOrPastTheLeaseOrInAnotherRoleItIsTheProcesss) {
  const Bytes body = AppendBody(kLastIndex, kTerm, kTerm, {8});
  Change1([](auto &shared) { shared.capabilities &= ~uint32_t{HR_NODE_CAN_APPEND}; });
  ExpectPassed(SendAppend(body), HR_NODE_EVENT_PASSED_FENCED);
  Change1([](auto &shared) {
    shared.capabilities |= HR_NODE_CAN_APPEND;
    shared.lease_until_ns = MonotonicNs();
  });
  ExpectPassed(SendAppend(body), HR_NODE_EVENT_PASSED_LEASE);
  for (const hr_node_role role : {HR_NODE_PRE_CANDIDATE, HR_NODE_CANDIDATE, HR_NODE_LEADER}) {
    Change1([&](auto &shared) {
      shared.lease_until_ns = ~0ull;
      shared.role = role;
    });
    ExpectPassed(SendAppend(body), HR_NODE_EVENT_PASSED_ROLE);
  }
}

TEST_P(NodeAppendTest, AFullRingLeavesThemToTheProcessUntilItIsReleased) {
  const auto expect_full = [&](const Outcome &outcome, uint64_t last) {
    EXPECT_EQ(outcome.action, XDP_PASS);
    EXPECT_EQ(outcome.events, (std::map<int, int64_t>{{HR_NODE_EVENT_PASSED_RING_FULL, 1}}));
    EXPECT_EQ(node().Shared().raft.last_index, last);
  };
  uint64_t last = kLastIndex, records = 0;
  Outcome outcome;
  for (;; ++last, ++records) {
    outcome = SendAppend(AppendBody(last, kTerm, kTerm, {1300}));
    if (outcome.action != XDP_TX) break;
  }
  expect_full(outcome, last);
  const uint64_t capacity = HR_NODE_RING_BYTES / (HR_NODE_RECORD_LARGE_BYTES + 8);
  EXPECT_NEAR(static_cast<double>(records), static_cast<double>(capacity), 2);
  std::vector<offload::RingRecord> taken;
  EXPECT_EQ(kernel().Take(~0ull, false, taken), kernel().ProducerPosition());
  EXPECT_EQ(taken.size(), records);
  expect_full(SendAppend(AppendBody(last, kTerm, kTerm, {1300})), last);
  kernel().Release(taken[0].end);  // reading gives no room back, releasing does
  EXPECT_EQ(SendAppend(AppendBody(last, kTerm, kTerm, {1300})).action, XDP_TX);
}

// Three times round the ring, records of both sizes across its end; each whole, in order, and none twice.
TEST_P(NodeAppendTest, TheRingGoesRound) {
  uint64_t last = kLastIndex, next_read = kLastIndex + 1;
  const uint64_t begin = kernel().ProducerPosition();
  while (kernel().ProducerPosition() < begin + 3 * uint64_t{HR_NODE_RING_BYTES}) {
    for (int i = 0; i < 64; ++i, ++last) {
      const size_t payload_bytes = last % 3 == 0 ? 40 : 1300 + last % 7;
      const Bytes frame = PeerFrame(
          kLeader,
          SealPeer(PeerHead(HR_PEER_APPEND, kLeader, ++number_), AppendBody(last, kTerm, kTerm, {payload_bytes})),
          ipv6());
      ASSERT_EQ(node().Xdp(frame).action, XDP_TX);
      if (i % 5 == 0) node().Xdp(frame);  // a replay reserves nothing
    }
    const std::vector<offload::RingRecord> records = node().TakeAll();
    ASSERT_EQ(records.size(), 64u);
    for (const offload::RingRecord &record : records) {
      ASSERT_EQ(record.head.last_index, next_read);
      ASSERT_EQ(record.head.prev_index, next_read - 1);
      const Bytes expected = AppendBody(next_read - 1, kTerm, kTerm,
                                        {(next_read - 1) % 3 == 0 ? size_t{40} : size_t{1300 + (next_read - 1) % 7}});
      ASSERT_EQ(record.datagram.substr(HR_PEER_HEADER_BYTES),
                std::string_view(reinterpret_cast<const char *>(expected.data()), expected.size()));
      ++next_read;
    }
    kernel().Release(records.back().end);
  }
}

TEST_P(NodeAppendTest, ADiscardedRecordIsPassedOver) {
  const uint64_t begin = kernel().ProducerPosition();
  EXPECT_EQ(SendAppend(AppendBody(kLastIndex + 5, kTerm, kTerm, {8})).action,
            XDP_PASS);  // a gap: reserved, discarded
  EXPECT_GT(kernel().ProducerPosition(), begin);
  EXPECT_EQ(SendAppend(AppendBody(kLastIndex, kTerm, kTerm, {8})).action, XDP_TX);
  const std::vector<offload::RingRecord> records = node().TakeAll();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].end, kernel().ProducerPosition());
}

INSTANTIATE_TEST_SUITE_P(Ip, NodeAppendTest, ::testing::Bool(),
                         [](const auto &info) { return info.param ? "v6" : "v4"; });

}  // namespace
}  // namespace hedgerow::packets
