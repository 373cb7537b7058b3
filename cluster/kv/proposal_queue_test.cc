// SPDX-License-Identifier: Apache-2.0
#include "cluster/kv/proposal_queue.h"

#include <vector>

#include <gtest/gtest.h>

namespace hedgerow::kv {
namespace {

constexpr uint64_t kAll = 2048;

RequestKey Key(uint64_t seq) { return {.kind = CommandKind::kWrite, .a = 1, .b = seq}; }

raft::Entry Entry(uint64_t index, uint64_t seq) {
  return {.term = raft::Term(1), .index = raft::LogIndex(index), .payload = raft::Payload(Encode({.key = Key(seq)}))};
}

TEST(ProposalQueue, WhatTheLogHoldsAndIsNotAppliedIsNotProposedAgain) {
  ProposalQueue queue;
  queue.BeginToLead(raft::Log({Entry(1, 10), Entry(2, 11)}), raft::LogIndex(1), kAll);
  EXPECT_TRUE(queue.AddProposed(Key(10))) << "applied: the tables know it";
  EXPECT_FALSE(queue.AddProposed(Key(11)));
  EXPECT_FALSE(queue.AddProposed(Key(10))) << "and now it is here, too";
  EXPECT_EQ(queue.counters.known, 2u);
  queue.RemoveProposed(Key(11));
  EXPECT_TRUE(queue.AddProposed(Key(11)));
}

// After a start nothing is known to be committed, and a log of a million entries would be walked by each node
// that comes to lead, while its followers wait for its heartbeats.
TEST(ProposalQueue, OnlyTheEndOfALongLogIsLookedAt) {
  std::vector<raft::Entry> entries;
  for (uint64_t index = 1; index <= 100; ++index) entries.push_back(Entry(index, index));
  ProposalQueue queue;
  queue.BeginToLead(raft::Log(std::move(entries)), raft::LogIndex(), 10);
  EXPECT_EQ(queue.proposed(), 10u);
  EXPECT_FALSE(queue.AddProposed(Key(91)));
  EXPECT_FALSE(queue.AddProposed(Key(100)));
}

TEST(ProposalQueue, AnotherTermsLogIsAnother) {
  ProposalQueue queue;
  queue.BeginToLead(raft::Log({Entry(1, 10)}), raft::LogIndex(), kAll);
  queue.EndToLead();
  EXPECT_TRUE(queue.AddProposed(Key(10)));
  queue.BeginToLead(raft::Log(std::vector<raft::Entry>()), raft::LogIndex(), kAll);
  EXPECT_TRUE(queue.AddProposed(Key(10))) << "truncated";
}

TEST(ProposalQueue, IdsThatComeAgainAreNotToldApartHere) {
  ProposalQueue queue;
  const RequestKey memcached{.kind = CommandKind::kMemcached, .a = 1, .b = 2, .c = 3, .d = 4};
  queue.BeginToLead(
      raft::Log(
          {{.term = raft::Term(1), .index = raft::LogIndex(1), .payload = raft::Payload(Encode({.key = memcached}))}}),
      raft::LogIndex(), kAll);
  EXPECT_TRUE(queue.AddProposed(memcached));
  EXPECT_TRUE(queue.AddProposed(memcached));
}

TEST(ProposalQueue, AWriteWithoutASessionIsKnownByItsNonce) {
  ProposalQueue queue;
  const RequestKey windowed{.kind = CommandKind::kWindowed, .a = 1};
  queue.BeginToLead(
      raft::Log(
          {{.term = raft::Term(1), .index = raft::LogIndex(1), .payload = raft::Payload(Encode({.key = windowed}))}}),
      raft::LogIndex(), kAll);
  EXPECT_FALSE(queue.AddProposed(windowed));
}

TEST(ProposalQueue, EachIsToldOnceThatItWaits) {
  ProposalQueue queue;
  std::vector<uint64_t> reported;
  const auto tell = [&reported](const ProposeCommand& proposal) { reported.push_back(proposal.tag); };
  for (uint64_t tag = 1; tag <= 3; ++tag) queue.Add({.tag = tag, .key = Key(tag)});
  queue.StillQueued(tell);
  queue.StillQueued(tell);
  EXPECT_EQ(queue.TakeFirst().tag, 1u);
  queue.Add({.tag = 4, .key = Key(4)});
  queue.StillQueued(tell);
  EXPECT_EQ(reported, (std::vector<uint64_t>{1, 2, 3, 4}));
  EXPECT_EQ(queue.counters.queued, 4u);
}

TEST(ProposalQueue, WhatNobodyWantsIsDroppedBeforeItIsLong) {
  ProposalQueue queue;
  for (uint64_t tag = 1; tag <= 3000; ++tag) queue.Add({.tag = tag, .key = Key(tag)});
  queue.DropUnwanted(1500, [](const RequestKey&) { return false; });
  EXPECT_EQ(queue.size(), 3000u) << "within a factor of what waits";
  queue.DropUnwanted(10, [](const RequestKey& key) { return key.b % 100 == 0; });
  EXPECT_EQ(queue.size(), 30u);
  EXPECT_EQ(queue.counters.unwanted, 2970u);
}

}  // namespace
}  // namespace hedgerow::kv
