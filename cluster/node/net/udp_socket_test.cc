// SPDX-License-Identifier: Apache-2.0
#include "cluster/node/net/udp_socket.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cluster/node/testing/socket_testing.h"

namespace hedgerow::node {
namespace {

NetAddress Loopback(const std::string& text) { return NetAddress::Parse(text).value(); }

class UdpSocketTest : public testing::Test {
 protected:
  std::unique_ptr<UdpSocket> a_ = AnySocket();
  std::unique_ptr<UdpSocket> b_ = AnySocket();
  NetAddress to_a_ = a_->LocalAddress().value();
  NetAddress to_b_ = b_->LocalAddress().value();
};

TEST_F(UdpSocketTest, WhatIsSentArrivesWithItsSenderAndTime) {
  const uint64_t before_ns = Now_ns();
  a_->Send(to_b_, "hello");
  EXPECT_TRUE(b_->Receive(Now_ns()).empty()) << "before the flush";
  a_->Flush();
  const uint64_t after_ns = Now_ns();
  const uint64_t asked_ns = Now_ns();
  const std::vector<Datagram>& received = b_->Receive(asked_ns);
  // The two clocks are read one after the other, and the thread may stand still in between.
  const uint64_t slack_ns = 1'000'000 + Now_ns() - asked_ns;
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].bytes, "hello");
  EXPECT_EQ(received[0].from, to_a_);
  EXPECT_GE(received[0].arrived_ns + slack_ns, before_ns);
  EXPECT_LE(received[0].arrived_ns, after_ns + slack_ns);
}

TEST_F(UdpSocketTest, AFullBatchLeavesByItself) {
  for (size_t i = 0; i < UdpSocket::kBatch; ++i) a_->Send(to_b_, std::to_string(i));
  EXPECT_EQ(a_->counters().sent, UdpSocket::kBatch);
  EXPECT_EQ(b_->Receive(Now_ns()).size(), UdpSocket::kBatch);
}

TEST_F(UdpSocketTest, WhatIsTooLongIsCountedAndDropped) {
  const std::unique_ptr<UdpSocket> small = AnySocket(1 << 20, 16);
  a_->Send(small->LocalAddress().value(), std::string(17, 'x'));
  a_->Send(small->LocalAddress().value(), std::string(16, 'y'));
  a_->Flush();
  ASSERT_EQ(small->Receive(Now_ns()).size(), 1u);
  EXPECT_EQ(small->counters().truncated, 1u);
}

TEST_F(UdpSocketTest, OneThatCannotBeSentDoesNotStopTheOthers) {
  a_->Send(to_b_, std::string(70'000, 'x'));  // no datagram is that long
  a_->Send(Loopback("[::1]:9"), "from an IPv4 socket");
  a_->Send(to_b_, "still");
  a_->Flush();
  EXPECT_EQ(a_->counters().send_failed, 2u);
  ASSERT_EQ(b_->Receive(Now_ns()).size(), 1u);
}

TEST_F(UdpSocketTest, ASocketOnAllAddressesAnswersBothFamilies) {
  NetAddress everywhere = Loopback("[::]:1");
  everywhere.port = 0;
  const std::unique_ptr<UdpSocket> server = UdpSocket::Bind(everywhere, 1 << 20, 2048).value();
  NetAddress to_server = Loopback("127.0.0.1:1");
  to_server.port = server->LocalAddress().value().port;
  a_->Send(to_server, "asked over IPv4");
  a_->Flush();
  const std::vector<Datagram>& asked = server->Receive(Now_ns());
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].from, to_a_);
  server->Send(asked[0].from, "answered");
  server->Flush();
  EXPECT_EQ(server->counters().send_failed, 0u);
  ASSERT_EQ(a_->Receive(Now_ns()).size(), 1u);
}

// A client's connected socket takes an answer from the address that it asked and from no other.
void ExpectAnswerFromTheAddressAsked(const std::string& wildcard, const std::string& asked) {
  SCOPED_TRACE(asked);
  NetAddress address = Loopback(wildcard + ":1");
  address.port = 0;
  const std::unique_ptr<UdpSocket> server = UdpSocket::Bind(address, 1 << 20, 2048).value();
  NetAddress client_address = Loopback(asked + ":1");
  const bool v4 = client_address.is_v4();
  client_address = Loopback(v4 ? "127.0.0.1:1" : "[::1]:1");
  client_address.port = 0;
  const std::unique_ptr<UdpSocket> client = UdpSocket::Bind(client_address, 1 << 20, 2048).value();
  NetAddress to = Loopback(asked + ":1");
  to.port = server->LocalAddress().value().port;
  client->Send(to, "question");
  client->Flush();
  const std::vector<Datagram>& received = server->Receive(Now_ns());
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].to.bytes, to.bytes);
  server->SendFrom(received[0].to, received[0].from, "answer");
  server->Flush();
  const std::vector<Datagram>& answers = client->Receive(Now_ns());
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].from, to);
}

TEST(UdpSocketWildcardTest, AnAnswerLeavesFromTheAddressThatWasAsked) {
  ExpectAnswerFromTheAddressAsked("0.0.0.0", "127.0.0.7");
  ExpectAnswerFromTheAddressAsked("[::]", "[::1]");
  ExpectAnswerFromTheAddressAsked("[::]", "127.0.0.8");
}

TEST_F(UdpSocketTest, ASocketOfOneAddressNamesNone) {
  a_->Send(to_b_, "hello");
  a_->Flush();
  const std::vector<Datagram>& received = b_->Receive(Now_ns());
  ASSERT_EQ(received.size(), 1u);
  EXPECT_TRUE(received[0].to.is_unspecified());
}

TEST_F(UdpSocketTest, ATakenAddressIsSaidByName) {
  const auto taken = UdpSocket::Bind(to_a_, 1 << 20, 2048);
  ASSERT_FALSE(taken.ok());
  EXPECT_NE(taken.status().message().find(to_a_.ToString()), std::string::npos) << taken.status();
}

TEST(NetAddressTest, IsReadAndWritten) {
  for (const std::string text : {"10.0.0.1:4801", "[fd00::1]:4801"}) {
    EXPECT_EQ(NetAddress::Parse(text).value().ToString(), text);
  }
  for (const std::string text :
       {"10.0.0.1", "10.0.0.1:0", "10.0.0.1:65536", "fd00::1:80", "[10.0.0.1]:80", "a:1", ":1", ""}) {
    EXPECT_FALSE(NetAddress::Parse(text).ok()) << text;
  }
}

}  // namespace
}  // namespace hedgerow::node
