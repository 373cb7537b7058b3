// SPDX-License-Identifier: Apache-2.0
//
// What a snapshot costs the loop that owns the state machine (ADR 0012): the longest stop at its beginning, in
// a step of it and in a change that is made meanwhile, beside the longest change while there is none; and what
// it costs to load one. By the number of keys:
//
//   build/release/bin/hr-snapshot-bench --benchmark_format=json
//
// Stops are in the thread's own processor time, so that other programs on the host do not show in them.

#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cluster/kv/state_loader.h"
#include "cluster/kv/state_machine.h"
#include "cluster/raft/check.h"

namespace hedgerow::kv {
namespace {

constexpr size_t kStep_bytes = 8 * 1024;  // as cluster/node takes them
constexpr int kChangesPerStep = 4;

class Longest {
 public:
  template <typename Work>
  void Of(const Work& work) {
    const double begin_us = Now_us();
    work();
    longest_us_ = std::max(longest_us_, Now_us() - begin_us);
  }
  double us() const { return longest_us_; }

 private:
  static double Now_us() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
  }

  double longest_us_ = 0;
};

class Filled {
 public:
  explicit Filled(uint64_t keys) : keys_(keys) {
    state_.Apply(++index_, {.key = {.kind = CommandKind::kOpen, .a = 1}, .session = {.id = 1}});
    for (uint64_t key = 0; key < keys; ++key) Put(key);
  }
  void Put(uint64_t key) {
    Operation put{.kind = OperationKind::kPut, .key = "key" + std::to_string(key), .value = std::string(100, 'v')};
    const uint64_t seq = ++index_;
    state_.Apply(seq, {.key = {.kind = CommandKind::kWrite, .a = 1, .b = seq},
                       .lowest_unanswered = seq,
                       .operations = {std::move(put)}});
  }
  void PutAny() { Put(random_() % keys_); }
  StateMachine& state() { return state_; }

 private:
  uint64_t keys_;
  uint64_t index_ = 0;
  std::mt19937_64 random_{1};
  StateMachine state_;
};

void BM_Snapshot(benchmark::State& state) {
  Filled filled(static_cast<uint64_t>(state.range(0)));
  Longest quiet_change;
  for (int i = 0; i < 200'000; ++i) quiet_change.Of([&filled] { filled.PutAny(); });
  Longest begin;
  Longest step;
  Longest change;
  uint64_t steps = 0;
  uint64_t bytes = 0;
  for (auto iteration : state) {
    (void)iteration;
    begin.Of([&filled] { filled.state().BeginSnapshot(); });
    while (filled.state().taking_snapshot()) {
      std::vector<std::string> chunks;
      step.Of([&] { chunks = filled.state().ContinueSnapshot(kStep_bytes); });
      for (const std::string& chunk : chunks) bytes += chunk.size();
      ++steps;
      for (int i = 0; i < kChangesPerStep; ++i) change.Of([&filled] { filled.PutAny(); });
    }
  }
  state.counters["longest_begin_us"] = begin.us();
  state.counters["longest_step_us"] = step.us();
  state.counters["longest_change_us"] = change.us();
  state.counters["longest_change_without_us"] = quiet_change.us();
  state.counters["steps"] = static_cast<double>(steps);
  state.counters["bytes"] = static_cast<double>(bytes);
}
BENCHMARK(BM_Snapshot)->Arg(100'000)->Arg(1'000'000)->Arg(10'000'000)->Iterations(1)->Unit(benchmark::kMillisecond);

void BM_Load(benchmark::State& state) {
  std::vector<std::string> chunks;
  {
    Filled filled(static_cast<uint64_t>(state.range(0)));
    filled.state().BeginSnapshot();
    while (filled.state().taking_snapshot()) {
      for (std::string& chunk : filled.state().ContinueSnapshot(1 << 20)) chunks.push_back(std::move(chunk));
    }
  }
  std::unique_ptr<StateMachine> loaded;
  for (auto iteration : state) {
    (void)iteration;
    StateLoader loader;
    for (const std::string& chunk : chunks) HEDGEROW_CHECK(loader.Add(chunk));
    loaded = loader.Finish();
    HEDGEROW_CHECK(loaded != nullptr);
  }
}
BENCHMARK(BM_Load)->Arg(1'000'000)->Arg(10'000'000)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace hedgerow::kv

BENCHMARK_MAIN();
