// SPDX-License-Identifier: Apache-2.0
//
// The checker must see what it exists for: each test shows it one broken promise.
#include "cluster/raft/invariants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hedgerow::raft {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

Entry MakeEntry(uint64_t index, uint64_t term, const char* text) {
  return {.term = Term(term), .index = LogIndex(index), .payload = Payload(text)};
}

Raft NodeWith(uint64_t id, uint64_t term, std::vector<Entry> entries) {
  Options options;
  options.self = NodeId(id);
  options.initial = Configuration::OfVoters({NodeId(1), NodeId(2), NodeId(3)});
  return Raft(options, {.hard_state = {.term = Term(term), .voted_for = {}}, .entries = std::move(entries)}, 0, 0);
}

TEST(Invariants, EqualLogsAreFine) {
  InvariantChecker checker;
  checker.Started(NodeWith(1, 2, {MakeEntry(1, 1, "a"), MakeEntry(2, 2, "b")}), NodeId(1));
  checker.Started(NodeWith(2, 2, {MakeEntry(1, 1, "a"), MakeEntry(2, 2, "b")}), NodeId(2));
  EXPECT_THAT(checker.violation(), IsEmpty());
}

TEST(Invariants, LogMatchingSeesAnotherContent) {
  InvariantChecker checker;
  checker.Started(NodeWith(1, 1, {MakeEntry(1, 1, "a")}), NodeId(1));
  checker.Started(NodeWith(2, 1, {MakeEntry(1, 1, "b")}), NodeId(2));
  EXPECT_THAT(checker.violation(), HasSubstr("Log Matching"));
}

TEST(Invariants, LogMatchingSeesAnotherPredecessor) {
  InvariantChecker checker;
  checker.Started(NodeWith(1, 3, {MakeEntry(1, 1, "a"), MakeEntry(2, 3, "c")}), NodeId(1));
  checker.Started(NodeWith(2, 3, {MakeEntry(1, 2, "b"), MakeEntry(2, 3, "c")}), NodeId(2));
  EXPECT_THAT(checker.violation(), HasSubstr("Log Matching"));
}

TEST(Invariants, ASecondVoteInATermIsSeen) {
  InvariantChecker checker;
  const Raft node = NodeWith(1, 4, {});
  checker.Started(node, NodeId(1));
  Outputs outputs;
  for (const uint64_t candidate : {2, 3}) {
    outputs.send.push_back({.from = NodeId(1),
                            .to = NodeId(candidate),
                            .term = Term(4),
                            .body = VoteReply{.asked_term = Term(4), .granted = true}});
  }
  checker.Stepped(node, NodeId(1), outputs);
  EXPECT_THAT(checker.violation(), HasSubstr("one vote a term"));
}

TEST(Invariants, ATermThatWasPromisedAndForgottenIsSeen) {
  InvariantChecker checker;
  const Raft node = NodeWith(1, 4, {});
  checker.Started(node, NodeId(1));
  Outputs outputs;
  outputs.send.push_back({.from = NodeId(1),
                          .to = NodeId(2),
                          .term = Term(4),
                          .body = AppendReply{.accepted = true, .index = LogIndex()}});
  checker.Stepped(node, NodeId(1), outputs);
  checker.Started(NodeWith(1, 3, {}), NodeId(1));
  EXPECT_THAT(checker.violation(), HasSubstr("monotone terms"));
}

TEST(Invariants, ApplyingAnUncommittedEntryIsSeen) {
  InvariantChecker checker;
  const Raft node = NodeWith(1, 1, {MakeEntry(1, 1, "a")});
  checker.Started(node, NodeId(1));
  Outputs outputs;
  outputs.apply.push_back(MakeEntry(1, 1, "a"));
  checker.Stepped(node, NodeId(1), outputs);
  EXPECT_THAT(checker.violation(), HasSubstr("State Machine Safety"));
}

}  // namespace
}  // namespace hedgerow::raft
