// SPDX-License-Identifier: Apache-2.0
//
// What a follower's loop takes to apply committed puts, 200 in a turn, by how many keys the store has. Between
// turns the caches are filled with something else, as other programs and the rest of a turn do:
//
//   build/release/bin/hr-apply-bench --benchmark_format=json
//
// Only Replica::Apply is measured: from the core's outputs to the last entry.

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cluster/kv/replica.h"
#include "cluster/raft/check.h"

namespace hedgerow::kv {
namespace {

using raft::LogIndex;
using raft::NodeId;
using raft::Term;

constexpr uint64_t kBatch = 200;
constexpr uint64_t kSessions = 64;
constexpr uint64_t kBatchesPerSnapshot = 1000;  // the log is compacted, so that memory does not grow with time

// Node 1 of three, which node 2 leads.
class Follower : public ReplicaHost {
 public:
  explicit Follower(uint64_t keys) : keys_(keys), seqs_(kSessions), replica_(*this, Options(), {}) {
    for (uint64_t session = 0; session < kSessions; ++session) {
      Append({.key = {.kind = CommandKind::kOpen, .a = session}, .session = {.id = session + 1, .token = session}});
    }
    Commit();
    for (uint64_t key = 0; key < keys_; ++key) {
      AppendPut(key);
      if (entries_.size() == kBatch) Commit();
    }
    Commit();
    HEDGEROW_CHECK(replica_.state().values() == keys_);
  }

  void AppendPuts() {
    for (uint64_t i = 0; i < kBatch; ++i) AppendPut(random_() % keys_);
    Deliver(false);
  }
  void Commit() { Deliver(true); }
  double apply_s() const { return std::chrono::duration<double>(end_ - begin_).count(); }

  // ReplicaHost
  uint64_t Now_ns() override { return 1'000'000'000; }
  uint64_t StampClock_ns() override { return 1'000'000'000; }
  uint64_t Random() override { return random_(); }
  uint64_t Secret() override { return Random(); }
  void Persist(raft::Persist persist) override { replica_.Feed(raft::Persisted{.sequence = persist.sequence}); }
  void Send(raft::Message) override {}
  void Send(Answer) override {}
  void Send(Forward) override {}
  void LeaderIs(NodeId, Term) override {}
  void Stepped(const raft::Outputs& outputs) override {
    if (!outputs.apply.empty()) begin_ = std::chrono::steady_clock::now();
  }
  void Applied(LogIndex index, const StateMachine&) override {
    if (index == LogIndex(last_)) end_ = std::chrono::steady_clock::now();
  }

 private:
  static ReplicaOptions Options() {
    ReplicaOptions options;
    options.raft.self = NodeId(1);
    options.raft.initial = raft::Configuration::OfVoters({NodeId(1), NodeId(2), NodeId(3)});
    return options;
  }
  void AppendPut(uint64_t key) {
    const uint64_t session = key % kSessions;
    const uint64_t seq = ++seqs_[session];
    Operation put{.kind = OperationKind::kPut,
                  .key = "bench/" + std::to_string(session) + "/" + std::to_string(key / kSessions),
                  .value = std::string(64, static_cast<char>('a' + seq % 26))};
    const std::vector<Operation> operations = {std::move(put)};
    Append({.key = WriteKey({.id = session + 1, .token = session}, seq, operations),
            .lowest_unanswered = seq,
            .elapsed_ns = 25'000,
            .operations = operations});
  }
  void Append(const Command& command) {
    const LogIndex index(last_ + entries_.size() + 1);
    entries_.push_back({.term = Term(1), .index = index, .payload = raft::Payload(Encode(command))});
  }
  void Deliver(bool commit) {
    raft::AppendRequest request{.prev_index = LogIndex(last_), .prev_term = Term(last_ == 0 ? 0 : 1)};
    last_ += entries_.size();
    if (commit) request.commit = LogIndex(last_);
    request.entries = std::exchange(entries_, {});
    replica_.ReceiveMessage(0, {.from = NodeId(2), .to = NodeId(1), .term = Term(1), .body = std::move(request)});
    replica_.Settle();
    if (++deliveries_ % kBatchesPerSnapshot != 0) return;
    replica_.Feed(raft::SnapshotTaken{
        .snapshot = {.last = replica_.applied(), .configuration = replica_.raft().configuration()}});
    replica_.Settle();
  }

  uint64_t keys_;
  std::vector<uint64_t> seqs_;  // by session
  std::mt19937_64 random_{1};
  std::vector<raft::Entry> entries_;  // not delivered yet
  uint64_t last_ = 0;                 // index of what is delivered
  uint64_t deliveries_ = 0;
  std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point end_;
  Replica replica_;
};

void BM_Apply(benchmark::State& state) {
  Follower follower(static_cast<uint64_t>(state.range(0)));
  struct alignas(64) Line {
    uint64_t word = 1;
  };
  std::vector<Line> others(static_cast<size_t>(state.range(1)) * (size_t{1} << 20) / sizeof(Line));
  for (auto iteration : state) {
    (void)iteration;
    follower.AppendPuts();
    for (Line& other : others) benchmark::DoNotOptimize(++other.word);
    follower.Commit();
    state.SetIterationTime(follower.apply_s() / kBatch);
  }
}
BENCHMARK(BM_Apply)
    ->ArgNames({"keys", "evicted_mib"})
    ->ArgsProduct({{6'400, 1'000'000}, {8, 64}})
    ->UseManualTime()
    ->Iterations(5000)
    ->Unit(benchmark::kNanosecond);

}  // namespace
}  // namespace hedgerow::kv

BENCHMARK_MAIN();
