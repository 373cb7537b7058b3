// SPDX-License-Identifier: Apache-2.0
//
// A member that holds the cluster's key and is at fault: its messages are whole, and say what no member says. A
// node bears each of them; it may be kept from leading or serving, and does not end. The numbers lie close
// together, so that they meet.
#include <array>
#include <memory>
#include <random>

#include <gtest/gtest.h>

#include "cluster/kv/replica.h"

namespace hedgerow::kv {
namespace {

using raft::LogIndex;
using raft::NodeId;
using raft::Term;

constexpr uint64_t kSelf = 1;
constexpr raft::Configuration kNone{};

class OddMessages : public ReplicaHost {
 public:
  explicit OddMessages(uint64_t seed) : random_(seed) {
    ReplicaOptions options;
    options.raft.self = NodeId(kSelf);
    options.raft.initial = raft::Configuration::OfVoters({NodeId(1), NodeId(2), NodeId(3)});
    options.seed = Settings();
    options.check_every_entries = 2;
    options.snapshots.every_entries = 5;
    replica_ = std::make_unique<Replica>(*this, options, raft::RestoredState());
    replica_->SetAgreedFeatures(kAllFeatures);
  }

  void Run(int events) {
    for (int i = 0; i < events; ++i) {
      now_ns_ += Below(30) * 1'000'000;
      switch (Below(12)) {
        case 0: replica_->Tick(); break;
        case 1: Persisted(); break;
        case 2: TakeSnapshot(); break;
        case 3:
          replica_->ReceiveRequest(now_ns_,
                                   {.command = OddCommand(), .timeout_ns = Odd(), .age_ns = Odd(), .hops = Small()});
          break;
        case 4: replica_->Feed(raft::LeaderResigns{.leader = Node(), .term = NearTerm(), .rank = Small()}); break;
        case 5: ReceiveSnapshot(); break;
        default:
          replica_->ReceiveMessage(
              now_ns_,
              {.from = Node(), .to = NodeId(kSelf), .term = NearTerm(), .config_epoch = Small(), .body = Body()});
      }
      replica_->Settle();
    }
  }

  // ReplicaHost
  uint64_t Now_ns() override { return now_ns_; }
  uint64_t StampClock_ns() override { return now_ns_; }
  uint64_t Random() override { return random_(); }
  uint64_t Secret() override { return random_(); }
  void Persist(raft::Persist persist) override { written_ = persist.sequence; }
  void Send(raft::Message) override {}
  void Send(Answer) override {}
  void Send(Forward) override {}
  void LeaderIs(NodeId, Term) override {}

 private:
  uint64_t Below(uint64_t end) { return random_() % end; }
  uint32_t Small() { return static_cast<uint32_t>(Below(4)); }
  bool Either() { return Below(2) == 0; }
  uint64_t Odd() {
    constexpr std::array<uint64_t, 5> kEnds = {0, 1, uint64_t{1} << 63, UINT64_MAX - 1, UINT64_MAX};
    return Below(4) != 0 ? Below(12) : kEnds[Below(kEnds.size())];
  }
  const raft::Raft& raft() const { return replica_->raft(); }
  NodeId Node() { return NodeId(Below(20) == 0 ? Odd() : 2 + Below(3)); }
  Term NearTerm() {
    return Term(raft().term().value() + Below(3) - std::min<uint64_t>(raft().term().value(), Below(2)));
  }
  LogIndex Index() {
    const uint64_t last = raft().log().last_index().value();
    return LogIndex(Below(8) == 0 ? Odd() : last + Below(3) - std::min(last, Below(6)));
  }
  Term TermAt(LogIndex index) {
    return raft().log().Has(index) && Below(5) != 0 ? raft().log().TermAt(index)
                                                    : Term(Below(5) == 0 ? Odd() : Small());
  }

  Command OddCommand() {
    Command command;
    command.key = {
        .kind = static_cast<CommandKind>(1 + Below(8)), .a = Small(), .b = Small(), .c = 1 + Below(3), .d = Small()};
    if (PolicyOf(command.key).leaders_own) command.key.kind = CommandKind::kWindowed;  // refused by Peers
    return Filled(std::move(command));
  }
  Command Filled(Command command) {
    command.session = {.id = Small(), .token = Small()};
    command.lowest_unanswered = Odd();
    command.elapsed_ns = Odd();
    for (uint64_t i = Below(3); i > 0; --i) {
      command.operations.push_back({.kind = static_cast<OperationKind>(1 + Below(4)),
                                    .key = std::string(Below(3), 'k'),
                                    .value = std::string(Below(3), '1'),
                                    .delta = static_cast<int64_t>(Odd())});
    }
    if (command.key.kind == CommandKind::kMemcached || command.key.kind == CommandKind::kSettings)
      command.operations.clear();
    command.item = {.verb = static_cast<ItemVerb>(1 + Below(12)),
                    .key = std::string(Below(3), 'i'),
                    .value = std::string(Below(3), '2'),
                    .life_s = static_cast<int64_t>(Odd()),
                    .unique = Odd(),
                    .delta = Odd()};
    if (Either()) command.age_ns = Odd();
    return command;
  }
  raft::Payload Payload() {
    if (Below(20) == 0) return raft::Payload(std::string(Below(90), static_cast<char>(Below(256))));
    Command command{
        .key = {
            .kind = static_cast<CommandKind>(1 + Below(8)), .a = Small(), .b = Small(), .c = Small(), .d = Small()}};
    if (command.key.kind == CommandKind::kSettings) {
      command.key.a = Below(2);
      for (const SettingInfo& info : AllSettings())
        if (Either()) command.settings.push_back({.setting = info.setting, .value = Odd()});
    }
    std::string bytes = Encode(Filled(std::move(command)));
    if (Below(50) == 0) bytes[Below(bytes.size())] = static_cast<char>(Below(256));
    return raft::Payload(bytes);
  }
  raft::Configuration Members() {
    raft::Configuration members = raft::Configuration::OfVoters({NodeId(1 + Below(2)), NodeId(3 + Below(2))});
    members.epoch = Small();
    return Below(4) == 0 ? kNone : members;
  }
  raft::AppendRequest Append() {
    raft::AppendRequest append{.prev_index = Index(), .commit = Index()};
    append.prev_term = TermAt(append.prev_index);
    Term term = append.prev_term;
    for (uint64_t i = 1; i <= Below(4); ++i) {
      if (Below(4) == 0) term = NearTerm();
      raft::Entry entry{.term = term, .index = append.prev_index + i, .kind = static_cast<raft::EntryKind>(Below(3))};
      if (entry.kind == raft::EntryKind::kCommand) entry.payload = Payload();
      if (entry.kind == raft::EntryKind::kConfiguration)
        entry.payload = Below(4) == 0 ? raft::Payload(std::string("x")) : raft::Payload(EncodeConfiguration(Members()));
      append.entries.push_back(std::move(entry));
    }
    return append;
  }
  decltype(raft::Message::body) Body() {
    switch (Below(10)) {
      case 0:
        return raft::VoteRequest{.asked_term = NearTerm(),
                                 .last_index = Index(),
                                 .last_term = NearTerm(),
                                 .transfer_term = NearTerm(),
                                 .pre_vote = Either()};
      case 1: return raft::VoteReply{.asked_term = raft().term(), .pre_vote = Either(), .granted = Either()};
      case 2: return raft::VoteReply{.asked_term = raft().term().Next(), .pre_vote = true, .granted = true};
      case 3:
        return raft::AppendReply{.accepted = Either(),
                                 .index = Index(),
                                 .conflict_term = NearTerm(),
                                 .conflict_index = Index(),
                                 .loop_seq = Odd()};
      case 4: return raft::Heartbeat{.round = Odd(), .commit = Index(), .election_timeout_ns = Odd()};
      case 5: return raft::HeartbeatReply{.round = Odd(), .matched = Index(), .loop_seq = Odd()};
      case 6:
        return Either() ? decltype(raft::Message::body)(raft::ReadIndexRequest{.id = {Odd(), Odd()}})
                        : raft::ReadIndexReply{.id = {Odd(), Odd()}, .index = Index()};
      case 7: return raft::TimeoutNow{};
      case 8: return raft::LastEntry{.id = {Odd(), Odd()}, .last = {.index = Index(), .term = NearTerm()}};
      default: return Append();
    }
  }

  void Persisted() {
    if (written_ != 0) replica_->Feed(raft::Persisted{.sequence = written_});
  }
  void TakeSnapshot() {
    if (!replica_->wants_snapshot()) return;
    const raft::Snapshot snapshot = replica_->BeginSnapshot();
    while (replica_->taking_snapshot()) (void)replica_->ContinueSnapshot(100'000);
    if (replica_->snapshot_is_sound()) replica_->Feed(raft::SnapshotTaken{.snapshot = snapshot});
  }
  void ReceiveSnapshot() {
    const LogIndex index = Index();
    replica_->ReceiveSnapshot(
        {.leader = Node(),
         .term = NearTerm(),
         .snapshot = {.last = {.index = index, .term = TermAt(index)}, .configuration = Members()}},
        std::make_unique<StateMachine>());
  }

  std::mt19937_64 random_;
  uint64_t now_ns_ = 1'000'000'000;
  uint64_t written_ = 0;
  std::unique_ptr<Replica> replica_;
};

TEST(OddMessagesTest, ANodeBearsThem) {
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(seed);
    OddMessages(seed).Run(200);
  }
}

}  // namespace
}  // namespace hedgerow::kv
