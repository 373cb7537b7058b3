// SPDX-License-Identifier: Apache-2.0
//
// A leader and what is handed to it: each request once in its log, and no more than the log has room for.
#include "cluster/kv/replica.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>

#include <gtest/gtest.h>

namespace hedgerow::kv {
namespace {

using raft::LogIndex;
using raft::NodeId;
using raft::Term;

constexpr uint64_t kMillisecond = 1'000'000;

Request Write(uint64_t seq) {
  Request request;
  request.reply_to = {.client = 40, .request = seq};
  request.command.key = {.kind = CommandKind::kWrite, .a = 7, .b = seq};
  request.timeout_ns = 5000 * kMillisecond;
  return request;
}

// Node 1 of three; the test speaks for the others.
class ReplicaTest : public testing::Test, public ReplicaHost {
 protected:
  void Start(std::vector<raft::Entry> entries = {}, uint64_t uncommitted_max = 2048) {
    ReplicaOptions options;
    options.raft.self = NodeId(1);
    options.raft.initial = raft::Configuration::OfVoters({NodeId(1), NodeId(2), NodeId(3)});
    options.raft.uncommitted_max_entries = uncommitted_max;
    options.seed = seed_;
    options.check_every_entries = check_every_;
    raft::RestoredState restored;
    restored.hard_state.term = Term(entries.empty() ? 0 : 1);
    restored.entries = std::move(entries);
    replica_ = std::make_unique<Replica>(*this, options, std::move(restored));
    replica_->SetAgreedFeatures(kAllFeatures);
  }
  void FromNode2(uint64_t term, decltype(raft::Message::body) body) {
    replica_->ReceiveMessage(now_ns_,
                             {.from = NodeId(2), .to = NodeId(1), .term = Term(term), .body = std::move(body)});
    replica_->Settle();
  }
  void Lead() {
    now_ns_ += 5000 * kMillisecond;
    replica_->Tick();
    replica_->Settle();
    const uint64_t term = raft().term().value() + 1;
    FromNode2(term - 1, raft::VoteReply{.asked_term = Term(term), .pre_vote = true, .granted = true});
    FromNode2(term, raft::VoteReply{.asked_term = Term(term), .pre_vote = false, .granted = true});
    ASSERT_EQ(raft().role(), raft::Role::kLeader);
  }
  void Ask(uint64_t seq) {
    replica_->ReceiveRequest(now_ns_, Write(seq));
    replica_->Settle();
  }
  void Acknowledge(uint64_t index) {
    FromNode2(raft().term().value(),
              raft::AppendReply{.accepted = true, .index = LogIndex(index), .loop_seq = ++loop_seq_});
  }
  void Wait(uint64_t ms) {
    now_ns_ += ms * kMillisecond;
    FromNode2(raft().term().value(),
              raft::HeartbeatReply{.round = 0, .matched = raft().progress()[1].match(), .loop_seq = ++loop_seq_});
    replica_->Tick();
    replica_->Settle();
  }
  uint64_t Last() const { return raft().log().last_index().value(); }
  const raft::Raft& raft() const { return replica_->raft(); }

  // ReplicaHost
  uint64_t Now_ns() override { return now_ns_; }
  uint64_t StampClock_ns() override { return now_ns_; }
  uint64_t Random() override { return ++random_; }
  uint64_t Secret() override { return Random(); }
  void Persist(raft::Persist persist) override { replica_->Feed(raft::Persisted{.sequence = persist.sequence}); }
  void Send(raft::Message message) override { sent_.push_back(std::move(message)); }
  void Send(Answer answer) override { answers_[answer.reply_to.request] = answer; }
  void Send(Forward) override { ++forwards_; }
  void LeaderIs(NodeId, Term) override {}

  std::optional<Settings> seed_;  // none: what is counted below are the test's own entries
  uint64_t check_every_ = 1'000'000;
  uint64_t now_ns_ = 1'000'000'000;
  uint64_t random_ = 0;
  uint64_t loop_seq_ = 0;
  uint64_t forwards_ = 0;
  std::vector<raft::Message> sent_;
  std::map<uint64_t, Answer> answers_;
  std::unique_ptr<Replica> replica_;
};

raft::Entry Entry(uint64_t index, uint64_t term, uint64_t seq) {
  return {.term = Term(term), .index = LogIndex(index), .payload = raft::Payload(Encode(Write(seq).command))};
}

TEST_F(ReplicaTest, WhatAFormerLeaderHasProposedIsNotProposedAgainAndIsAnswered) {
  Start({Entry(1, 1, 1), Entry(2, 1, 2)});
  Lead();
  ASSERT_EQ(Last(), 3u) << "its no-op";
  Ask(1);
  Ask(2);
  Ask(3);
  EXPECT_EQ(Last(), 4u);
  EXPECT_EQ(replica_->proposals().counters.known, 2u);
  EXPECT_TRUE(answers_.empty());
  Acknowledge(4);
  EXPECT_EQ(answers_.size(), 3u);
  for (const auto& [seq, answer] : answers_) EXPECT_EQ(answer.kind, Answer::Kind::kResult) << seq;
}

// Of a member of a later version.
TEST_F(ReplicaTest, AnEntryThatCannotBeReadStopsTheReplicaAndNotTheProcess) {
  for (const std::string& bytes : {std::string("\3\11"), std::string("\4\2"), std::string()}) {
    answers_.clear();
    Start();
    const auto entry = [](uint64_t index, raft::Payload payload) {
      return raft::Entry{.term = Term(5), .index = LogIndex(index), .payload = std::move(payload)};
    };
    const raft::Payload known(Encode(Write(1).command));
    FromNode2(5, raft::AppendRequest{.commit = LogIndex(3),
                                     .entries = {entry(1, known), entry(2, raft::Payload(bytes)), entry(3, known)}});
    EXPECT_EQ(raft().commit(), LogIndex(3)) << "it votes and stores";
    EXPECT_EQ(replica_->applied().index, LogIndex(1));
    EXPECT_EQ(raft().applied(), LogIndex(1));
    EXPECT_EQ(replica_->unreadable(), LogIndex(2));
    EXPECT_FALSE(raft().may_stand());
    Ask(2);
    EXPECT_EQ(answers_.at(2).kind, Answer::Kind::kNotLeader);
    FromNode2(
        5, raft::AppendRequest{
               .prev_index = LogIndex(3), .prev_term = Term(5), .commit = LogIndex(4), .entries = {entry(4, known)}});
    EXPECT_EQ(replica_->applied().index, LogIndex(1));
    // What it did is in a later snapshot.
    replica_->ReceiveSnapshot(
        {.leader = NodeId(2),
         .term = Term(5),
         .snapshot = {.last = {.index = LogIndex(9), .term = Term(5)}, .configuration = raft().configuration()}},
        std::make_unique<StateMachine>());
    replica_->Settle();
    EXPECT_EQ(replica_->applied().index, LogIndex(9));
    EXPECT_TRUE(replica_->serves());
    EXPECT_TRUE(raft().may_stand());
  }
}

TEST_F(ReplicaTest, ALeaderProposesOnlyWhatAllMembersCanRead) {
  Start();
  check_every_ = 2;
  Start();
  replica_->SetAgreedFeatures(0);
  Lead();
  for (uint64_t seq = 1; seq <= 4; ++seq) {
    Ask(seq);
    Acknowledge(Last());
  }
  EXPECT_EQ(Last(), 5u) << "its no-op and the requests";
  EXPECT_EQ(replica_->proposals().counters.not_known_to_all, 2u);
  EXPECT_EQ(replica_->checks().counters().not_proposed, 2u);
  replica_->SetAgreedFeatures(kAllFeatures);
  Ask(5);
  Acknowledge(Last());
  EXPECT_EQ(Last(), 7u);
}

TEST_F(ReplicaTest, WhatTheLogHasUsedIsUsedThoughAMemberIsSilent) {
  Start();
  const auto came_ns = [this](uint64_t seq) {
    Request request = Write(seq);
    request.command.key.kind = CommandKind::kWindowed;
    replica_->ReceiveRequest(now_ns_, std::move(request));
    replica_->Settle();
    Acknowledge(Last());
    return Decode(raft().log().At(raft().log().last_index()).payload.view())->came_ns;
  };
  replica_->SetAgreedFeatures(0);
  Lead();
  EXPECT_EQ(came_ns(1), 0u) << "not all are known to read it";
  replica_->SetAgreedFeatures(kAllFeatures);
  EXPECT_NE(came_ns(2), 0u);
  replica_->SetAgreedFeatures(0);
  EXPECT_NE(came_ns(3), 0u) << "they were once, and one is silent";
}

TEST_F(ReplicaTest, WhatWasTruncatedIsProposedAgain) {
  Start({Entry(1, 1, 1)});
  Lead();
  Ask(1);
  const uint64_t term = raft().term().value();
  ASSERT_EQ(Last(), 2u);
  // Another leader, whose log knows nothing of it.
  FromNode2(
      term + 1,
      raft::AppendRequest{
          .prev_index = {},
          .prev_term = {},
          .commit = {},
          .entries = {{.term = Term(term + 1), .index = LogIndex(1), .kind = raft::EntryKind::kNoOp, .payload = {}}}});
  ASSERT_EQ(Last(), 1u);
  EXPECT_EQ(forwards_, 1u) << "its waiter goes on waiting, with the new leader";
  // A retry of the client's, after this node has come to lead again.
  Lead();
  Ask(1);
  EXPECT_EQ(Last(), 3u) << "the other's no-op, its own, and the request";
  Acknowledge(3);
  EXPECT_EQ(answers_.count(1), 1u);
}

// With a target that is down: what came meanwhile is proposed then, and not refused after a second.
TEST_F(ReplicaTest, WhatWaitsForATransferIsProposedOnceThatIsGivenUp) {
  Start();
  Lead();
  Acknowledge(1);
  replica_->Feed(raft::TransferLeadership{.target = NodeId(3)});
  replica_->Settle();
  Ask(1);
  EXPECT_EQ(Last(), 1u);
  for (int i = 0; i < 100 && Last() == 1; ++i) Wait(11);
  EXPECT_EQ(raft().role(), raft::Role::kLeader);
  EXPECT_EQ(Last(), 2u);
  EXPECT_TRUE(answers_.empty());
  Acknowledge(2);
  ASSERT_EQ(answers_.count(1), 1u);
  EXPECT_EQ(answers_[1].kind, Answer::Kind::kResult);
  EXPECT_EQ(answers_[1].result.code, ResultCode::kUnknownSession) << "applied; no client has opened it";
}

// They are decoded and fetched several at a time, and no-ops stand among them.
TEST_F(ReplicaTest, ManyEntriesAtOnceAreAppliedAsOneByOne) {
  StateMachine expected;
  std::vector<raft::Entry> entries;
  for (uint64_t index = 1; index <= 203; ++index) {
    raft::Entry entry{.term = Term(1), .index = LogIndex(index), .kind = raft::EntryKind::kNoOp, .payload = {}};
    if (index % 9 != 0) {
      Command command{.key = {.kind = CommandKind::kOpen, .a = 5}, .session = {.id = 1}};
      if (index > 1) command.key = {.kind = CommandKind::kWrite, .a = 1, .b = index};
      // The same keys again and again, so that each depends on the one before; some change several.
      for (uint64_t i = 0; index > 1 && i < 1 + index % 3; ++i) {
        command.operations.push_back({.kind = index % 7 == 0 ? OperationKind::kDelete : OperationKind::kIncrement,
                                      .key = "key" + std::to_string((index + i) % 4),
                                      .delta = static_cast<int64_t>(index)});
      }
      command.lowest_unanswered = index;
      entry.kind = raft::EntryKind::kCommand;
      entry.payload = raft::Payload(Encode(command));
      expected.Apply(index, command);
    }
    entries.push_back(std::move(entry));
  }
  Start();
  FromNode2(1, raft::AppendRequest{.prev_index = {}, .prev_term = {}, .commit = LogIndex(203), .entries = entries});
  EXPECT_EQ(replica_->applied().index, LogIndex(203));
  EXPECT_EQ(replica_->state().fingerprint(), expected.fingerprint());
  EXPECT_EQ(replica_->state().values(), expected.values());
  for (uint64_t key = 0; key < 4; ++key) {
    const std::string name = "key" + std::to_string(key);
    EXPECT_EQ(replica_->state().Get(name), expected.Get(name));
  }
}

TEST_F(ReplicaTest, WhatHasNoRoomWaitsAndIsToldSoAfterASecond) {
  Start({}, 4);
  Lead();
  for (uint64_t seq = 1; seq <= 10; ++seq) Ask(seq);
  EXPECT_EQ(Last(), 4u) << "the no-op and three more";
  Acknowledge(2);
  EXPECT_EQ(Last(), 6u);
  EXPECT_EQ(answers_.size(), 1u);
  for (int i = 0; i < 100; ++i) Wait(11);
  EXPECT_EQ(raft().role(), raft::Role::kLeader);
  EXPECT_EQ(Last(), 6u);
  EXPECT_EQ(answers_.size(), 6u) << "five of ten are in the log, of which one is applied";
  for (uint64_t seq = 6; seq <= 10; ++seq) {
    EXPECT_EQ(answers_[seq].kind, Answer::Kind::kResult);
    EXPECT_EQ(answers_[seq].result.code, ResultCode::kOverloaded);
  }
  Acknowledge(6);
  EXPECT_EQ(Last(), 6u) << "no client waits for the others any more";
}

TEST_F(ReplicaTest, ALeaderSeedsAClusterWithoutSettingsBeforeAnythingElse) {
  seed_.emplace().sessions.sessions_max = 7;
  Start();
  Lead();
  ASSERT_EQ(Last(), 2u) << "its no-op and the seed, though no client has asked for anything";
  Ask(1);
  const auto seed = Decode(raft().log().At(LogIndex(2)).payload.view());
  ASSERT_TRUE(seed.has_value());
  Acknowledge(3);
  EXPECT_EQ(seed->key, (RequestKey{.kind = CommandKind::kSettings, .a = kSeed, .b = replica_->state().log_uuid()}));
  EXPECT_NE(seed->key.b, 0u) << "and the log's UUID";
  EXPECT_TRUE(replica_->state().settings().set());
  EXPECT_EQ(replica_->state().settings().sessions.sessions_max, 7u);
}

TEST_F(ReplicaTest, ASeedWaitsForRoomAndGoesFirst) {
  seed_.emplace().sessions.sessions_max = 7;
  Start({Entry(1, 1, 1), Entry(2, 1, 2), Entry(3, 1, 3)}, 4);
  Lead();
  Ask(4);
  ASSERT_EQ(Last(), 4u) << "no room beside three entries and the no-op";
  Acknowledge(4);
  ASSERT_EQ(Last(), 6u);
  EXPECT_EQ(Decode(raft().log().At(LogIndex(5)).payload.view())->key.kind, CommandKind::kSettings);
  EXPECT_EQ(Decode(raft().log().At(LogIndex(6)).payload.view())->key.kind, CommandKind::kWrite);
}

// Its own file says something else, and the entry is not applied when it begins to lead.
TEST_F(ReplicaTest, ALaterLeadersSeedChangesNothing) {
  seed_.emplace().sessions.sessions_max = 7;
  Command other{.key = {.kind = CommandKind::kSettings, .a = kSeed}, .settings = {{Setting::kSessionsMax, 9}}};
  Start({{.term = Term(1), .index = LogIndex(1), .payload = raft::Payload(Encode(other))}});
  Lead();
  Acknowledge(Last());
  EXPECT_EQ(replica_->state().settings().sessions.sessions_max, 9u);
  EXPECT_EQ(replica_->state().settings().version, 1u);
  FromNode2(raft().term().value() + 1, raft::Heartbeat{});
  const uint64_t last = Last();
  Lead();
  EXPECT_EQ(Last(), last + 1) << "a no-op alone: by now it knows that there are settings";
}

TEST_F(ReplicaTest, ALeaderProposesAChangeOfSettingsAndAFollowerDoesNot) {
  Start();
  EXPECT_TRUE(replica_->ChangeSettings({{Setting::kSessionsMax, 5}}));
  replica_->Settle();
  EXPECT_EQ(Last(), 0u);
  Lead();
  EXPECT_EQ(Last(), 1u) << "what a follower was asked is forgotten";
  EXPECT_TRUE(replica_->ChangeSettings({{Setting::kSessionsMax, 6}}));
  replica_->Settle();
  EXPECT_FALSE(replica_->state().settings().set());
  Acknowledge(2);
  EXPECT_EQ(replica_->state().settings().sessions.sessions_max, 6u);
  EXPECT_EQ(replica_->state().settings().version, 1u);
}

// Node 2 has led, has appended entries at node 1 that it does not know to be committed, and answers no more.
class TailReadTest : public ReplicaTest {
 protected:
  void Follow(std::vector<Command> tail) {
    Start();
    Append(0, 1, {Put("k", "committed")});
    Append(1, 1, std::move(tail));
  }
  void Append(uint64_t prev, uint64_t commit, std::vector<Command> commands) {
    raft::AppendRequest append{
        .prev_index = LogIndex(prev), .prev_term = Term(prev == 0 ? 0 : 1), .commit = LogIndex(commit), .entries = {}};
    for (const Command& command : commands)
      append.entries.push_back({.term = Term(1), .index = LogIndex(++prev), .payload = raft::Payload(Encode(command))});
    FromNode2(1, std::move(append));
  }
  static Command Put(const std::string& key, const std::string& value) {
    return {.key = {.kind = CommandKind::kWindowed, .a = std::hash<std::string>()(key + value)},
            .operations = {{.kind = OperationKind::kPut, .key = key, .value = value}}};
  }
  static Command Set(const std::string& key) {
    return {.key = {.kind = CommandKind::kMemcached, .a = 3},
            .item = {.verb = ItemVerb::kSet, .key = key, .value = "v"}};
  }
  static Request Get(const std::string& key) {
    Request request;
    request.reply_to.request = 900;
    request.read_key = key;
    return request;
  }
  // Node 3's log ends at the same entry as this one's.
  void Read(Request request) {
    request.timeout_ns = 1000 * kMillisecond;
    replica_->ReceiveRequest(now_ns_, std::move(request));
    replica_->Settle();
    now_ns_ += raft().options().read_leader_ns;
    replica_->Tick();
    replica_->Settle();
    const auto* const question = std::get_if<raft::ReadIndexRequest>(&sent_.back().body);
    ASSERT_NE(question, nullptr);
    replica_->ReceiveMessage(now_ns_, {.from = NodeId(3),
                                       .to = NodeId(1),
                                       .term = Term(1),
                                       .body = raft::LastEntry{.id = question->id, .last = raft().log().last()}});
    replica_->Settle();
  }
};

TEST_F(TailReadTest, AReadIsAnsweredAtOnceWhereTheTailLeavesItsKeyAlone) {
  Follow({Put("other", "tail"), Set("k")});
  Read(Get("k"));
  ASSERT_EQ(answers_.count(900), 1u);
  EXPECT_EQ(answers_[900].value, "committed");
}

TEST_F(TailReadTest, AReadOfAKeyThatTheTailMayChangeWaits) {
  Follow({Put("other", "tail"), Put("k", "tail")});
  Read(Get("k"));
  EXPECT_EQ(answers_.count(900), 0u);
  Append(3, 3, {});
  ASSERT_EQ(answers_.count(900), 1u);
  EXPECT_EQ(answers_[900].value, "tail");
}

TEST_F(TailReadTest, AReadOfItemsWaitsForWhateverTellsTheTime) {
  Follow({Put("other", "tail")});
  Request items = Get("");
  items.read_key.reset();
  items.item_keys = {"k"};
  Read(std::move(items));
  EXPECT_EQ(answers_.count(900), 0u);
  Append(2, 2, {});
  EXPECT_EQ(answers_.count(900), 1u);
}

TEST_F(TailReadTest, AnEntryThatThisBuildCannotReadMayChangeAnyKey) {
  Follow({Put("other", "tail")});
  FromNode2(1, raft::AppendRequest{
                   .prev_index = LogIndex(2),
                   .prev_term = Term(1),
                   .commit = LogIndex(1),
                   .entries = {{.term = Term(1), .index = LogIndex(3), .payload = raft::Payload(std::string("x"))}}});
  Read(Get("k"));
  EXPECT_EQ(answers_.count(900), 0u);
}

class StateCheckTest : public ReplicaTest {
 protected:
  static raft::Entry EntryOf(uint64_t index, const Command& command) {
    return {.term = Term(1), .index = LogIndex(index), .payload = raft::Payload(Encode(command))};
  }
  static Command Seed() {
    return {.key = {.kind = CommandKind::kSettings, .a = kSeed, .b = 77}, .settings = {{Setting::kSessionsMax, 9}}};
  }
  static Command Put(const std::string& value) {
    return {.key = {.kind = CommandKind::kWindowed, .a = 3, .b = static_cast<uint64_t>(value[0])},
            .operations = {{.kind = OperationKind::kPut, .key = "k", .value = value}}};
  }
  static Command Check(uint64_t index, uint64_t fingerprint, uint64_t node) {
    return {.key = {.kind = CommandKind::kCheck, .a = index, .b = fingerprint, .c = node}};
  }
  // As a follower: a seed and a put, and what nodes 2 and 3 say that their states were after entry 2.
  void FollowerHears(uint64_t fingerprint) {
    check_every_ = 2;
    Start();
    Append({EntryOf(1, Seed()), EntryOf(2, Put("value"))});
    Append({EntryOf(3, Check(2, fingerprint, 2)), EntryOf(4, Check(2, fingerprint, 3)), EntryOf(5, Put("later"))});
  }
  void Append(std::vector<raft::Entry> entries) {
    const LogIndex last = entries.back().index;
    const LogIndex prev = entries.front().index.Previous();
    FromNode2(1, raft::AppendRequest{.prev_index = prev,
                                     .prev_term = Term(prev == LogIndex() ? 0 : 1),
                                     .commit = last,
                                     .entries = std::move(entries)});
    ASSERT_EQ(replica_->applied().index, last);
  }
  static std::unique_ptr<StateMachine> StateAfter(uint64_t entries) {
    auto state = std::make_unique<StateMachine>();
    state->Apply(1, Seed());
    state->Apply(2, Put("value"));
    if (entries >= 5) state->Apply(5, Put("later"));
    return state;
  }
  void Read() {
    answers_.clear();
    Request request;
    request.reply_to.request = 900;
    request.read_key = "k";
    request.timeout_ns = 1000 * kMillisecond;
    replica_->ReceiveRequest(now_ns_, std::move(request));
    replica_->Settle();
  }
};

TEST_F(StateCheckTest, AReplicaFindsThatItsStateIsTheMajoritys) {
  FollowerHears(StateAfter(2)->fingerprint());
  EXPECT_EQ(replica_->checks().counters().equal, 1u);
  EXPECT_FALSE(replica_->outside());
  EXPECT_EQ(forwards_, 2u) << "its own are the leader's to propose";
  EXPECT_EQ(replica_->state().log_uuid(), 77u);
}

TEST_F(StateCheckTest, AReplicaWhoseStateIsWrongServesNobodyAndStandsForNothing) {
  FollowerHears(StateAfter(2)->fingerprint() + 1);
  EXPECT_EQ(replica_->checks().counters().differ, 1u);
  EXPECT_EQ(replica_->checks().wrong_since(), LogIndex(2));
  EXPECT_TRUE(replica_->outside());
  EXPECT_FALSE(replica_->wants_snapshot());
  Read();
  ASSERT_EQ(answers_.count(900), 1u);
  EXPECT_EQ(answers_[900].kind, Answer::Kind::kNotLeader);
  EXPECT_EQ(answers_[900].leader_hint, NodeId(2));
  now_ns_ += 60'000 * kMillisecond;
  replica_->Tick();
  replica_->Settle();
  EXPECT_EQ(raft().role(), raft::Role::kFollower) << "however long there is no leader";
}

// The leader's snapshot is of before what this node has applied: its log makes good the rest.
TEST_F(StateCheckTest, ALeadersSnapshotMendsItWithWhatTheLogHoldsBeyondThat) {
  FollowerHears(StateAfter(2)->fingerprint() + 1);
  ASSERT_TRUE(replica_->FlipForTest("k"));
  ASSERT_NE(replica_->state().Get("k"), "later");
  const raft::Snapshot snapshot{.last = {.index = LogIndex(3), .term = Term(1)},
                                .configuration = raft().configuration()};
  replica_->ReceiveSnapshot({.leader = NodeId(2), .term = Term(1), .snapshot = snapshot}, StateAfter(3));
  replica_->Settle();
  EXPECT_FALSE(replica_->outside());
  EXPECT_EQ(replica_->checks().counters().mended, 1u);
  EXPECT_EQ(replica_->state().Get("k"), "later");
  EXPECT_EQ(replica_->state().fingerprint(), StateAfter(5)->fingerprint());
  EXPECT_EQ(replica_->applied().index, LogIndex(5));
  EXPECT_EQ(raft().snapshot().last.index, LogIndex(3)) << "or the next start would load a wrong one";
}

TEST_F(StateCheckTest, ASnapshotOfAStateThatIsRightChangesNothing) {
  FollowerHears(StateAfter(2)->fingerprint());
  const raft::Snapshot snapshot{.last = {.index = LogIndex(3), .term = Term(1)},
                                .configuration = raft().configuration()};
  replica_->ReceiveSnapshot({.leader = NodeId(2), .term = Term(1), .snapshot = snapshot}, StateAfter(3));
  replica_->Settle();
  EXPECT_EQ(raft().snapshot().last.index, LogIndex());
}

TEST_F(StateCheckTest, AFlippedBitIsInTheNextFingerprintOnceItsKeyIsWritten) {
  check_every_ = 2;
  Start();
  Append({EntryOf(1, Seed()), EntryOf(2, Put("value"))});
  ASSERT_TRUE(replica_->FlipForTest("k"));
  EXPECT_EQ(replica_->state().fingerprint(), StateAfter(2)->fingerprint()) << "nobody has looked at the byte";
  Append({EntryOf(5 - 2, Put("later"))});
  StateMachine expected;
  expected.Apply(1, Seed());
  expected.Apply(2, Put("value"));
  expected.Apply(3, Put("later"));
  EXPECT_NE(replica_->state().fingerprint(), expected.fingerprint());
}

TEST_F(StateCheckTest, ASnapshotFindsAFlippedBitAndIsNotTaken) {
  check_every_ = 2;
  Start();
  Append({EntryOf(1, Seed()), EntryOf(2, Put("value"))});
  forwards_ = 0;
  const auto take = [this] {
    replica_->BeginSnapshot();
    while (replica_->taking_snapshot()) (void)replica_->ContinueSnapshot(1000);
  };
  take();
  EXPECT_TRUE(replica_->snapshot_is_sound());
  ASSERT_TRUE(replica_->FlipForTest("k"));
  take();
  EXPECT_FALSE(replica_->snapshot_is_sound());
  EXPECT_TRUE(replica_->outside());
  EXPECT_EQ(replica_->checks().counters().faults, 1u);
  EXPECT_EQ(forwards_, 1u) << "the others are told";
  for (uint64_t reports = 2; reports <= 4; ++reports) {
    now_ns_ += 5000 * kMillisecond;
    replica_->Tick();
    EXPECT_EQ(forwards_, reports) << "until it is mended: a report may be lost";
  }
  EXPECT_NE(replica_->state().fingerprint(), StateAfter(2)->fingerprint()) << "it is that of what is there";
}

TEST_F(StateCheckTest, AVotersResultIsProposedByItsLeader) {
  check_every_ = 4;
  seed_.emplace();
  Start();
  Lead();
  for (uint64_t seq = 1; seq <= 2; ++seq) Ask(seq);
  ASSERT_EQ(Last(), 4u);
  Acknowledge(4);
  ASSERT_EQ(Last(), 5u);
  const uint64_t fingerprint = replica_->state().fingerprint();
  const auto check = Decode(raft().log().At(LogIndex(5)).payload.view());
  EXPECT_EQ(check->key, Check(4, fingerprint, 1).key);
  replica_->ReceiveRequest(now_ns_, {.command = Check(4, fingerprint, 2)});
  replica_->Settle();
  ASSERT_EQ(Last(), 6u);
  EXPECT_EQ(Decode(raft().log().At(LogIndex(6)).payload.view())->key, Check(4, fingerprint, 2).key);
  Acknowledge(6);
  EXPECT_EQ(replica_->checks().counters().equal, 1u);
}

TEST_F(StateCheckTest, ALeaderWhoseStateIsWrongHandsItsLeadershipToAVoterOfTheMajority) {
  check_every_ = 4;
  seed_.emplace();
  Start();
  Lead();
  for (uint64_t seq = 1; seq <= 2; ++seq) Ask(seq);
  Acknowledge(4);
  for (const uint64_t node : {2, 3}) replica_->ReceiveRequest(now_ns_, {.command = Check(4, 999, node)});
  replica_->Settle();
  ASSERT_EQ(Last(), 7u);
  EXPECT_FALSE(raft().transferring());
  Acknowledge(7);
  EXPECT_TRUE(replica_->outside());
  Read();
  ASSERT_EQ(answers_.count(900), 1u) << "before anything else";
  EXPECT_EQ(answers_[900].kind, Answer::Kind::kNotLeader);
  replica_->Tick();
  replica_->Settle();
  EXPECT_TRUE(raft().transferring());
}

}  // namespace
}  // namespace hedgerow::kv
