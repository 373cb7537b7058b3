// SPDX-License-Identifier: Apache-2.0
//
// The load engine against small servers on the loopback interface: what it counts and what it measures is true.
#include "bench/load/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <set>
#include <thread>

namespace hedgerow::bench {
namespace {

// Calls `handle` for every datagram until destroyed.
class TestServer {
 public:
  using Handler = std::function<void(UdpSocket&, std::span<uint8_t>, const Address&)>;

  explicit TestServer(Handler handle)
      : socket_(UdpSocket::Listen(ParseAddress("127.0.0.1:0").value()).value()), thread_([this, handle] {
          Batch batch;
          const std::array<int, 1> fds{socket_.fd()};
          std::array<bool, 1> readable;
          while (!stop_) {
            WaitReadable(fds, MonotonicNs() + 5'000'000, readable);
            socket_.Receive(batch);
            for (size_t i = 0; i < batch.size(); ++i) handle(socket_, batch.Bytes(i), batch.Peer(i));
          }
        }) {}
  ~TestServer() {
    stop_ = true;
    thread_.join();
  }

  Address address() const { return socket_.LocalAddress().value(); }

 private:
  std::atomic<bool> stop_{false};
  UdpSocket socket_;
  std::thread thread_;
};

void Echo(UdpSocket& socket, std::span<uint8_t> datagram, const Address& peer) { socket.SendOne(datagram, peer); }
void Silence(UdpSocket&, std::span<uint8_t>, const Address&) {}

LoadResult RunRaw(const LoadOptions& options) {
  auto workload = MakeRawWorkload(0, 4).value();
  return LoadEngine::Make(options, workload.get(), nullptr).value().Run();
}

TEST(LoadEngine, ClosedLoopMeasuresEveryRequestAfterTheWarmUp) {
  TestServer server(Echo);
  const LoadResult result = RunRaw({.target = server.address(), .warmup = 10, .requests = 100, .keep_records = true});
  EXPECT_EQ(result.counters.answered, 100u);
  EXPECT_EQ(result.latency.count(), 100u);
  EXPECT_EQ(result.records.size(), 100u);
  EXPECT_EQ(result.records.front().seq, 10u);
  EXPECT_EQ(result.counters.duplicates + result.counters.late + result.counters.stray + result.counters.wrong, 0u);
  EXPECT_GT(result.cpu_user_ns + result.cpu_system_ns, 0);
}

TEST(LoadEngine, AClosedLoopKeepsAsManyRequestsInFlightAsItIsTold) {
  // Answers nothing before it has eight, and then all at once: with fewer in flight every request would be
  // lost.
  auto held = std::make_shared<std::vector<std::pair<std::vector<uint8_t>, Address>>>();
  TestServer server([held](UdpSocket& socket, std::span<uint8_t> datagram, const Address& peer) {
    held->emplace_back(std::vector<uint8_t>(datagram.begin(), datagram.end()), peer);
    if (held->size() < 8) return;
    for (auto& [bytes, to] : *held) socket.SendOne(bytes, to);
    held->clear();
  });
  const LoadResult result = RunRaw({.target = server.address(), .requests = 80, .in_flight = 8});
  EXPECT_EQ(result.counters.answered, 80u);
  EXPECT_EQ(result.counters.timeouts, 0u);
}

TEST(LoadEngine, OpenLoopKeepsItsRateAndUsesAllSockets) {
  std::set<in_port_t> ports;
  TestServer server([&ports](UdpSocket& socket, std::span<uint8_t> datagram, const Address& peer) {
    ports.insert(reinterpret_cast<const sockaddr_in&>(peer.storage).sin_port);
    Echo(socket, datagram, peer);
  });
  const LoadResult result = RunRaw({.loop = LoadOptions::Loop::kOpen,
                                    .target = server.address(),
                                    .requests = 1'000,
                                    .rate_per_second = 5'000,
                                    .flows = 4});
  EXPECT_EQ(result.counters.answered, 1'000u);
  EXPECT_EQ(ports.size(), 4u);
  EXPECT_GT(result.wall_ns, 150'000'000);
}

TEST(LoadEngine, RequestsLeaveFromTheAddressThatItIsTold) {
  const Address own = UdpSocket::Listen(*ParseAddress("127.0.0.1:0")).value().LocalAddress().value();
  std::atomic<int> from_there = 0;
  TestServer server([&](UdpSocket& socket, std::span<uint8_t> datagram, const Address& peer) {
    from_there += peer.SameAs(own);
    Echo(socket, datagram, peer);
  });
  const LoadResult result = RunRaw({.loop = LoadOptions::Loop::kOpen,
                                    .target = server.address(),
                                    .requests = 20,
                                    .rate_per_second = 1'000,
                                    .from = own,
                                    .poll_ahead_ns = 50'000});
  EXPECT_EQ(result.counters.answered, 20u);
  EXPECT_EQ(from_there, 20);
}

TEST(LoadEngine, SilentServerLosesEveryRequestAtItsTimeout) {
  TestServer server(Silence);
  const LoadResult result = RunRaw({.loop = LoadOptions::Loop::kOpen,
                                    .target = server.address(),
                                    .requests = 50,
                                    .rate_per_second = 1'000,
                                    .timeout_ns = 100'000'000});
  EXPECT_EQ(result.counters.answered, 0u);
  EXPECT_EQ(result.counters.timeouts, 50u);
  EXPECT_EQ(result.latency.count(), 50u);
  EXPECT_GE(result.latency.min(), 100'000'000u);
}

TEST(LoadEngine, OpenLoopLatencyCountsFromTheIntendedTime) {
  // The server answers nothing for the first 200 ms. A generator that waited would see one slow request; here
  // the requests that were due meanwhile all show their share of the stall.
  const int64_t until_ns = MonotonicNs() + 200'000'000;
  TestServer server([until_ns](UdpSocket& socket, std::span<uint8_t> datagram, const Address& peer) {
    while (MonotonicNs() < until_ns) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    Echo(socket, datagram, peer);
  });
  const LoadResult result =
      RunRaw({.loop = LoadOptions::Loop::kOpen, .target = server.address(), .requests = 300, .rate_per_second = 1'000});
  EXPECT_EQ(result.counters.answered, 300u);
  EXPECT_GT(result.latency.Quantile(0.5), 20'000'000u);
}

TEST(LoadEngine, HedgeGoesToTheOtherReplicaAfterTheDelayAndTheFirstAnswerWins) {
  TestServer stalled(Silence);
  TestServer standby(Echo);
  const LoadResult result = RunRaw({.target = stalled.address(),
                                    .others = {standby.address()},
                                    .hedges = true,
                                    .hedge_delay_ns = 5'000'000,
                                    .requests = 20,
                                    .keep_records = true});
  EXPECT_EQ(result.counters.answered, 20u);
  EXPECT_EQ(result.counters.hedges, 20u);
  EXPECT_EQ(result.fire_error.count(), 20u);
  EXPECT_GE(result.latency.min(), 5'000'000u);
  for (const RequestRecord& record : result.records) {
    EXPECT_EQ(record.winner, 1);
    EXPECT_GE(record.fire_error_ns, 0);
  }
}

TEST(LoadEngine, QuickAnswersAreNotHedged) {
  TestServer server(Echo);
  TestServer standby(Echo);
  const LoadResult result = RunRaw({.target = server.address(),
                                    .others = {standby.address()},
                                    .hedges = true,
                                    .hedge_delay_ns = 500'000'000,
                                    .requests = 50});
  EXPECT_EQ(result.counters.answered, 50u);
  EXPECT_EQ(result.counters.hedges, 0u);
}

TEST(LoadEngine, DuplicatesWrongAndStrayDatagramsAreCountedAndDoNotAnswer) {
  TestServer server([](UdpSocket& socket, std::span<uint8_t> datagram, const Address& peer) {
    std::vector<uint8_t> wrong(datagram.begin(), datagram.end());
    wrong.push_back(0);
    socket.SendOne(wrong, peer);
    const std::array<uint8_t, 2> stray{1, 2};
    socket.SendOne(stray, peer);
    Echo(socket, datagram, peer);
    Echo(socket, datagram, peer);
    socket.SendOne(wrong, peer);
  });
  const LoadResult result = RunRaw({.target = server.address(), .requests = 30, .linger_ns = 50'000'000});
  EXPECT_EQ(result.counters.answered, 30u);
  EXPECT_EQ(result.counters.duplicates, 30u);
  EXPECT_EQ(result.counters.wrong, 60u);
  EXPECT_EQ(result.counters.wrong_waiting, 30u) << "what comes after the answer harms nobody";
  EXPECT_EQ(result.counters.stray, 30u);
}

TEST(LoadEngine, StrayDatagramsDoNotPostponeTheHedge) {
  // The primary sends a stray datagram every millisecond instead of an answer.
  TestServer noisy([](UdpSocket& socket, std::span<uint8_t>, const Address& peer) {
    const std::array<uint8_t, 2> stray{1, 2};
    for (int i = 0; i < 15; ++i) {
      socket.SendOne(stray, peer);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  TestServer standby(Echo);
  const LoadResult result = RunRaw({.target = noisy.address(),
                                    .others = {standby.address()},
                                    .hedges = true,
                                    .hedge_delay_ns = 10'000'000,
                                    .requests = 10});
  EXPECT_EQ(result.counters.answered, 10u);
  EXPECT_EQ(result.counters.hedges, 10u);
  // A restarted timer would make each of them wait for 25 ms. A busy machine makes some of them late.
  EXPECT_LT(result.latency.min(), 20'000'000u);
}

// A second copy at once to a replica that answers has the answer of a request whose first copy is lost.
TEST(LoadEngine, TwoCopiesAtOnceHaveTheAnswerOfTheBetterReplica) {
  TestServer silent(Silence);
  std::atomic<int> echoed = 0;
  TestServer quick([&echoed](UdpSocket& socket, std::span<uint8_t> datagram, const Address& peer) {
    ++echoed;
    Echo(socket, datagram, peer);
  });
  const LoadResult result = RunRaw({.target = silent.address(),
                                    .others = {quick.address()},
                                    .spread = true,
                                    .copies = {.at_once = CopyAtOnce::kAlways},
                                    .requests = 50});
  EXPECT_EQ(result.counters.answered, 50u);
  EXPECT_EQ(result.counters.copies, 50u);
  EXPECT_EQ(result.counters.hedges, 0u);
  EXPECT_EQ(echoed, 50);
}

TEST(LoadEngine, CopiesAtOnceEndWhereAReplicaIsNotIdle) {
  TestServer silent(Silence);  // What is sent there stays in flight.
  TestServer quick(Echo);
  const LoadResult result = RunRaw({.target = silent.address(),
                                    .others = {quick.address()},
                                    .spread = true,
                                    .copies = {.at_once = CopyAtOnce::kIdle, .idle_below = 0.3, .workers = 10},
                                    .hedges = true,
                                    .hedge_delay_ns = 2'000'000,
                                    .requests = 50});
  EXPECT_EQ(result.counters.answered, 50u);
  EXPECT_EQ(result.counters.copies, 3u) << "then 3 of its 10 workers are taken";
}

TEST(LoadEngine, HedgesEndWhereTheirBudgetDoes) {
  TestServer silent(Silence);
  TestServer standby(Echo);
  const LoadResult result = RunRaw({.loop = LoadOptions::Loop::kOpen,
                                    .target = silent.address(),
                                    .others = {standby.address()},
                                    .hedges = true,
                                    .hedge_delay_ns = 1'000'000,
                                    .hedge_budget = 0.125,
                                    .requests = 80,
                                    .rate_per_second = 1'000,
                                    .timeout_ns = 50'000'000});
  EXPECT_EQ(result.counters.hedges, 10u);
  EXPECT_EQ(result.counters.answered, 10u);
}

TEST(LoadEngine, RequestsSpreadOverAllReplicas) {
  std::array<std::atomic<int>, 3> seen{};
  auto counting = [&seen](size_t place) {
    return [&seen, place](UdpSocket& socket, std::span<uint8_t> datagram, const Address& peer) {
      ++seen[place];
      Echo(socket, datagram, peer);
    };
  };
  TestServer a(counting(0)), b(counting(1)), c(counting(2));
  const LoadResult result =
      RunRaw({.target = a.address(), .others = {b.address(), c.address()}, .spread = true, .requests = 90});
  EXPECT_EQ(result.counters.answered, 90u);
  for (const auto& count : seen) EXPECT_EQ(count, 30);
}

TEST(LoadEngine, RefusesWhatCannotWork) {
  auto workload = MakeRawWorkload(0, 4).value();
  const Address target = ParseAddress("127.0.0.1:9").value();
  EXPECT_FALSE(LoadEngine::Make({.target = target, .hedges = true, .requests = 1}, workload.get(), nullptr).ok());
  EXPECT_FALSE(
      LoadEngine::Make(
          {.target = target, .others = {target}, .copies = {.at_once = CopyAtOnce::kIdle, .workers = 0}, .requests = 1},
          workload.get(), nullptr)
          .ok());
  EXPECT_FALSE(LoadEngine::Make({.target = target, .requests = 0}, workload.get(), nullptr).ok());
  EXPECT_FALSE(LoadEngine::Make({.target = target, .requests = 1, .flows = 65}, workload.get(), nullptr).ok());
  auto dns = MakeDnsWorkload({"a.test"}, 1).value();
  const absl::Status too_many =
      LoadEngine::Make({.loop = LoadOptions::Loop::kOpen, .target = target, .requests = 1, .rate_per_second = 100'000},
                       dns.get(), nullptr)
          .status();
  EXPECT_THAT(std::string(too_many.message()), ::testing::HasSubstr("more sockets"));
}

TEST(Address, ParsesBothFamiliesAndRefusesTheRest) {
  EXPECT_TRUE(ParseAddress("10.0.0.1:53").ok());
  EXPECT_TRUE(ParseAddress("[fd00::1]:53").ok());
  for (const char* bad : {"", "10.0.0.1", "10.0.0.1:99999", "fd00::1:53", "[fd00::1]", "name:53"}) {
    EXPECT_FALSE(ParseAddress(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace hedgerow::bench
