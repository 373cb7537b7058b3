// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/front_end/paced_answers.h"

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/memcached/answer.h"
#include "cluster/node/testing/socket_testing.h"
#include "cluster/node/net/udp_socket.h"

namespace hedgerow::node {
namespace {

using testing::SizeIs;

constexpr uint64_t kMs = 1'000'000;

NetAddress Address(uint16_t port) {
  NetAddress address = *NetAddress::Parse("10.0.0.1:1");
  address.port = port;
  return address;
}

class PacedAnswersTest : public testing::Test {
 protected:
  bool Answer(uint64_t now_ns, uint16_t client, size_t datagrams, size_t bytes = 1400) {
    return paced_.Answer(now_ns, {}, Address(client), std::vector<std::string>(datagrams, std::string(bytes, 'x')),
                         send_);
  }
  // What has left since the last call.
  std::vector<uint16_t> Left() { return std::exchange(left_, {}); }

  PacedAnswers paced_;
  std::vector<uint16_t> left_;  // clients
  const PacedAnswers::Send send_ = [this](const NetAddress&, const NetAddress& to, const std::string&) {
    left_.push_back(to.port);
  };
};

TEST_F(PacedAnswersTest, WhatFitsAClientsBufferLeavesAtOnce) {
  EXPECT_TRUE(Answer(0, 1, PacedAnswers::kAtOnce));
  EXPECT_TRUE(Answer(0, 1, PacedAnswers::kAtOnce));
  EXPECT_THAT(Left(), SizeIs(2 * PacedAnswers::kAtOnce));
  EXPECT_EQ(paced_.next_ns(), UINT64_MAX);
  EXPECT_EQ(paced_.counters().paced, 0u);
}

TEST_F(PacedAnswersTest, BesideAQueueOnlyASliceLeavesAtOnce) {
  EXPECT_TRUE(Answer(0, 1, PacedAnswers::kAtOnce + 10));
  Left();
  EXPECT_TRUE(Answer(0, 1, PacedAnswers::kSlice));
  EXPECT_THAT(Left(), SizeIs(PacedAnswers::kSlice));
  EXPECT_TRUE(Answer(0, 1, PacedAnswers::kSlice + 1));
  EXPECT_THAT(Left(), SizeIs(0)) << "it waits behind what is queued";
}

TEST_F(PacedAnswersTest, TheRestLeavesInSlices) {
  EXPECT_TRUE(Answer(0, 1, PacedAnswers::kAtOnce + 10));
  EXPECT_THAT(Left(), SizeIs(PacedAnswers::kAtOnce));
  EXPECT_EQ(paced_.next_ns(), kMs);
  paced_.SendDue(kMs - 1, send_);
  EXPECT_THAT(Left(), SizeIs(0));
  paced_.SendDue(kMs, send_);
  EXPECT_THAT(Left(), SizeIs(PacedAnswers::kSlice));
  EXPECT_EQ(paced_.next_ns(), 2 * kMs);
  paced_.SendDue(2 * kMs, send_);
  EXPECT_THAT(Left(), SizeIs(2));
  EXPECT_EQ(paced_.next_ns(), UINT64_MAX);
  EXPECT_EQ(paced_.queued_bytes(), 0u);
}

TEST_F(PacedAnswersTest, ALateLoopDoesNotCatchUp) {
  EXPECT_TRUE(Answer(0, 1, PacedAnswers::kAtOnce + 100));
  Left();
  paced_.SendDue(50 * kMs, send_);
  EXPECT_THAT(Left(), SizeIs(PacedAnswers::kSlice));
  EXPECT_EQ(paced_.next_ns(), 51 * kMs);
}

TEST_F(PacedAnswersTest, ASecondLongAnswerWaitsForTheFirst) {
  EXPECT_TRUE(Answer(0, 1, PacedAnswers::kAtOnce + 4));
  Left();
  EXPECT_TRUE(Answer(0, 1, PacedAnswers::kAtOnce + 4));
  EXPECT_TRUE(Answer(0, 2, PacedAnswers::kAtOnce + 4));
  EXPECT_THAT(Left(), SizeIs(PacedAnswers::kAtOnce)) << "the other client's";
  paced_.SendDue(kMs, send_);
  EXPECT_EQ(Left(), (std::vector<uint16_t>{1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2}));
}

TEST_F(PacedAnswersTest, AClientsQueueIsBounded) {
  const size_t datagrams = PacedAnswers::kClientMax_bytes / 1400 / 2;
  EXPECT_TRUE(Answer(0, 1, datagrams));
  EXPECT_TRUE(Answer(0, 1, datagrams));
  Left();
  EXPECT_FALSE(Answer(0, 1, datagrams));
  EXPECT_THAT(Left(), SizeIs(0)) << "none of it is sent";
  EXPECT_LE(paced_.queued_bytes(), PacedAnswers::kClientMax_bytes);
  EXPECT_EQ(paced_.counters().refused, 1u);
  EXPECT_TRUE(Answer(0, 2, datagrams)) << "another client has a queue of its own";
}

TEST_F(PacedAnswersTest, AllQueuesTogetherAreBounded) {
  const size_t datagrams = PacedAnswers::kClientMax_bytes / 1400;
  uint16_t client = 1;
  while (Answer(0, client, datagrams)) ++client;
  EXPECT_EQ(client, PacedAnswers::kMax_bytes / PacedAnswers::kClientMax_bytes + 1);
  EXPECT_LE(paced_.queued_bytes(), PacedAnswers::kMax_bytes);
  EXPECT_EQ(paced_.counters().refused, 1u);
}

TEST_F(PacedAnswersTest, ATurnSendsABoundedNumberAndNoClientIsPassedOverTwice) {
  const size_t clients = 2 * PacedAnswers::kTurnMax / PacedAnswers::kSlice;
  for (uint16_t client = 1; client <= clients; ++client) EXPECT_TRUE(Answer(0, client, PacedAnswers::kAtOnce + 8));
  Left();
  paced_.SendDue(kMs, send_);
  std::vector<uint16_t> left = Left();
  EXPECT_THAT(left, SizeIs(PacedAnswers::kTurnMax));
  EXPECT_LE(paced_.next_ns(), kMs) << "the loop turns again at once";
  paced_.SendDue(kMs, send_);
  for (const uint16_t client : Left()) left.push_back(client);
  EXPECT_THAT(std::set<uint16_t>(left.begin(), left.end()), SizeIs(clients));
}

// The kernel's own buffer, and time that the test counts: each millisecond a slice leaves, and the client takes what is
// there, or does not for 5 ms.
TEST(PacedAnswersSocketTest, AClientWithADefaultBufferThatReadsSlowlyGetsAMegabyte) {
  const int client = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  ASSERT_GE(client, 0);
  int buffer =
      212'992;  // what net.core.rmem_default is where nobody has changed it; the kernel doubles what it is told
  buffer /= 2;
  ASSERT_EQ(setsockopt(client, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer)), 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sockaddr_storage bound{};
  socklen_t length = sizeof(bound);
  ASSERT_EQ(bind(client, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(getsockname(client, reinterpret_cast<sockaddr*>(&bound), &length), 0);
  const NetAddress to = NetAddress::FromSockaddr(bound);

  const std::unique_ptr<UdpSocket> server = AnySocket(4 << 20, 2048);
  size_t sent = 0;
  const PacedAnswers::Send send = [&](const NetAddress& from, const NetAddress& address_of_client,
                                      std::string datagram) {
    ++sent;
    server->SendFrom(from, address_of_client, std::move(datagram));
  };
  PacedAnswers paced;
  std::vector<std::string> datagrams = memcached::Datagrams(7, std::string(1 << 20, 'v'));
  const size_t all = datagrams.size();
  ASSERT_TRUE(paced.Answer(0, {}, to, std::move(datagrams), send));
  server->Flush();
  size_t came = 0;
  // What is lost never comes; what the kernel has yet to deliver does.
  const auto read_all = [&] {
    char bytes[2048];
    pollfd readable{.fd = client, .events = POLLIN, .revents = 0};
    while (came < sent && poll(&readable, 1, 2000) == 1) {
      while (recv(client, bytes, sizeof(bytes), 0) > 0) ++came;
    }
    return came == sent;
  };
  uint64_t ms = 0;
  while (paced.next_ns() != UINT64_MAX) {
    ++ms;
    paced.SendDue(ms * kMs, send);
    server->Flush();
    if (ms % 5 == 0) ASSERT_TRUE(read_all()) << came << " of " << sent << " after " << ms << " ms";
  }
  EXPECT_TRUE(read_all());
  EXPECT_EQ(came, all);
  EXPECT_LT(ms, 100u);
  close(client);
}

}  // namespace
}  // namespace hedgerow::node
