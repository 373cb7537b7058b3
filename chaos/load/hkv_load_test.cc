// SPDX-License-Identifier: Apache-2.0
//
// The load against fake servers on the loopback, and its history before the judge. Rates are low and bounds
// wide: these tests must hold on a busy machine.
#include "chaos/load/hkv_load.h"

#include <algorithm>
#include <map>
#include <memory>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "chaos/check/verdict.h"
#include "chaos/load/final_read.h"
#include "cluster/client/testing/fake_server.h"

namespace hedgerow::chaos {
namespace {

using client::FakeServer;
using client::FakeStore;
using testing::Each;
using testing::Field;

constexpr uint64_t kMs = 1'000'000;

uint64_t Count(const std::vector<Record>& records, Ending ending) {
  return static_cast<uint64_t>(
      std::count_if(records.begin(), records.end(), [&](const Record& record) { return record.ending == ending; }));
}

class HkvLoadTest : public testing::Test {
 protected:
  // A server of the shared store; `faults` as FakeServer's.
  void AddServer(FakeServer::Faults faults = {}) {
    auto server = FakeServer::Start(store_, std::move(faults));
    ASSERT_TRUE(server.ok()) << server.status();
    addresses_.push_back((*server)->address());
    options_.servers.push_back((*server)->address());
    servers_.push_back(*std::move(server));
  }

  // 100 operations of two clients or more, however long they take.
  void Run() {
    options_.interval_ns = 4 * kMs;
    options_.run_max_ns = 20'000 * kMs;
    options_.sessions = 2;
    auto load = HkvLoad::Make(options_);
    ASSERT_TRUE(load.ok()) << load.status();
    ASSERT_TRUE(load->Open().ok());
    std::atomic<bool> enough = false;
    load->Run(enough, [&](const LoadTick& tick) {
      ticks_.push_back(tick);
      enough = tick.sent >= 100;
    });
    records_ = load->records();
    counters_ = load->counters();
    EXPECT_GE(records_.size(), 100u);
    EXPECT_EQ(Count(records_, Ending::kPending), 0u);
    EXPECT_EQ(counters_.sent, records_.size());
  }

  Verdict JudgeIt() {
    const auto final_reads = ReadFinalState({addresses_.back()}, ReadsOfAllKeys(records_), absl::Seconds(10));
    EXPECT_TRUE(final_reads.ok()) << final_reads.status();
    return Judge(records_, *final_reads).value();
  }

  std::shared_ptr<FakeStore> store_ = std::make_shared<FakeStore>();
  std::vector<std::unique_ptr<FakeServer>> servers_;
  std::vector<std::string> addresses_;
  LoadOptions options_;
  std::vector<Record> records_;
  LoadCounters counters_;
  std::vector<LoadTick> ticks_;
};

TEST_F(HkvLoadTest, EveryOperationIsAnsweredAndTheHistoryHolds) {
  AddServer();
  Run();
  EXPECT_EQ(counters_.ok, records_.size());
  EXPECT_EQ(counters_.duplicates, 0u);
  EXPECT_THAT(records_, Each(Field(&Record::attempts, 1u)));
  const Verdict verdict = JudgeIt();
  EXPECT_TRUE(verdict.linearizable) << ToJson(verdict);
  EXPECT_EQ(verdict.answered, records_.size());
}

TEST_F(HkvLoadTest, WhatIsLostIsGivenUpAndNeverSentAgain) {
  options_.timeout_ns = 100 * kMs;
  AddServer([n = 0](const wire::HkvRequest& request) mutable {
    return FakeServer::Treatment{.lost = request.kind != wire::HkvKind::kOpen && ++n % 5 == 0};
  });
  Run();
  EXPECT_GT(counters_.timed_out, 0u);
  EXPECT_EQ(counters_.ok + counters_.timed_out, records_.size());
  EXPECT_EQ(servers_[0]->requests(), records_.size() + 4) << "one for each operation and each session";
}

// Counted anew from the records, as a checker would: writes that were given up stay.
uint32_t MostOutstandingOnAKey(const std::vector<Record>& records) {
  uint32_t most = 0;
  for (const Record& at : records) {
    uint32_t together = 0;
    for (const Record& other : records) {
      const bool same = IsCounter(other.kind) == IsCounter(at.kind) && other.key == at.key;
      const bool tells = other.ending == Ending::kOk || IsWrite(other.kind);
      const bool over = other.ending == Ending::kOk && other.ended_ns <= at.sent_ns;
      together += same && tells && other.sent_ns <= at.sent_ns && !over;
    }
    most = std::max(most, together);
  }
  return most;
}

TEST_F(HkvLoadTest, NoKeyHasMoreOutstandingThanACheckerCanTry) {
  options_.timeout_ns = 100 * kMs;
  options_.mix.counters = options_.mix.registers = 1;
  AddServer([n = 0](const wire::HkvRequest& request) mutable {
    return FakeServer::Treatment{.lost = request.kind != wire::HkvKind::kOpen && ++n % 2 == 0};
  });
  Run();
  EXPECT_GT(Count(records_, Ending::kTimedOut), 2 * KeyRooms::kOutstandingMax) << "else one key would have done";
  EXPECT_EQ(MostOutstandingOnAKey(records_), KeyRooms::kOutstandingMax);
  std::set<uint32_t> keys;
  for (const Record& record : ReadsOfAllKeys(records_)) keys.insert(record.key);
  EXPECT_GT(keys.size(), 2u);
}

// The time-out leaves a tick, due every 250 ms, well over a second on a busy machine.
TEST_F(HkvLoadTest, ATickShowsTheLongestWaitAndTheLastOneTheTotals) {
  options_.timeout_ns = 2'000 * kMs;
  AddServer([n = 0](const wire::HkvRequest& request) mutable {
    return FakeServer::Treatment{.lost = request.kind != wire::HkvKind::kOpen && ++n == 1};
  });
  Run();
  ASSERT_GE(ticks_.size(), 2u);
  EXPECT_TRUE(std::any_of(ticks_.begin(), ticks_.end() - 1, [](const LoadTick& tick) {
    return tick.longest_ns >= 150 * kMs && tick.failed == 0 && tick.ok > 0;
  })) << "the lost request still waits";
  EXPECT_EQ(ticks_.back().failed, 1u);
  EXPECT_EQ(ticks_.back().sent, records_.size());
}

TEST_F(HkvLoadTest, DuplicateAnswersAreCounted) {
  AddServer([](const wire::HkvRequest&) { return FakeServer::Treatment{.answers = 2}; });
  Run();
  EXPECT_EQ(counters_.ok, records_.size());
  EXPECT_EQ(counters_.duplicates, records_.size());
  EXPECT_EQ(counters_.losers, 0u);
}

TEST_F(HkvLoadTest, ANackEndsARequestOfAClientThatKnowsOneAddress) {
  AddServer([](const wire::HkvRequest& request) {
    FakeServer::Treatment treatment;
    if (request.kind == wire::HkvKind::kGet) {
      treatment.instead = wire::HkvAnswer{.kind = request.kind,
                                          .status = wire::HkvStatus::kNotLeader,
                                          .hint = 2,
                                          .client_id = request.client_id,
                                          .seq = request.seq};
    }
    return treatment;
  });
  Run();
  EXPECT_EQ(counters_.errors["not_leader"], Count(records_, Ending::kError));
  EXPECT_GT(counters_.errors["not_leader"], 0u);
}

TEST_F(HkvLoadTest, TheApplicationHedgesAndWritesAreDoneOnce) {
  options_.application = true;
  options_.hedging.delay_ns = 10 * kMs;
  // The first server does everything and says nothing but to OPEN; the second knows the answer.
  AddServer([](const wire::HkvRequest& request) {
    return FakeServer::Treatment{.answers = request.kind == wire::HkvKind::kOpen ? 1 : 0};
  });
  AddServer();
  Run();
  EXPECT_EQ(counters_.ok, records_.size());
  EXPECT_GT(counters_.hedges, 0u);
  const Verdict verdict = JudgeIt();
  EXPECT_TRUE(verdict.linearizable) << ToJson(verdict);
  EXPECT_EQ(verdict.double_applied, 0u);
  // A silent leader is left after the first hedges, not hedged for ever.
  EXPECT_LT(counters_.hedges, records_.size() / 2);
}

TEST_F(HkvLoadTest, TheApplicationFollowsTheLeaderThatIsNamed) {
  options_.application = true;
  options_.hedging.delay_ns = 2000 * kMs;
  AddServer([](const wire::HkvRequest& request) {
    FakeServer::Treatment treatment;
    treatment.instead = wire::HkvAnswer{.kind = request.kind,
                                        .status = wire::HkvStatus::kNotLeader,
                                        .hint = 2,
                                        .client_id = request.client_id,
                                        .seq = request.seq};
    return treatment;
  });
  AddServer();
  Run();
  EXPECT_EQ(counters_.ok, records_.size());
  EXPECT_GT(counters_.followed, 0u);
  EXPECT_EQ(counters_.hedges, 0u);
}

TEST_F(HkvLoadTest, TheApplicationAsksAgainUntilItsDeadlineWhenAllRefuse) {
  options_.application = true;
  options_.hedging = {.delay_ns = 5 * kMs, .attempts_max = 2, .again_ns = 5 * kMs};
  const auto refusal = [](const wire::HkvRequest& request) {
    return wire::HkvAnswer{.kind = request.kind,
                           .status = wire::HkvStatus::kNotLeader,
                           .client_id = request.client_id,
                           .seq = request.seq};
  };
  // Each request is refused six times.
  AddServer([&, n = std::map<uint64_t, int>()](const wire::HkvRequest& request) mutable {
    FakeServer::Treatment treatment;
    if (request.kind != wire::HkvKind::kOpen && ++n[request.client_id << 32 | request.seq] <= 6) {
      treatment.instead = refusal(request);
    }
    return treatment;
  });
  Run();
  EXPECT_EQ(counters_.ok, records_.size());
  const auto willing = FakeServer::Start(store_).value();
  addresses_ = {willing->address()};
  EXPECT_TRUE(JudgeIt().linearizable);
}

TEST_F(HkvLoadTest, ItEndsEarlyWhenTold) {
  AddServer();
  options_.run_max_ns = 60'000 * kMs;
  auto load = HkvLoad::Make(options_);
  ASSERT_TRUE(load.ok()) << load.status();
  ASSERT_TRUE(load->Open().ok());
  std::atomic<bool> stop = false;
  std::thread stopper([&] {
    for (int i = 0; i < 1'000 && servers_[0]->requests() < 20; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    stop = true;
  });
  load->Run(stop);
  stopper.join();
  EXPECT_GT(load->records().size(), 0u);
  EXPECT_EQ(Count(load->records(), Ending::kPending), 0u);
}

TEST_F(HkvLoadTest, WithoutAServerThereIsNoSession) {
  options_.servers = {"127.0.0.1:9"};
  options_.clients = 0;
  EXPECT_FALSE(HkvLoad::Make(options_).ok());
  options_.clients = 1;
  options_.servers.push_back(options_.servers[0]);
  EXPECT_FALSE(HkvLoad::Make(options_).ok()) << "two addresses for a client that knows one";
}

}  // namespace
}  // namespace hedgerow::chaos
