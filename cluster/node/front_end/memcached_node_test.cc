// SPDX-License-Identifier: Apache-2.0
//
// memcached's clients against whole nodes in one process, on loopback sockets and real storage: whichever node
// is asked does it, and once.
#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include <poll.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/node/testing/node_testing.h"

namespace hedgerow::node {
namespace {

using namespace std::chrono_literals;
using testing::StartsWith;

// A client's socket: frame ids are counted up, so that nothing is a duplicate that is not meant as one.
class Client {
 public:
  explicit Client(size_t buffer_bytes = 4 << 20) : socket_(AnySocket(buffer_bytes, UdpSocket::kDatagramMax_bytes)) {}

  uint16_t next_id() { return ++id_; }
  void Send(const NetAddress& to, std::string_view body, uint16_t id) {
    std::string datagram = {static_cast<char>(id >> 8), static_cast<char>(id), 0, 0, 0, 1, 0, 0};
    datagram.append(body);
    socket_->Send(to, datagram);
    socket_->Flush();
  }
  // All datagrams of one answer, put together; empty: none came.
  std::string Receive(uint16_t id, int within_ms) {
    std::vector<std::string> parts;
    size_t come = 0;
    const uint64_t until_ns = Now_ns() + static_cast<uint64_t>(within_ms) * 1'000'000;
    while (Now_ns() < until_ns) {
      pollfd ready{.fd = socket_->fd(), .events = POLLIN, .revents = 0};
      if (poll(&ready, 1, 20) != 1) continue;
      for (const Datagram& datagram : socket_->Receive(Now_ns())) {
        const auto word = [&datagram](size_t at) {
          return static_cast<size_t>(static_cast<uint8_t>(datagram.bytes[at]) << 8 |
                                     static_cast<uint8_t>(datagram.bytes[at + 1]));
        };
        if (datagram.bytes.size() < 8 || word(0) != id) continue;
        parts.resize(std::max(parts.size(), word(4)));
        if (parts.at(word(2)).empty()) ++come;
        parts.at(word(2)) = datagram.bytes.substr(8);
      }
      if (!parts.empty() && come == parts.size()) break;
    }
    std::string whole;
    for (const std::string& part : parts) whole += part;
    return whole;
  }
  // Asks again each second, as any client of a datagram protocol: a request that waits where the leader changes is
  // lost.
  std::string Exchange(const NetAddress& to, std::string_view body, uint16_t id, int within_ms = 4000) {
    std::string answer;
    for (int left_ms = within_ms; left_ms > 0 && answer.empty(); left_ms -= kAgain_ms) {
      Send(to, body, id);
      answer = Receive(id, std::min(left_ms, kAgain_ms));
    }
    return answer;
  }
  std::string Ask(const NetAddress& to, std::string_view body, int within_ms = 4000) {
    return Exchange(to, body, next_id(), within_ms);
  }

 private:
  static constexpr int kAgain_ms = 1000;

  std::unique_ptr<UdpSocket> socket_;
  uint16_t id_ = 0;
};

class MemcachedNodeTest : public NodeTest {
 protected:
  void SetUp() override {
    for (uint64_t id = 1; id <= 3; ++id) listen_.push_back(FreeAddress());
    ASSERT_NO_FATAL_FAILURE(NodeTest::SetUp());
    leader_ = WaitForLeader();
  }

  NodeConfig ConfigOf(uint64_t id) const override {
    NodeConfig config = NodeTest::ConfigOf(id);
    config.memcached = memcached_;
    config.memcached.listen = listen_[id - 1];
    return config;
  }
  const NetAddress& leader() const { return listen_[leader_ - 1]; }
  const NetAddress& follower(uint64_t n = 1) const { return listen_[(leader_ - 1 + n) % 3]; }

  std::vector<NetAddress> listen_;
  MemcachedConfig memcached_{.once_in_window = true};
  uint64_t leader_ = 0;
  Client client_;
};

INSTANTIATE_TEST_SUITE_P(Durability, MemcachedNodeTest, testing::Values(Durability::kDisk, Durability::kMemory),
                         DurabilityOf);

TEST_P(MemcachedNodeTest, WhatComesFromElsewhereGetsNoAnswerAndIsCounted) {
  Stop(leader_);
  memcached_.clients = net::Networks({*net::Network::Parse("127.255.0.1")});
  Start(leader_);
  EXPECT_EQ(client_.Ask(leader(), "version\r\n", 100), "");
  EXPECT_EQ(Counter(leader_, "memcached_dropped", "source"), 1u);
}

// Whoever sends to all of them must not come round its ids within the window.
TEST_P(MemcachedNodeTest, WithMoreMembersEachTakesLessOfAClient) {
  ASSERT_EQ(StatusOf(1).memcached->rate_per_s(), MemcachedRateMax(3, kv::MemcachedLimits().window.window_ns));
  const raft::MemberChange fourth = {
      .kind = raft::MemberChange::Kind::kAddLearner, .node = raft::NodeId(4), .address = FreeAddress().ToString()};
  EXPECT_TRUE(Change({fourth}));
  EXPECT_TRUE(Eventually([&] {
    // A leader that loses its office may lose the change, too. A member that is added already is refused.
    const uint64_t leader = Leader();
    if (leader != 0) nodes_[leader - 1]->node->ChangeMembers({fourth}).status().IgnoreError();
    for (uint64_t id = 1; id <= 3; ++id) {
      if (StatusOf(id).memcached->rate_per_s() != MemcachedRateMax(4, kv::MemcachedLimits().window.window_ns))
        return false;
    }
    return true;
  }));
}

TEST_P(MemcachedNodeTest, TheRateFollowsTheWindowThatHoldsInTheCluster) {
  EXPECT_TRUE(Eventually([&] {
    const uint64_t leader = Leader();
    if (leader == 0) return false;
    return nodes_[leader - 1]->node->ChangeSettings({{kv::Setting::kMemcachedWindow, 20'000'000'000}}).ok();
  }));
  EXPECT_TRUE(Eventually([&] {
    for (uint64_t id = 1; id <= 3; ++id) {
      if (StatusOf(id).memcached->rate_per_s() != MemcachedRateMax(3, 20'000'000'000)) return false;
    }
    return true;
  }));
}

TEST_P(MemcachedNodeTest, WhicheverNodeIsAskedDoesIt) {
  EXPECT_EQ(client_.Ask(leader(), "get k\r\n"), "END\r\n");
  EXPECT_EQ(client_.Ask(follower(), "set k 7 0 5\r\nhello\r\n"), "STORED\r\n");
  EXPECT_EQ(client_.Ask(leader(), "get k\r\n"), "VALUE k 7 5\r\nhello\r\nEND\r\n");
  EXPECT_EQ(client_.Ask(follower(2), "get x k\r\n"), "VALUE k 7 5\r\nhello\r\nEND\r\n");
  EXPECT_EQ(client_.Ask(follower(), "add k 0 0 1\r\nx\r\n"), "NOT_STORED\r\n");
  EXPECT_EQ(client_.Ask(leader(), "replace k 8 0 1\r\nx\r\n"), "STORED\r\n");
  const std::string gets = client_.Ask(follower(2), "gets k\r\n");
  ASSERT_THAT(gets, StartsWith("VALUE k 8 1 "));
  const std::string unique = gets.substr(12, gets.find('\r') - 12);
  EXPECT_EQ(client_.Ask(follower(), "cas k 0 0 1 1\r\ny\r\n"), "EXISTS\r\n");
  EXPECT_EQ(client_.Ask(follower(), "cas k 0 0 1 " + unique + "\r\ny\r\n"), "STORED\r\n");
  EXPECT_EQ(client_.Ask(follower(), "append k 0 0 1\r\nz\r\n"), "STORED\r\n");
  EXPECT_EQ(client_.Ask(leader(), "get k\r\n"), "VALUE k 0 2\r\nyz\r\nEND\r\n");
  EXPECT_EQ(client_.Ask(leader(), "touch k 100\r\n"), "TOUCHED\r\n");
  EXPECT_EQ(client_.Ask(follower(2), "delete k\r\n"), "DELETED\r\n");
  EXPECT_EQ(client_.Ask(follower(2), "delete k\r\n"), "NOT_FOUND\r\n");
  EXPECT_EQ(client_.Ask(follower(), "get k\r\n"), "END\r\n");
  EXPECT_THAT(client_.Ask(follower(), "version\r\n"), StartsWith("VERSION "));
  EXPECT_THAT(client_.Ask(follower(), "stats\r\n"), StartsWith("STAT pid "));
}

TEST_P(MemcachedNodeTest, CopiesOfOneRequestAreDoneOnceAndAnsweredAlike) {
  EXPECT_EQ(client_.Ask(leader(), "set n 0 0 1\r\n0\r\n"), "STORED\r\n");
  for (int i = 1; i <= 20; ++i) {
    const uint16_t id = client_.next_id();
    for (const NetAddress& node : listen_) client_.Send(node, "incr n 1\r\n", id);
    EXPECT_EQ(client_.Receive(id, 4000), std::to_string(i) + "\r\n");
  }
  const uint16_t id = client_.next_id();
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(client_.Exchange(listen_[static_cast<size_t>(i) % 3], "incr n 1\r\n", id), "21\r\n")
        << "from the table, wherever it is asked for";
  }
  EXPECT_EQ(client_.Ask(follower(), "get n\r\n"), "VALUE n 0 2\r\n21\r\nEND\r\n");
  EXPECT_EQ(client_.Exchange(leader(), "incr n 2\r\n", id), "23\r\n")
      << "the same id with other bytes is another request";
}

TEST_P(MemcachedNodeTest, AnIdThatStoodForAnotherRequestMeanwhileIsANewOne) {
  const auto ask = [](Client& client, const NetAddress& node, std::string_view body) {
    return client.Exchange(node, body, 1);
  };
  for (int i = 0; i < 10; ++i) {
    const NetAddress& node = listen_[static_cast<size_t>(i) % 3];
    EXPECT_EQ(ask(client_, node, "set lamp 0 0 3\r\noff\r\n"), "STORED\r\n");
    EXPECT_EQ(client_.Ask(leader(), "get lamp\r\n"), "VALUE lamp 0 3\r\noff\r\nEND\r\n");
    EXPECT_EQ(ask(client_, node, "set lamp 0 0 2\r\non\r\n"), "STORED\r\n");
    EXPECT_EQ(client_.Ask(leader(), "get lamp\r\n"), "VALUE lamp 0 2\r\non\r\nEND\r\n");
  }
  Client other;
  EXPECT_EQ(ask(client_, leader(), "add lock 0 0 1\r\na\r\n"), "STORED\r\n");
  EXPECT_EQ(ask(client_, leader(), "delete lock\r\n"), "DELETED\r\n");
  EXPECT_EQ(ask(other, follower(), "add lock 0 0 1\r\na\r\n"), "STORED\r\n");
  EXPECT_EQ(ask(client_, leader(), "add lock 0 0 1\r\na\r\n"), "NOT_STORED\r\n");
}

TEST_P(MemcachedNodeTest, ADuplicateIsKnownAfterTheLeaderIsGone) {
  EXPECT_EQ(client_.Ask(leader(), "set n 0 0 1\r\n0\r\n"), "STORED\r\n");
  const uint16_t id = client_.next_id();
  EXPECT_EQ(client_.Exchange(leader(), "incr n 5\r\n", id), "5\r\n");
  Stop(leader_);
  leader_ = WaitForLeader();
  EXPECT_EQ(client_.Exchange(leader(), "incr n 5\r\n", id), "5\r\n");
  EXPECT_EQ(client_.Ask(leader(), "incr n 1\r\n"), "6\r\n");
}

TEST_P(MemcachedNodeTest, LargeValuesComeInNumberedDatagrams) {
  std::string value(memcached_.value_max_bytes, 'x');
  for (size_t i = 0; i < value.size(); ++i) value[i] = static_cast<char>('a' + i % 26);
  const std::string set = " 0 0 " + std::to_string(value.size()) + "\r\n" + value + "\r\n";
  EXPECT_EQ(client_.Ask(follower(), "set a" + set), "STORED\r\n");
  EXPECT_EQ(client_.Ask(leader(), "set b" + set), "STORED\r\n");
  const std::string block = " 0 " + std::to_string(value.size()) + "\r\n" + value + "\r\n";
  EXPECT_EQ(client_.Ask(follower(2), "get a none b\r\n"), "VALUE a" + block + "VALUE b" + block + "END\r\n");
  EXPECT_EQ(client_.Ask(leader(), "set c 0 0 32769\r\n" + value + "x\r\n"),
            "SERVER_ERROR object too large for cache\r\n");
  EXPECT_EQ(client_.Ask(leader(), "add a 0 0 32769\r\n" + value + "x\r\n"),
            "SERVER_ERROR object too large for cache\r\n");
  EXPECT_EQ(client_.Ask(follower(), "get a\r\n"), "VALUE a" + block + "END\r\n");
  EXPECT_EQ(client_.Ask(follower(), "set a 0 0 32769\r\n" + value + "x\r\n"),
            "SERVER_ERROR object too large for cache\r\n");
  EXPECT_EQ(client_.Ask(leader(), "get a\r\n"), "END\r\n");
}

TEST_P(MemcachedNodeTest, AnItemEndsWithoutWrites) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(client_.Ask(leader(), "set k 0 3 1\r\nx\r\n"), "STORED\r\n");
  EXPECT_EQ(client_.Ask(follower(), "set absolute 0 " + std::to_string(time(nullptr) + 3600) + " 1\r\nx\r\n"),
            "STORED\r\n");
  EXPECT_EQ(client_.Ask(follower(), "set past 0 1000000000 1\r\nx\r\n"), "STORED\r\n");
  EXPECT_EQ(client_.Ask(follower(), "get past\r\n"), "END\r\n");
  EXPECT_EQ(client_.Ask(follower(), "get k\r\n"), "VALUE k 0 1\r\nx\r\nEND\r\n");
  // UDP: a question without an answer is asked again, and does not use the time up.
  EXPECT_TRUE(Eventually([this] { return client_.Ask(follower(), "get k\r\n", 300) == "END\r\n"; }));
  EXPECT_GT(std::chrono::steady_clock::now() - begin, 1500ms);
  EXPECT_EQ(client_.Ask(follower(2), "get absolute\r\n"), "VALUE absolute 0 1\r\nx\r\nEND\r\n");
}

TEST_P(MemcachedNodeTest, AnAbandonedRequestIsDoneAndNotAnswered) {
  EXPECT_TRUE(Eventually([this] {
    EXPECT_EQ(client_.Ask(follower(), "set k 0 0 1 noreply\r\nx\r\n", 200), "");
    return client_.Ask(leader(), "get k\r\n") == "VALUE k 0 1\r\nx\r\nEND\r\n";
  }));
  EXPECT_TRUE(Eventually([this] {
    EXPECT_EQ(client_.Ask(leader(), "delete k noreply\r\n", 200), "");
    return client_.Ask(follower(), "get k\r\n") == "END\r\n";
  }));
  EXPECT_EQ(StatusOf(leader_).ready, true);
}

TEST_P(MemcachedNodeTest, WhatIsNoRequestIsToldSoOrDropped) {
  EXPECT_EQ(client_.Ask(leader(), "nonsense\r\n"), "ERROR\r\n");
  EXPECT_EQ(client_.Ask(leader(), "get"), "ERROR\r\n");
  EXPECT_EQ(client_.Ask(leader(), "set k 0 0 5\r\nx\r\n"), "CLIENT_ERROR bad data chunk\r\n");
  EXPECT_EQ(client_.Ask(leader(), "ERROR\r\n", 200), "");
  EXPECT_EQ(Counter(leader_, "memcached_refused", "unknown_command"), 2u);
  EXPECT_EQ(Counter(leader_, "memcached_refused", "bad_chunk"), 1u);
  EXPECT_EQ(Counter(leader_, "memcached_dropped", "an_answer"), 1u);
  EXPECT_EQ(client_.Ask(leader(), "get k\r\n"), "END\r\n") << "it lives on";
}

// The kernel doubles what it is told: this is its own default. A client that does not get a processor for some
// milliseconds asks again, as any client of a datagram protocol.
TEST_P(MemcachedNodeTest, AMegabyteReachesAClientWithADefaultBuffer) {
  std::string get = "get";
  size_t bytes = 0;
  for (int key = 0; key < 32; ++key) {
    const std::string name = "k" + std::to_string(key);
    EXPECT_EQ(client_.Ask(leader(), "set " + name + " 0 0 32000\r\n" + std::string(32'000, 'v') + "\r\n"),
              "STORED\r\n");
    get += " " + name;
    bytes += 32'000;
  }
  Client small(212'992 / 2);
  std::string answer;
  for (int attempt = 0; attempt < 20 && answer.size() <= bytes; ++attempt)
    answer = small.Ask(leader(), get + "\r\n", 1000);
  EXPECT_GT(answer.size(), bytes);
  EXPECT_TRUE(answer.ends_with("END\r\n")) << answer.size() << " bytes";
  EXPECT_GE(Counter(leader_, "memcached_paced_answers", ""), 1u);
  EXPECT_EQ(Counter(leader_, "memcached_paced_refused", ""), 0u);
}

TEST_P(MemcachedNodeTest, ANodeWithoutALeaderSaysSo) {
  EXPECT_EQ(client_.Ask(leader(), "set k 0 0 1\r\nx\r\n"), "STORED\r\n");
  const uint64_t left = leader_ % 3 + 1;
  for (uint64_t id = 1; id <= 3; ++id) {
    if (id != left) Stop(id);
  }
  EXPECT_TRUE(Eventually([&] { return !StatusOf(left).leader.IsSet(); }));
  EXPECT_EQ(client_.Ask(listen_[left - 1], "set k 0 0 1\r\ny\r\n"), "SERVER_ERROR no leader\r\n");
  EXPECT_THAT(client_.Ask(listen_[left - 1], "get k\r\n"), StartsWith("SERVER_ERROR "));
}

TEST_P(MemcachedNodeTest, TheLeaderAnnouncesBothOfItsAddresses) {
  const wire::Key key = wire::DeriveProxyKey(wire::Key(), "proxy");
  bool hkv = false;
  bool memcached = false;
  EXPECT_TRUE(Eventually([&] {
    for (const Datagram& datagram : proxy_socket_->Receive(Now_ns())) {
      const auto announcement = wire::OpenAnnouncement(datagram.bytes, key);
      hkv = hkv || announcement->leader_port == members_[leader_ - 1].serve.port;
      memcached = memcached || announcement->leader_port == leader().port;
    }
    return hkv && memcached;
  }));
}

class SlowMemcachedNodeTest : public MemcachedNodeTest {
 protected:
  SlowMemcachedNodeTest() {
    memcached_.rate_per_s = 1;
    memcached_.once_in_window = false;
  }
};
INSTANTIATE_TEST_SUITE_P(Durability, SlowMemcachedNodeTest, testing::Values(Durability::kMemory), DurabilityOf);

TEST_P(SlowMemcachedNodeTest, AClientIsHeldToItsRateAndOthersAreNot) {
  int refused = 0;
  for (int i = 0; i < 30; ++i) {
    const std::string answer = client_.Ask(leader(), "get k\r\n");
    refused += answer != "END\r\n";
    if (answer != "END\r\n") {
      EXPECT_THAT(answer, StartsWith("CLIENT_ERROR too many requests"));
    }
  }
  EXPECT_GT(refused, 10);
  EXPECT_EQ(Counter(leader_, "memcached_refused", "too_fast"), static_cast<uint64_t>(refused));
  Client other;
  EXPECT_EQ(other.Ask(leader(), "get k\r\n"), "END\r\n");
  Client third;
  EXPECT_THAT(third.Ask(leader(), "incr k 1\r\n"), StartsWith("CLIENT_ERROR incr is refused here"));
}

}  // namespace
}  // namespace hedgerow::node
