// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// TCP by itself: a SYN that is refused, or that nothing answers, moves new connections to another backend, and a
// SYN-ACK brings them back. The election timeout is 300 ms here; time is set forward, nothing waits.
#include <netinet/in.h>

#include <string>

#include "bpf/tests/kernel_fixture.h"

namespace hedgerow::packets {
namespace {

constexpr uint8_t kRstAck = 0x14;
constexpr uint64_t kElection = 300 * kMillisecond;

class ConnectTest : public PacketTest {
 protected:
  void SetUp() override {
    PacketTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    ServiceConfig(kDns4Service).election_timeout_ns = kElection;
    List(kDns4Service, {"10.77.0.0/16"});
  }
  std::string Send(uint16_t port, uint8_t flags = kTcpSyn, const char *client = kClient4, uint32_t number = 1000) {
    return Read(SplitOf(client, PacketBuilder(client, kDns4).Tcp(port, kDnsPort, flags, {}, number).Build()).packet)
        .destination;
  }
  RunResult From(const char *backend, uint16_t port, uint8_t flags, const char *client = kClient4,
                 uint32_t number = 1000) {
    return Reply(PacketBuilder(backend, client).Tcp(53, port, flags, {}, number).Build());
  }
  bool Reaches(const char *backend, uint16_t port, uint8_t flags = kTcpSynAck, const char *client = kClient4) {
    return From(backend, port, flags, client).verdict == kRedirected;
  }
  RunResult Unreachable(const char *backend, uint16_t port, uint32_t number = 1000) {
    const Bytes quote = Layer3(PacketBuilder(kClient4, backend).Tcp(port, 53, kTcpSyn, {}, number).Build());
    return Reply(PacketBuilder(backend, kClient4).IcmpError(3, 1, Bytes(quote.begin(), quote.begin() + 28)).Build());
  }
  volatile hr_backend_state &TcpState(uint32_t backend) { return BackendState(HR_TCP_STATE(backend)); }
  // The second client shares no place with the first one.
  std::string Other() {
    for (int i = 1;; ++i) {
      const std::string client = "10.77.2." + std::to_string(i);
      const uint64_t before = TcpState(kDns4A).wait_since;
      Send(1000, kTcpSyn, kClient4);
      const uint64_t first = HR_WAIT_CLIENT(TcpState(kDns4A).wait_since);
      EXPECT_EQ(before, 0u);
      From(kA4, 1000, kTcpSynAck);
      Send(1000, kTcpSyn, client.c_str());
      const uint64_t second = HR_WAIT_CLIENT(TcpState(kDns4A).wait_since);
      From(kA4, 1000, kTcpSynAck, client.c_str());
      if (first != second) return client;
    }
  }
};

TEST_F(ConnectTest, ARefusedConnectionIsOpenedAtTheNextBackendWhenItsClientRepeatsItself) {
  EXPECT_EQ(Send(1), kA4);
  const RunResult refused = From(kA4, 1, kRstAck);
  EXPECT_EQ(refused.verdict, kDropped);
  EXPECT_EQ(refused.changes.at("dns4.nacks_swallowed"), 1);
  EXPECT_EQ(refused.changes.at("dns4:nack"), 1);
  Advance(kSecond);
  EXPECT_EQ(Send(1), kB4);
  EXPECT_TRUE(Reaches(kB4, 1));
  EXPECT_EQ(Send(1, kTcpAck), kB4);
  EXPECT_EQ(Send(2), kB4) << "and so is the next one, at once";
}

TEST_F(ConnectTest, SoIsOneThatNothingAnswers) {
  EXPECT_EQ(Send(1), kA4);
  EXPECT_EQ(Send(1), kA4) << "the network has doubled it";
  Advance(kSecond);
  EXPECT_EQ(Send(1), kB4);
  EXPECT_EQ(From(kA4, 1, kTcpSynAck).verdict, kDropped) << "too late: the client would have two connections";
  EXPECT_EQ(From(kA4, 1, kRstAck).verdict, kDropped);
  EXPECT_TRUE(Reaches(kB4, 1));
}

TEST_F(ConnectTest, ABackendWithoutAnAnswerIsPassedByThoughNoClientRepeatsItself) {
  EXPECT_EQ(Send(1), kA4);
  Advance(kSecond);
  for (uint16_t port = 2; port < 40; ++port) ASSERT_EQ(Send(port), kB4) << port;
}

TEST_F(ConnectTest, AnIcmpErrorAboutASynIsARefusal) {
  EXPECT_EQ(Send(1), kA4);
  EXPECT_EQ(Unreachable(kA4, 1).verdict, kDropped);
  Advance(kSecond);
  EXPECT_EQ(Send(1), kB4);
}

TEST_F(ConnectTest, AnEstablishedConnectionStaysAndHearsOfItsBackend) {
  EXPECT_EQ(Send(1), kA4);
  EXPECT_TRUE(Reaches(kA4, 1));
  Send(2);
  From(kA4, 2, kRstAck);
  Advance(kSecond);
  EXPECT_EQ(Send(3), kB4);
  EXPECT_EQ(Send(1, kTcpAck), kA4);
  EXPECT_EQ(Unreachable(kA4, 1).verdict, kRedirected);
  EXPECT_TRUE(Reaches(kA4, 1, kRstAck));
}

TEST_F(ConnectTest, OneSynInEightElectionTimeoutsTriesTheBackendAndASynAckBringsAllBack) {
  Send(1);
  From(kA4, 1, kRstAck);
  EXPECT_EQ(Send(2), kB4);  // which finds the suspicion
  From(kB4, 2, kTcpSynAck);
  Advance(kElection + kMillisecond);
  EXPECT_EQ(Send(3), kB4);
  From(kB4, 3, kTcpSynAck);
  EXPECT_EQ(TcpState(kDns4A).health, HR_DOWN);
  Advance(8 * kElection + kMillisecond);
  EXPECT_EQ(Send(4), kA4);
  EXPECT_EQ(Send(5), kB4);
  From(kB4, 5, kTcpSynAck);
  EXPECT_EQ(From(kA4, 4, kRstAck).verdict, kDropped) << "its client repeats it";
  Advance(8 * kElection + kMillisecond);
  EXPECT_EQ(Send(6), kA4);
  EXPECT_TRUE(Reaches(kA4, 6));
  EXPECT_EQ(Send(7), kA4);
}

TEST_F(ConnectTest, WhatOneClientMeetsAmongOthersMovesNoOtherClient) {
  const std::string other = Other();
  Send(1);
  From(kA4, 1, kRstAck);
  EXPECT_EQ(Send(2, kTcpSyn, other.c_str()), kA4);
  EXPECT_TRUE(Reaches(kA4, 2, kTcpSynAck, other.c_str()));
  Advance(kSecond);
  EXPECT_EQ(Send(1), kB4) << "the refused connection itself";
}

TEST_F(ConnectTest, TwoClientsThatAreRefusedMoveAll) {
  const std::string other = Other();
  Send(1);
  From(kA4, 1, kRstAck);
  Send(2, kTcpSyn, other.c_str());
  From(kA4, 2, kRstAck, other.c_str());
  Send(3, kTcpSyn, "10.77.3.1");
  EXPECT_NE(TcpState(kDns4A).health, HR_HEALTHY);
  EXPECT_EQ(Send(3, kTcpSyn, "10.77.3.2"), kB4);
}

TEST_F(ConnectTest, WhereAllRefuseTheClientHearsIt) {
  Send(1);
  From(kA4, 1, kRstAck);
  Advance(kSecond);
  EXPECT_EQ(Send(1), kB4);
  EXPECT_TRUE(Reaches(kB4, 1, kRstAck));
}

TEST_F(ConnectTest, RequestsAndConnectionsAreJudgedApart) {
  Send(1);
  From(kA4, 1, kRstAck);
  Advance(kSecond);
  EXPECT_EQ(Send(2), kB4);
  EXPECT_EQ(Read(Split(DnsRequest4(1)).packet).destination, kA4) << "a refused port says nothing of the other protocol";
  const uint64_t wait = BackendState(kDns4A).wait_since;
  EXPECT_NE(wait, 0u);
  Advance(8 * kElection + kMillisecond);
  Send(3);
  From(kA4, 3, kTcpSynAck);
  EXPECT_EQ(BackendState(kDns4A).wait_since, wait) << "the kernel of a stopped server accepts connections";
}

TEST_F(ConnectTest, ASynThatTheNetworkDoublesAroundItsAnswerStaysWithItsConnection) {
  EXPECT_EQ(Send(1), kA4);
  EXPECT_TRUE(Reaches(kA4, 1));
  BackendState(kDns4A).health = HR_DOWN;
  BackendState(kDns4A).health_since_ns = NowNs();
  Advance(kMillisecond);
  EXPECT_EQ(Send(1), kA4);
  EXPECT_EQ(TcpState(kDns4A).wait_since, 0u) << "a server answers it with no other SYN-ACK";
  EXPECT_EQ(Send(1, kTcpAck), kA4);
  EXPECT_EQ(Send(1, kTcpSyn, kClient4, 5000), kB4) << "the port again, another connection";
  EXPECT_TRUE(From(kB4, 1, kTcpSynAck, kClient4, 5000).verdict == kRedirected);
}

TEST_F(ConnectTest, OnlyWhatNamesTheSynAnswersIt) {
  for (uint16_t port = 1; port < 40 && TcpState(kDns4A).health == HR_HEALTHY; ++port) {
    Send(port);
    From(kA4, port, kRstAck);
  }
  ASSERT_NE(TcpState(kDns4A).health, HR_HEALTHY);
  Advance(kElection + 8 * kElection + kMillisecond);
  Send(100);
  Advance(8 * kElection + kMillisecond);
  ASSERT_EQ(Send(101), kA4) << "the trial";
  EXPECT_EQ(From(kA4, 101, kTcpSynAck, kClient4, 777).verdict, kRedirected) << "its client's kernel answers it";
  EXPECT_NE(TcpState(kDns4A).health, HR_HEALTHY);
  EXPECT_TRUE(Reaches(kA4, 101));
  EXPECT_EQ(TcpState(kDns4A).health, HR_HEALTHY);
  Send(102);
  EXPECT_EQ(From(kA4, 102, kRstAck, kClient4, 777).verdict, kRedirected);
  EXPECT_EQ(Unreachable(kA4, 102, 777).verdict, kRedirected);
  Advance(kSecond / 2);
  EXPECT_EQ(Send(102), kA4) << "it was not refused";
}

TEST_F(ConnectTest, WhatTheKernelWouldDropAnswersNothing) {
  Send(1);
  for (Bytes packet : {PacketBuilder(kA4, kClient4).Tcp(53, 1, kTcpSynAck).Build(),
                       PacketBuilder(kA4, kClient4).Tcp(53, 1, kRstAck).Build()}) {
    packet.back() ^= 1;  // the urgent pointer
    const RunResult run = Reply(packet);
    EXPECT_EQ(run.verdict, kDropped);
    EXPECT_EQ(run.changes.at("dns4:bad_checksum"), 1);
  }
  Advance(kSecond / 2);
  EXPECT_EQ(Send(1), kA4) << "still the first SYN's wait";
  EXPECT_NE(TcpState(kDns4A).wait_since, 0u);
  EXPECT_TRUE(Reaches(kA4, 1));
}

TEST_F(ConnectTest, ADryRunMovesNothing) {
  ServicePolicy(kDns4Service).switches = HR_SWITCH_DRY_RUN;
  EXPECT_EQ(Send(1), kA4);
  EXPECT_TRUE(Reaches(kA4, 1, kRstAck));
  Advance(kSecond);
  EXPECT_EQ(Send(1), kA4);
  EXPECT_EQ(Send(2), kA4);
}

}  // namespace
}  // namespace hedgerow::packets
