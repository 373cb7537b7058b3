// SPDX-License-Identifier: Apache-2.0
//
// A node believes what the probe says, the probe believes only answers to what it has asked, what is not
// answered is lost and not quick, and a pause of the server counts for every question that was due in it.
#include "bench/heartbeat/probe.h"

#include <atomic>
#include <thread>
#include <variant>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace hedgerow::bench {
namespace {

const wire::Key kKey{{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}};
const raft::NodeId kNode(1), kProbe(2);
const raft::Term kTerm(9);

wire::PeerIdentity Identity(raft::NodeId self, uint64_t incarnation) {
  return {.cluster_id = 7, .keys = kKey, .self = self, .incarnation = incarnation};
}

LeaderTalk Leader() { return LeaderTalk(Identity(kProbe, 22), kNode, kTerm, 20'000'000); }

TEST(LeaderTalk, AsksAsALeaderDoes) {
  LeaderTalk leader = Leader();
  wire::PeerCodec node(Identity(kNode, 11));
  const wire::Opened first = node.Open(leader.Ask(1));
  const wire::Opened second = node.Open(leader.Ask(2));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first.header.from, kProbe);
  EXPECT_EQ(first.header.to, kNode);
  EXPECT_EQ(first.header.term, kTerm);
  EXPECT_EQ(first.header.from_incarnation, 22u);
  EXPECT_GT(second.header.packet_number, first.header.packet_number);
  EXPECT_EQ(std::get<raft::Heartbeat>(second.body).round, 2u);
  EXPECT_EQ(std::get<raft::Heartbeat>(second.body).election_timeout_ns, 20'000'000u);
}

TEST(LeaderTalk, TellsItsLifeToWhoAsks) {
  LeaderTalk leader = Leader();
  wire::PeerCodec node(Identity(kNode, 11));
  const wire::Opened said = node.Open(leader.Reply(node.Seal(kProbe, raft::Term(1), wire::Hello{.nonce = 77})));
  ASSERT_TRUE(said.ok());
  EXPECT_EQ(std::get<wire::HelloAck>(said.body).nonce, 77u);
  EXPECT_EQ(leader.Reply(leader.Ask(1)), "");
  EXPECT_EQ(leader.Reply("garbage"), "");
}

TEST(LeaderTalk, UnderstandsAnswersOfItsNodeAndTermOnly) {
  LeaderTalk leader = Leader();
  wire::PeerCodec node(Identity(kNode, 11)), stranger(Identity(raft::NodeId(3), 33));
  const raft::HeartbeatReply reply{.round = 5};
  EXPECT_EQ(leader.Answered(node.Seal(kProbe, kTerm, reply)), 5u);
  EXPECT_FALSE(leader.Answered(node.Seal(kProbe, raft::Term(10), reply)).has_value());
  EXPECT_FALSE(leader.Answered(stranger.Seal(kProbe, kTerm, reply)).has_value());
  std::string forged = node.Seal(kProbe, kTerm, reply);
  forged.back() = static_cast<char>(forged.back() ^ 1);
  EXPECT_FALSE(leader.Answered(forged).has_value());
}

// An echo server that answers only some.
class Server {
 public:
  explicit Server(bool (*answers)(uint64_t number)) : socket_(UdpSocket::Listen(*ParseAddress("127.0.0.1:0")).value()) {
    thread_ = std::thread([this, answers] {
      Batch batch;
      while (!stop_) {
        const std::array<int, 1> fds{socket_.fd()};
        std::array<bool, 1> readable;
        WaitReadable(fds, MonotonicNs() + 10'000'000, readable);
        if (!readable[0]) continue;
        socket_.Receive(batch);
        for (size_t i = 0; i < batch.size(); ++i) {
          uint64_t number = 0;
          std::memcpy(&number, batch.Bytes(i).data(), sizeof(number));
          if (answers(number)) socket_.SendOne(batch.Bytes(i), batch.Peer(i));
        }
      }
    });
  }
  ~Server() {
    stop_ = true;
    thread_.join();
  }
  Address address() const { return socket_.LocalAddress().value(); }

 private:
  UdpSocket socket_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

TEST(Probe, WhatIsNotAnsweredIsLost) {
  Server server([](uint64_t number) { return number % 10 != 0; });
  UdpSocket socket = UdpSocket::Listen(*ParseAddress("127.0.0.1:0")).value();
  EchoTalk talk(64);
  ProbeOptions options;
  options.to = server.address();
  options.warm_up = 5;
  options.questions = 50;
  options.interval = absl::Microseconds(100);
  options.patience = absl::Milliseconds(500);
  const ProbeReport report = RunProbe(socket, talk, options);
  // 10, 20, 30, 40 and 50 of the numbers 6 to 55; on a busy machine an answer may come late, too.
  EXPECT_GE(report.lost, 5u);
  EXPECT_LE(report.lost, 15u);
  EXPECT_EQ(report.answered + report.lost, 50u);
  EXPECT_EQ(report.latency_ns.count(), report.answered);
  EXPECT_GT(report.latency_ns.min(), 0u);
}

TEST(Probe, APauseOfTheServerCountsForEveryQuestionThatWasDueInIt) {
  Server server([](uint64_t number) {
    if (number == 100 || number == 400) absl::SleepFor(absl::Milliseconds(100));
    return true;
  });
  UdpSocket socket = UdpSocket::Listen(*ParseAddress("127.0.0.1:0")).value();
  EchoTalk talk(64);
  ProbeOptions options;
  options.to = server.address();
  options.warm_up = 5;
  options.questions = 600;
  const ProbeReport report = RunProbe(socket, talk, options);
  EXPECT_EQ(report.answered, 600u);
  // Two pauses of 100 questions each, of which the first has waited 100 ms and the last hardly: half of a
  // third.
  EXPECT_GT(report.latency_ns.Quantile(0.84), 30'000'000u);
  EXPECT_GT(report.latency_ns.max(), 95'000'000u);
}

TEST(Probe, AnAnswerAfterThePatienceIsLost) {
  Server server([](uint64_t number) {
    if (number == 20) absl::SleepFor(absl::Milliseconds(200));
    return true;
  });
  UdpSocket socket = UdpSocket::Listen(*ParseAddress("127.0.0.1:0")).value();
  EchoTalk talk(64);
  ProbeOptions options;
  options.to = server.address();
  options.warm_up = 5;
  options.questions = 300;
  options.patience = absl::Milliseconds(100);
  const ProbeReport report = RunProbe(socket, talk, options);
  EXPECT_GE(report.lost, 95u);  // those of the pause's first half
  EXPECT_EQ(report.answered + report.lost, 300u);
  EXPECT_LE(report.latency_ns.max(), 101'000'000u);
}

}  // namespace
}  // namespace hedgerow::bench
