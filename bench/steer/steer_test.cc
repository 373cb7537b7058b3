// SPDX-License-Identifier: Apache-2.0
//
// Sources and a collector in one process, on loopback: every message is counted once, by its source, and lost messages
// are found.
#include <arpa/inet.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "gtest/gtest.h"
#include "bench/steer/collector.h"
#include "bench/steer/source.h"
#include "bench/steer/stream.h"
#include "bench/steer/visits.h"

namespace hedgerow::bench {
namespace {

constexpr uint32_t kSources = 16;

Address PortZero() { return *ParseAddress("127.0.0.1:0"); }

// UDP and TCP on one port that is free on both.
std::vector<Listening> Open(Address& address) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    auto tcp = OpenSockets({.address = PortZero(), .udp = false});
    if (!tcp.ok()) continue;
    address.bytes = sizeof address.storage;
    getsockname((*tcp)[0].fd, address.get(), &address.bytes);
    auto udp = OpenSockets({.address = address, .tcp = false});
    if (udp.ok()) return {(*udp)[0], (*tcp)[0]};
    close((*tcp)[0].fd);
  }
  return {};
}

class Steering : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("hr-steer-test-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    sockets_ = Open(address_);
    ASSERT_EQ(sockets_.size(), 2u);
  }
  void TearDown() override {
    Stop();
    for (const Listening& socket : sockets_) close(socket.fd);
    std::filesystem::remove_all(folder_);
  }
  void Start(CollectorOptions options) {
    auto counts = SourceCounts::Map(CountsFile(), kSources);
    ASSERT_TRUE(counts.ok()) << counts.status();
    collector_ = std::make_unique<Collector>(sockets_, *std::move(counts), options);
    stop_ = false;
    thread_ = std::thread([this] {
      while (!stop_) collector_->Turn(5);
    });
  }
  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  std::string CountsFile() const { return folder_ / "counts"; }
  std::vector<uint64_t> Counted() const {
    std::ifstream file(CountsFile(), std::ios::binary);
    std::vector<uint64_t> counts(2 * kSources);
    file.read(reinterpret_cast<char*>(counts.data()), static_cast<std::streamsize>(counts.size() * sizeof(uint64_t)));
    return counts;
  }
  // Waits for so many, at most five seconds.
  void AwaitCounted(uint64_t messages) const {
    const auto counted = [this] {
      const std::vector<uint64_t> counts = Counted();
      return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
    };
    for (int i = 0; i < 1000 && counted() < messages; ++i) usleep(5'000);
  }
  StreamOptions Options() const {
    return {.target = address_,
            .first_source = *ParseAddress("127.1.2.3:0"),
            .sources = kSources,
            .rate = 3200,
            .seconds = 0.2,
            .warm_up = 0};
  }
  StreamResult Run(const StreamOptions& options) {
    auto stream = SourceStream::Open(options, [](const char*) {});
    EXPECT_TRUE(stream.ok()) << stream.status();
    auto result = (*stream)->Run([] { return false; });
    EXPECT_TRUE(result.ok()) << result.status();
    return *std::move(result);
  }

  std::filesystem::path folder_;
  Address address_;
  std::vector<Listening> sockets_;
  std::unique_ptr<Collector> collector_;
  std::thread thread_;
  std::atomic<bool> stop_ = false;
};

uint64_t Lost(const StreamResult& result) {
  uint64_t lost = 0;
  for (const StreamRecord& record : result.records) lost += record.latency_us == StreamRecord::kNoAnswer;
  return lost;
}

TEST_F(Steering, EachMessageIsAnsweredAndCountedByItsSource) {
  Start({.slot = 7});
  const StreamResult result = Run(Options());
  Stop();
  ASSERT_EQ(result.records.size(), 640u);
  EXPECT_EQ(Lost(result), 0u);
  EXPECT_EQ(result.udp_latency_ns.count(), 320u);
  EXPECT_EQ(result.tcp_latency_ns.count(), 320u);
  for (const StreamRecord& record : result.records) EXPECT_EQ(record.slot, 7);
  for (const uint64_t count : Counted()) EXPECT_EQ(count, 20u);
  EXPECT_EQ(collector_->totals().accepted, kSources);
}

TEST_F(Steering, PeekingCountsTheSame) {
  Start({.slot = 1, .peek = true});
  const StreamResult result = Run(Options());
  Stop();
  EXPECT_EQ(Lost(result), 0u);
  EXPECT_EQ(result.duplicates, 0u);
  for (const uint64_t count : Counted()) EXPECT_EQ(count, 20u);
}

TEST_F(Steering, MessagesThatAskForNoAnswerAreCountedAllTheSame) {
  Start({});
  StreamOptions options = Options();
  options.answer_every = 4;
  const StreamResult result = Run(options);
  AwaitCounted(640);
  Stop();
  EXPECT_EQ(result.udp_latency_ns.count() + result.tcp_latency_ns.count(), 160u);
  EXPECT_EQ(collector_->totals().udp + collector_->totals().tcp, 640u);
}

TEST_F(Steering, AMessageWithoutAnAnswerIsLost) {
  StreamOptions options = Options();
  options.tcp = false;
  options.linger_ns = 1'000'000;
  const StreamResult result = Run(options);
  EXPECT_EQ(Lost(result), 640u);
}

TEST_F(Steering, AConnectionThatEndsIsOpenedAgainAndItsMessagesSentAgain) {
  Start({.slot = 1});
  StreamOptions options = Options();
  options.udp = false;
  options.seconds = 0.4;
  auto stream = SourceStream::Open(options, [](const char*) {});
  ASSERT_TRUE(stream.ok()) << stream.status();
  std::thread successor([this] {
    AwaitCounted(100);
    Stop();
    collector_.reset();  // closes its connections; the listener stays, as a supervisor's would
    usleep(50'000);
    Start({.slot = 1});
  });
  const auto result = (*stream)->Run([] { return false; });
  successor.join();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(Lost(*result), 0u);
  EXPECT_EQ(result->connections_lost, kSources);
  EXPECT_EQ(result->connect_failures, 0u);
}

TEST_F(Steering, VisitsAreAnsweredAndTheirFailuresCounted) {
  Start({});
  for (const bool tcp : {true, false}) {
    const auto result = Visit({.target = address_,
                               .first_source = *ParseAddress("127.1.2.3:0"),
                               .sources = kSources,
                               .tcp = tcp,
                               .visits = 200},
                              [] { return false; });
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->answered, 200u);
    EXPECT_EQ(result->failed(), 0u);
  }
  Stop();
  for (const Listening& socket : sockets_) close(socket.fd);
  sockets_.clear();
  const auto result =
      Visit({.target = address_, .first_source = *ParseAddress("127.1.2.3:0"), .sources = kSources, .visits = 20},
            [] { return false; });
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->refused, 20u);
}

TEST_F(Steering, WhatIsNoMessageIsCounted) {
  Start({});
  auto socket = ConnectFrom(*ParseAddress("127.0.0.1:0"), address_, false);
  ASSERT_TRUE(socket.ok());
  ASSERT_EQ(send(socket->get(), "hello", 5, 0), 5);
  for (int i = 0; i < 400 && collector_->totals().not_messages == 0; ++i) usleep(5'000);
  Stop();
  EXPECT_EQ(collector_->totals().not_messages, 1u);
}

TEST(SourceAddress, CountsInTheLastFourBytes) {
  EXPECT_TRUE(SourceAddress(*ParseAddress("10.78.0.255:9"), 1)->SameAs(*ParseAddress("10.78.1.0:0")));
  EXPECT_TRUE(SourceAddress(*ParseAddress("[fd78::1]:9"), 0xffff)->SameAs(*ParseAddress("[fd78::1:0]:0")));
  EXPECT_FALSE(SourceAddress(*ParseAddress("255.255.255.255:0"), 1).ok());
}

TEST(SteerMessage, AHeaderOfAnotherSizeOrKindIsNone) {
  SteerMessage message;
  message.bytes = sizeof message;
  std::array<uint8_t, sizeof message> bytes;
  std::memcpy(bytes.data(), &message, sizeof message);
  EXPECT_TRUE(ParseSteerMessage(bytes).has_value());
  EXPECT_FALSE(ParseSteerMessage(std::span(bytes).first(23)).has_value());
  bytes[12] = 23;  // shorter than its header
  EXPECT_FALSE(ParseSteerMessage(bytes).has_value());
}

}  // namespace
}  // namespace hedgerow::bench
