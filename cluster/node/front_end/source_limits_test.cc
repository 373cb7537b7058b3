// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/front_end/source_limits.h"

#include <array>
#include <string>

#include <gtest/gtest.h>

namespace hedgerow::node {
namespace {

constexpr uint64_t kSecond_ns = 1'000'000'000;

class SourceLimitsTest : public testing::Test {
 protected:
  static Datagram From(const std::string& address, size_t bytes = 100) {
    static const std::string payload(65'535, 'x');
    return {.from = NetAddress::Parse(address).value(), .to = {}, .bytes = std::string_view(payload).substr(0, bytes)};
  }
  static std::string Address(uint32_t number, uint16_t port = 5000) {
    return std::to_string(number >> 24) + "." + std::to_string(number >> 16 & 255) + "." +
           std::to_string(number >> 8 & 255) + "." + std::to_string(number & 255) + ":" + std::to_string(port);
  }
  int OpensOf(const std::string& address, int asked, uint64_t client = 0) {
    int opened = 0;
    for (int i = 0; i < asked; ++i) opened += limits_.MayOpen(From(address), client);
    return opened;
  }
  void At(uint64_t ns) { limits_.TurnBegins(ns); }

  // The same places each time: by chance two sources may share one.
  kv::ScopedHashSecret secret_{{.first = 1, .second = 0x9e3779b97f4a7c15}};
  SourcesConfig config_{.trusted = net::Networks({net::Network::Parse("10.1.0.0/16").value()}),
                        .answer_bytes_per_s = 1'000'000,
                        .opens_per_s = 10};
  SourceLimits limits_{config_};
};

TEST_F(SourceLimitsTest, AnAnswerHasThreeTimesTheRoomOfItsRequest) {
  EXPECT_EQ(limits_.AnswerRoom_bytes(From("10.0.0.1:5000", 72)), 300u);
  EXPECT_EQ(limits_.AnswerRoom_bytes(From("[2001:db8::1]:5000", 52)), 300u);
  for (size_t answer : {0, 1, 100, 1000, 1232}) {
    const NetAddress client = NetAddress::Parse("10.0.0.1:5000").value();
    const size_t needed = RequestFor_bytes(client, answer);
    EXPECT_GE(limits_.AnswerRoom_bytes(From("10.0.0.1:5000", needed)), OnTheWire_bytes(client, 1, answer));
    if (needed > 0)
      EXPECT_LT(limits_.AnswerRoom_bytes(From("10.0.0.1:5000", needed - 1)), OnTheWire_bytes(client, 1, answer));
  }
}

TEST_F(SourceLimitsTest, TrustedNetworksLoopbackAndThisHostHaveAnyRoom) {
  EXPECT_EQ(limits_.AnswerRoom_bytes(From("10.1.2.3:5000")), 0u);
  EXPECT_EQ(limits_.AnswerRoom_bytes(From("127.0.0.1:5000")), 0u);
  EXPECT_EQ(limits_.AnswerRoom_bytes(From("[::1]:5000")), 0u);
  Datagram own = From("10.0.0.9:5000");
  own.to = NetAddress::Parse("10.0.0.9:4801").value();
  EXPECT_EQ(limits_.AnswerRoom_bytes(own), 0u);
  own.to = NetAddress::Parse("10.0.0.8:4801").value();
  EXPECT_NE(limits_.AnswerRoom_bytes(own), 0u);
}

TEST_F(SourceLimitsTest, AnswersToOnePrefixHaveARateAndOthersKeepTheirs) {
  At(kSecond_ns);
  const NetAddress one = NetAddress::Parse("10.0.0.1:5000").value();
  const NetAddress neighbour = NetAddress::Parse("10.0.0.200:5000").value();
  const NetAddress other = NetAddress::Parse("10.0.1.1:5000").value();
  size_t bytes = 0;
  while (limits_.MaySend(one, 972, 3000)) bytes += 1000;
  EXPECT_NEAR(static_cast<double>(bytes), 250'000, 2000) << "a quarter of a second's";
  EXPECT_FALSE(limits_.MaySend(neighbour, 972, 3000));
  EXPECT_TRUE(limits_.MaySend(other, 972, 3000));
  EXPECT_TRUE(limits_.MaySend(one, 972, 0)) << "trusted";
  EXPECT_EQ(limits_.counters().bytes_over, 2u);
  At(2 * kSecond_ns);
  EXPECT_TRUE(limits_.MaySend(one, 972, 3000));
}

TEST_F(SourceLimitsTest, OneAddressThatOpensManySessionsLeavesItsNeighboursTheirs) {
  At(kSecond_ns);
  EXPECT_NEAR(OpensOf("10.0.0.1:5000", 1000), 80, 2);
  EXPECT_EQ(OpensOf("10.0.0.2:5000", 1), 1);
  EXPECT_EQ(OpensOf("10.0.1.1:5000", 1), 1);
  EXPECT_GT(limits_.counters().opens_over, 900u);
  At(2 * kSecond_ns);
  EXPECT_NEAR(OpensOf("10.0.0.1:5000", 1000), 10, 1);
}

TEST_F(SourceLimitsTest, WhatANamedClientHasProvedIsItsOwnWhateverComesUnderItsAddress) {
  At(kSecond_ns);
  EXPECT_NEAR(OpensOf("10.0.0.1:5000", 1000), 80, 2);
  EXPECT_NEAR(OpensOf("10.0.0.1:5000", 1000, 7), 80, 2);
  EXPECT_EQ(OpensOf("10.0.0.1:5000", 1, 8), 1) << "another client there";
  int opened = 0;
  for (uint32_t network = 1; network < 250; ++network) opened += OpensOf(Address(0x0a000001 + 256 * network), 20, 7);
  EXPECT_NEAR(opened, 640 - 80, 2) << "all addresses of one client share what a prefix has";
}

TEST_F(SourceLimitsTest, AnIpv6ClientIsItsNetworkOf64Bits) {
  At(kSecond_ns);
  EXPECT_NEAR(OpensOf("[2001:db8::1]:5000", 60) + OpensOf("[2001:db8::ffff:1]:5000", 60), 80, 2);
  EXPECT_EQ(OpensOf("[2001:db8:0:1::1]:5000", 1), 1);
}

TEST_F(SourceLimitsTest, AWholePrefixHasALimitAsWell) {
  At(kSecond_ns);
  int opened = 0;
  for (uint32_t host = 1; host < 250; ++host) opened += OpensOf(Address(0x0a000000 + host), 20);
  EXPECT_NEAR(opened, 640, 2);
  EXPECT_EQ(OpensOf("10.0.1.1:5000", 1), 1);
}

TEST_F(SourceLimitsTest, OneClientWithoutASessionLeavesOthersTheSecondHalfOfTheWindow) {
  constexpr kv::WindowLimits kWindow{.window_ns = 70 * kSecond_ns, .requests_max = 250'000};
  const auto writes_of = [&](const char* address, int count, uint64_t client = 0) {
    int taken = 0;
    for (int i = 0; i < count; ++i) taken += limits_.MayTakePlaceInWindow(From(address), client);
    return taken;
  };
  At(kSecond_ns);
  limits_.FollowWindow(124'999, kWindow, 3);
  EXPECT_EQ(writes_of("10.0.0.1:5000", 10'000), 10'000) << "there is room for all";
  limits_.FollowWindow(125'000, kWindow, 3);
  EXPECT_NEAR(writes_of("10.0.0.1:5000", 10'000), 8 * 37, 3);
  EXPECT_GT(limits_.counters().window_over, 9'000u);
  EXPECT_EQ(writes_of("10.0.0.2:5000", 1), 1);
  EXPECT_EQ(writes_of("10.0.1.1:5000", 1), 1);
  At(2 * kSecond_ns);
  EXPECT_NEAR(writes_of("10.0.0.1:5000", 1'000), 37, 2);
  EXPECT_EQ(OpensOf("10.0.0.1:5000", 1), 1) << "OPENs are counted apart";
  EXPECT_NEAR(writes_of("10.0.0.1:5000", 1'000, 7), 8 * 37, 3) << "a named client has its own part";
  EXPECT_EQ(writes_of("10.0.0.1:5000", 1, 8), 1);
}

TEST_F(SourceLimitsTest, OneClientWhoseReadsWaitLeavesOthersTheSecondHalf) {
  kv::WaitingReads reads;
  const auto reads_of = [&](const char* address, int count, bool wait = true, uint64_t client = 0) {
    const std::array<uint16_t, 2> places = limits_.PlacesOf(NetAddress::Parse(address).value(), client);
    int taken = 0;
    for (int i = 0; i < count; ++i) {
      if (!limits_.MayRead(reads, 4096, places)) continue;
      ++taken;
      if (!wait) continue;
      ++reads.all;
      for (const uint16_t place : places) ++reads.at[place];
    }
    return taken;
  };
  At(kSecond_ns);
  EXPECT_EQ(reads_of("10.0.0.1:5000", 10'000), 2'048) << "half";
  At(61 * kSecond_ns);
  EXPECT_EQ(reads_of("10.0.0.1:5000", 1), 0) << "they wait still";
  EXPECT_EQ(limits_.counters().reads_over, 10'000u - 2'048 + 1);
  EXPECT_EQ(reads_of("10.0.1.1:5000", 10'000, false), 10'000) << "what is answered at once takes nothing";
  EXPECT_EQ(reads_of("10.0.1.1:5000", 10'000), 128);
  EXPECT_EQ(reads_of("10.0.0.1:5000", 10'000, true, 7), 128) << "a named client has its own part";
  int of_prefix = 0;
  for (const char* address : {"10.0.2.1:1", "10.0.2.2:1", "10.0.2.3:1", "10.0.2.4:1", "10.0.2.5:1", "10.0.2.6:1",
                              "10.0.2.7:1", "10.0.2.8:1", "10.0.2.9:1", "10.0.2.10:1"})
    of_prefix += reads_of(address, 1'000);
  EXPECT_EQ(of_prefix, 8 * 128);
  EXPECT_EQ(reads_of("127.0.0.1:5000", 1'000), 128);
  EXPECT_EQ(reads_of("127.0.0.1:5001", 1'000), 128) << "a local user's sockets are many clients";
}

TEST_F(SourceLimitsTest, AFullTableSharesOnePlaceAmongThoseThatHaveNone) {
  At(kSecond_ns);
  for (uint32_t i = 0; i < 2 * kSourcesMax; ++i) limits_.MayOpen(From(Address(0x0b000000 + 256 * i)), 0);
  EXPECT_GT(limits_.counters().table_full, 0u);
  EXPECT_EQ(OpensOf("12.0.0.1:5000", 1), 0) << "shares with those that flood";
  EXPECT_EQ(OpensOf(Address(0x0b000000), 1), 1) << "has its own place";
  At(20 * kSecond_ns);
  for (uint32_t i = 0; i < 2 * kSourcesMax; ++i) limits_.MayOpen(From("13.0.0.1:5000"), 0);
  EXPECT_EQ(OpensOf("12.0.0.1:5000", 1), 1) << "the others are forgotten";
}

TEST(ServerPorts, AreThoseThatAnswer) {
  for (const uint16_t port : {7, 19, 53, 123, 389, 1900, 4801, 5353, 11211}) EXPECT_TRUE(IsServerPort(port)) << port;
  for (const uint16_t port : {1024, 20'000, 49'152, 65'535}) EXPECT_FALSE(IsServerPort(port)) << port;
}

}  // namespace
}  // namespace hedgerow::node
