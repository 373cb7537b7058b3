// SPDX-License-Identifier: Apache-2.0
//
// Whole nodes in one process, on loopback sockets and real storage: what holds of the parts must hold of them
// together.
#include "cluster/node/node.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cluster/node/testing/node_testing.h"
#include "operate/version.h"
#include "cluster/wire/hkv_trailer.h"

namespace {

std::atomic<pthread_t> late_thread{};

bool IsSocket(int fd) {
  int type = 0;
  socklen_t size = sizeof(type);
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0;
}

}  // namespace

// The C library's, for the nodes below. The late thread, woken by another thread and not by a datagram, gets no
// processor for a while, once.
extern "C" int epoll_pwait2(int epoll, epoll_event* events, int size, const timespec* timeout, const sigset_t* mask) {
  const auto ready = static_cast<int>(syscall(SYS_epoll_pwait2, epoll, events, size, timeout, mask, sizeof(uint64_t)));
  if (ready == 1 && pthread_self() == late_thread && !IsSocket(events[0].data.fd)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(450));
    late_thread = pthread_t{};
  }
  return ready;
}

namespace hedgerow::node {
namespace {

using namespace std::chrono_literals;

// A leader that stops waits a second for another to take over (kHandOver_ns).
constexpr auto kHandsOverWithin = 900ms;

INSTANTIATE_TEST_SUITE_P(Durability, NodeTest, testing::Values(Durability::kDisk, Durability::kMemory), DurabilityOf);

TEST_P(NodeTest, WhicheverNodeIsAskedDoesIt) {
  const uint64_t leader = WaitForLeader();
  const uint64_t other = leader % 3 + 1;
  const uint64_t session = Open(other);
  ASSERT_NE(session, 0u);
  EXPECT_EQ(Increment(leader, session, 1), "1");
  EXPECT_EQ(Increment(other, session, 2), "2") << "forwarded";
  EXPECT_EQ(Increment(other, session, 2), "2") << "again: answered from the table";
  EXPECT_EQ(Increment(leader % 3 + 1, session, 2), "2");
  EXPECT_EQ(Get(leader, 1), "2");
  EXPECT_EQ(Get(other, 2), "2") << "read index";
  for (const v1::Peer& peer : StatusOf(leader).peers)
    if (!peer.life().empty()) EXPECT_EQ(peer.build(), operate::kVersion);
}

TEST_P(NodeTest, AWriteWithoutASessionIsDoneOnceWhereverItsCopiesGo) {
  const uint64_t leader = WaitForLeader();
  const uint64_t other = leader % 3 + 1;
  EXPECT_EQ(Increment(other, wire::kHkvNoSession, 111), "1") << "forwarded";
  EXPECT_EQ(Increment(leader, wire::kHkvNoSession, 111), "1");
  EXPECT_EQ(Increment(leader, wire::kHkvNoSession, 222), "2");
  Stop(leader);
  WaitForLeader();
  EXPECT_EQ(Increment(other, wire::kHkvNoSession, 222), "2");
  EXPECT_EQ(Get(other, 1), "2");
  EXPECT_EQ(StatusOf(other).sessions, 0u);
}

// What waits in its socket by then no poll has named.
TEST_P(NodeTest, AFollowerThatHasToWaitForAProcessorAfterAPollHearsItsLeaderBeforeItJudges) {
  const uint64_t leader = WaitForLeader();
  const uint64_t other = leader % 3 + 1;
  const auto stood = [&] { return Counter(other, "elections_begun", "silent_leader"); };
  const uint64_t before = stood();
  for (int i = 0; i < 4; ++i) {
    late_thread = nodes_[other - 1]->thread.native_handle();
    ASSERT_TRUE(Eventually([&] {
      StatusOf(other);  // wakes it
      return late_thread == pthread_t{};
    }));
  }
  EXPECT_LE(stood(), before + 1) << "a busy machine may cause one";
}

class FullWindowTest : public NodeTest {
 protected:
  static constexpr uint64_t kMost = 100;  // of which a third of a sixteenth of a half is less than one
  NodeConfig ConfigOf(uint64_t id) const override {
    NodeConfig config = NodeTest::ConfigOf(id);
    config.settings.window.requests_max = kMost;
    config.settings_in_file = {kv::Setting::kWindowMax};
    return config;
  }
  wire::HkvStatus StatusOfOne(uint64_t node, wire::HkvKind kind, uint64_t nonce) {
    wire::HkvRequest request{.kind = kind, .client_id = wire::kHkvNoSession, .seq = nonce};
    if (kind == wire::HkvKind::kWrite)
      request.operations = {{.kind = kv::OperationKind::kIncrement, .key = "n", .delta = 1}};
    const std::optional<wire::HkvAnswer> answer = Ask(node, request);
    return answer.has_value() ? answer->status : wire::HkvStatus::kMalformed;
  }
};

INSTANTIATE_TEST_SUITE_P(Durability, FullWindowTest, testing::Values(Durability::kMemory), DurabilityOf);

// A CANCEL of what is not known takes a place as well; a copy of what is known takes none.
TEST_P(FullWindowTest, ASourceThatHasHadItsPartIsRefusedWhatIsNewAlone) {
  const uint64_t leader = WaitForLeader();
  ASSERT_TRUE(Eventually([&] { return StatusOf(leader).settings_version == 1; }));
  for (uint64_t nonce = 1; nonce <= kMost / 2; ++nonce)
    ASSERT_EQ(Increment(leader, wire::kHkvNoSession, nonce), std::to_string(nonce));
  ASSERT_EQ(StatusOfOne(leader, wire::HkvKind::kWrite, 1001), wire::HkvStatus::kOk) << "its part of the second half";
  EXPECT_EQ(StatusOfOne(leader, wire::HkvKind::kWrite, 1002), wire::HkvStatus::kOverloaded);
  EXPECT_EQ(StatusOfOne(leader, wire::HkvKind::kCancel, 1003), wire::HkvStatus::kOverloaded);
  EXPECT_EQ(StatusOfOne(leader, wire::HkvKind::kWrite, 1001), wire::HkvStatus::kOk) << "what became of it";
  EXPECT_EQ(StatusOfOne(leader, wire::HkvKind::kCancel, 1001), wire::HkvStatus::kOk);
  EXPECT_EQ(Get(leader, 1), std::to_string(kMost / 2 + 1));
}

// They wait for a majority, as those of one key do whose entry is not committed yet.
TEST_P(NodeTest, AClientWhoseReadsFillANodeLeavesOthersTheirs) {
  WaitForLeader();
  for (const uint64_t gone : {2, 3}) Stop(gone);
  ASSERT_TRUE(Eventually([&] { return !StatusOf(1).leader.IsSet(); }));
  const auto ask = [this](UdpSocket& socket, uint64_t seq) {
    wire::HkvRequest request{.kind = wire::HkvKind::kGet, .client_id = 5, .seq = seq, .key = "n"};
    request.timeout_us = 60'000'000;
    socket.Send(members_[0].serve, wire::Encode(request));
    socket.Flush();
  };
  const std::unique_ptr<UdpSocket> flood = AnySocket();
  uint64_t sent = 0;
  ASSERT_TRUE(Eventually([&] {
    for (int i = 0; i < 4096; ++i) ask(*flood, ++sent);
    return Counter(1, "sources_limited", "reads") > 0;
  }));
  EXPECT_LT(StatusOf(1).waiting, raft::Options().reads_max) << "there is room";
  const std::unique_ptr<UdpSocket> other = AnySocket();
  ask(*other, 1);
  pollfd ready{.fd = other->fd(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&ready, 1, 30'000), 1);
  const std::vector<Datagram>& received = other->Receive(Now_ns());
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(wire::ParseHkvAnswer(received[0].bytes)->status, wire::HkvStatus::kNotLeader) << "it has waited";
}

TEST_P(NodeTest, WhatWasAnsweredIsThereAfterTheLeaderIsGone) {
  uint64_t leader = WaitForLeader();
  const uint64_t session = Open(leader);
  for (uint64_t seq = 1; seq <= 5; ++seq) EXPECT_EQ(Increment(leader, session, seq), std::to_string(seq));
  const uint64_t former = leader;
  Stop(former);
  leader = WaitForLeader();
  ASSERT_NE(leader, former);
  EXPECT_EQ(Increment(leader, session, 5), "5") << "not a second time";
  EXPECT_EQ(Increment(leader, session, 6), "6");
  Start(former);
  WaitForLeader();
  EXPECT_EQ(Get(former, 1), "6");
}

TEST_P(NodeTest, EverythingIsThereAfterAllWereStopped) {
  uint64_t leader = WaitForLeader();
  const uint64_t session = Open(leader);
  EXPECT_EQ(Increment(leader, session, 1), "1");
  for (uint64_t id = 1; id <= 3; ++id) Stop(id);
  for (uint64_t id = 1; id <= 3; ++id) Start(id);
  leader = WaitForLeader();
  EXPECT_EQ(Increment(leader, session, 1), "1");
  EXPECT_EQ(Increment(leader, session, 2), "2");
}

TEST_P(NodeTest, AStoppedLeaderHandsOver) {
  auto quickest = std::chrono::steady_clock::duration::max();  // the machine may stand still in the others
  for (int i = 0; i < 5 && quickest >= kHandsOverWithin; ++i) {
    const uint64_t leader = WaitForLeader();
    const auto begin = std::chrono::steady_clock::now();
    Stop(leader);
    quickest = std::min(quickest, std::chrono::steady_clock::now() - begin);
    EXPECT_NE(WaitForLeader(), leader);
    Start(leader);
  }
  EXPECT_LT(quickest, kHandsOverWithin) << "it waited for its second";
}

TEST_P(NodeTest, LeadershipIsNotHandedToTheDead) {
  auto quickest = std::chrono::steady_clock::duration::max();
  for (int i = 0; i < 2 || (i < 6 && quickest >= kHandsOverWithin); ++i) {
    const uint64_t leader = WaitForLeader();
    // The lowest number but the leader's dies: of several equal ones it would be the first choice.
    const uint64_t dead = leader == 1 ? 2 : 1;
    Stop(dead);
    const auto begin = std::chrono::steady_clock::now();
    // As long as the dead one might still be heard of.
    std::this_thread::sleep_for(100ms);
    Stop(leader);
    quickest = std::min(quickest, std::chrono::steady_clock::now() - begin);
    Start(dead);
    Start(leader);
  }
  EXPECT_LT(quickest, kHandsOverWithin);
}

TEST_P(NodeTest, LeadershipGoesToTheNamedNode) {
  const uint64_t leader = WaitForLeader();
  const uint64_t target = leader % 3 + 1;
  EXPECT_EQ(nodes_[target - 1]->node->Transfer(raft::NodeId(leader)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(nodes_[leader - 1]->node->Transfer(raft::NodeId(9)).code(), absl::StatusCode::kInvalidArgument);
  // On a busy machine an attempt may end before the target has heard of it, or another node may lead by then.
  EXPECT_TRUE(WaitUntilLeads(target));
}

TEST_P(NodeTest, TheLeaderAnnouncesItselfToTheProxy) {
  const wire::Key key = wire::DeriveProxyKey(wire::Key(), "proxy");
  std::optional<wire::Announcement> last;
  // By the leader's port: on a busy machine one that was deposed may announce itself once more behind its successor.
  std::map<uint16_t, std::pair<raft::Term, uint64_t>> announced;
  std::map<uint16_t, uint32_t> held_ms;  // by the leader's port: each has held for as long as it has run
  EXPECT_TRUE(Eventually([&] {
    for (const Datagram& datagram : proxy_socket_->Receive(Now_ns())) {
      const auto announcement = wire::OpenAnnouncement(datagram.bytes, key);
      EXPECT_TRUE(announcement.has_value());
      const std::pair now(announcement->term, announcement->sequence);
      EXPECT_LT(announced[announcement->leader_port], now);
      announced[announcement->leader_port] = now;
      EXPECT_GE(announcement->holds_ms, std::max(held_ms[announcement->leader_port], 1u)) << "0 says nothing";
      held_ms[announcement->leader_port] = announcement->holds_ms;
      EXPECT_LE(announcement->holds_ms, 1000u) << "it holds nothing for longer";
      last = announcement;
    }
    const uint64_t leader = Leader();
    return leader != 0 && last.has_value() && last->leader_port == members_[leader - 1].serve.port;
  }));
}

TEST_P(NodeTest, WhatIsNoRequestIsAnsweredWithAnErrorOrDropped) {
  const uint64_t leader = WaitForLeader();
  const std::unique_ptr<UdpSocket> socket = AnySocket();
  for (const std::string& bytes : {std::string(), std::string("x"), std::string(1400, '\xff'),
                                   std::string("\x48\x02\x63\x00", 4), std::string("\x48\x09", 2)}) {
    socket->Send(members_[leader - 1].serve, bytes);
    socket->Send(members_[leader - 1].peer, bytes);
  }
  socket->Flush();
  EXPECT_EQ(Open(leader) != 0, true) << "it lives on";
  std::vector<wire::HkvStatus> statuses;
  Eventually([&] {
    for (const Datagram& datagram : socket->Receive(Now_ns()))
      statuses.push_back(static_cast<wire::HkvStatus>(datagram.bytes[3]));
    return statuses.size() >= 2;
  });
  ASSERT_EQ(statuses.size(), 2u);
  EXPECT_EQ(statuses[0], wire::HkvStatus::kMalformed);
  EXPECT_EQ(statuses[1], wire::HkvStatus::kUnknownVersion);
}

class BusyNodeTest : public NodeTest {
 protected:
  BusyNodeTest() { waiting_max_ = 16; }
};
INSTANTIATE_TEST_SUITE_P(Durability, BusyNodeTest, testing::Values(Durability::kDisk, Durability::kMemory),
                         DurabilityOf);

// Node 1 serves one address that no test's socket has, the others every loopback address.
class ListedClientsTest : public NodeTest {
 protected:
  NodeConfig ConfigOf(uint64_t id) const override {
    NodeConfig config = NodeTest::ConfigOf(id);
    if (id == 1) config.clients = net::Networks({*net::Network::Parse("127.255.0.1")});
    return config;
  }
};
INSTANTIATE_TEST_SUITE_P(Durability, ListedClientsTest, testing::Values(Durability::kMemory), DurabilityOf);

TEST_P(ListedClientsTest, WhatComesFromElsewhereGetsNoAnswerAndIsCounted) {
  WaitForLeader();
  EXPECT_NE(Open(2), 0u);
  const std::unique_ptr<UdpSocket> stranger = AnySocket();
  for (const std::string& datagram : {wire::Encode(wire::HkvRequest{.kind = wire::HkvKind::kOpen, .seq = 1}),
                                      std::string("\x48\x09 of another version")}) {
    stranger->Send(members_[0].serve, datagram);
  }
  stranger->Flush();
  EXPECT_TRUE(Eventually([&] { return Counter(1, "hkv_dropped", "source") == 2; }));
  EXPECT_EQ(Counter(1, "hkv_answers", "unknown_version"), 0u);
  EXPECT_TRUE(stranger->Receive(Now_ns()).empty());
  NetAddress listed = NetAddress::Parse("127.255.0.1:1").value();
  listed.port = 0;
  const std::unique_ptr<UdpSocket> client = UdpSocket::Bind(listed, 1 << 20, 2048).value();
  client->Send(members_[0].serve, wire::Encode(wire::HkvRequest{.kind = wire::HkvKind::kOpen, .seq = 2}));
  client->Flush();
  EXPECT_TRUE(Eventually([&] { return !client->Receive(Now_ns()).empty(); }));
}

// Nodes that serve named clients alone.
class NamedClientsTest : public NodeTest {
 protected:
  NodeConfig ConfigOf(uint64_t id) const override {
    NodeConfig config = NodeTest::ConfigOf(id);
    config.anonymous = false;
    config.named_clients = {
        {.name = "web", .key_file = key_file_, .keys = kWeb, .read = {"n", "app/"}, .write = {"n"}}};
    return config;
  }
  // The answer, if it is one under this key; and its bytes.
  std::optional<wire::HkvAnswer> AskAs(uint64_t node, const wire::HkvRequest& request, const wire::Key& key,
                                       std::string* sealed = nullptr) {
    const uint64_t now_ms = static_cast<uint64_t>(absl::ToUnixMillis(absl::Now()));
    const std::string datagram = wire::SealHkvRequest(wire::Encode(request), "web", now_ms, key);
    if (sealed != nullptr) *sealed = datagram;
    return AskRaw(node, datagram, &key);
  }
  // `key` null: an answer without a tag is wanted.
  std::optional<wire::HkvAnswer> AskRaw(uint64_t node, const std::string& datagram, const wire::Key* key) {
    const std::unique_ptr<UdpSocket> socket = AnySocket();
    const uint64_t until_ns = Now_ns() + 10'000'000'000;
    while (Now_ns() < until_ns) {  // a leader may lose its office on a busy machine
      socket->Send(members_[node - 1].serve, datagram);
      socket->Flush();
      pollfd ready{.fd = socket->fd(), .events = POLLIN, .revents = 0};
      if (poll(&ready, 1, 2000) != 1) continue;
      const std::vector<Datagram>& received = socket->Receive(Now_ns());
      if (received.size() != 1) continue;
      EXPECT_LE(received[0].bytes.size(), datagram.size()) << "never more than was asked with";
      if (key != nullptr && !wire::IsHkvTagRight(received[0].bytes, *key)) return std::nullopt;
      EXPECT_EQ(wire::HasHkvTrailer(received[0].bytes), key != nullptr);
      const std::optional<wire::HkvAnswer> answer = wire::ParseHkvAnswer(received[0].bytes);
      if (answer.has_value() && answer->status != wire::HkvStatus::kNotLeader) return answer;
    }
    return std::nullopt;
  }
  static wire::HkvRequest IncrementOnce(std::string key, uint64_t nonce) {
    return {.kind = wire::HkvKind::kWrite,
            .timeout_us = 4'000'000,
            .seq = nonce,
            .operations = {{.kind = kv::OperationKind::kIncrement, .key = std::move(key), .delta = 1}}};
  }

  std::string key_file_;
  static constexpr wire::Key kWeb = {.bytes = {1, 2, 3}}, kOther = {.bytes = {1, 2, 4}};
};
INSTANTIATE_TEST_SUITE_P(Durability, NamedClientsTest, testing::Values(Durability::kMemory), DurabilityOf);

TEST_P(NamedClientsTest, AProvenClientIsServedByEveryNodeAndGetsProvenAnswers) {
  const uint64_t leader = WaitForLeader();
  for (uint64_t n = 0; n < 3; ++n) {
    const uint64_t node = (leader - 1 + n) % 3 + 1;
    const auto answer = AskAs(node, IncrementOnce("n", 100 + n), kWeb);
    ASSERT_TRUE(answer.has_value()) << "node " << node;
    EXPECT_EQ(answer->status, wire::HkvStatus::kOk);
    EXPECT_EQ(answer->values, std::vector<std::string>{std::to_string(n + 1)});
    const auto value = AskAs(node, {.kind = wire::HkvKind::kGet, .client_id = 5, .seq = n, .key = "n"}, kWeb);
    ASSERT_TRUE(value.has_value());
    EXPECT_EQ(value->value, std::to_string(n + 1));
  }
  const auto opened = AskAs(leader, {.kind = wire::HkvKind::kOpen, .seq = 77}, kWeb);
  ASSERT_TRUE(opened.has_value());
  EXPECT_NE(opened->session, 0u);
}

TEST_P(NamedClientsTest, WhatIsNotProvenOrNotAllowedIsDeniedWhicheverNodeIsAsked) {
  WaitForLeader();
  for (uint64_t node = 1; node <= 3; ++node) {
    const wire::HkvRequest increment = IncrementOnce("n", 200 + node);
    const auto anonymous = AskRaw(node, wire::Encode(increment), nullptr);
    ASSERT_TRUE(anonymous.has_value());
    EXPECT_EQ(anonymous->status, wire::HkvStatus::kDenied);
    EXPECT_EQ(anonymous->denial, wire::HkvDenial::kAnonymous);
    const uint64_t now_ms = static_cast<uint64_t>(absl::ToUnixMillis(absl::Now()));
    const auto unproven = AskRaw(node, wire::SealHkvRequest(wire::Encode(increment), "web", now_ms, kOther), nullptr);
    ASSERT_TRUE(unproven.has_value());
    EXPECT_EQ(unproven->denial, wire::HkvDenial::kUnproven);
    const auto recorded =
        AskRaw(node, wire::SealHkvRequest(wire::Encode(increment), "web", now_ms - 60'000, kWeb), &kWeb);
    ASSERT_TRUE(recorded.has_value());
    EXPECT_EQ(recorded->denial, wire::HkvDenial::kClock);
    const auto no_right = AskAs(node, IncrementOnce("app/x", 300 + node), kWeb);
    ASSERT_TRUE(no_right.has_value());
    EXPECT_EQ(no_right->denial, wire::HkvDenial::kWrite);
    EXPECT_EQ(no_right->denied_key, "app/x");
    for (const char* reason : {"anonymous", "unproven", "clock", "write"})
      EXPECT_GE(Counter(node, "hkv_denied", reason), 1u) << reason;
  }
  const auto value = AskAs(1, {.kind = wire::HkvKind::kGet, .client_id = 5, .seq = 1, .key = "n"}, kWeb);
  ASSERT_TRUE(value.has_value());
  EXPECT_EQ(value->status, wire::HkvStatus::kNotFound) << "none of them was done";
}

TEST_P(NamedClientsTest, AKeyFileThatIsReadAgainChangesTheKey) {
  const uint64_t leader = WaitForLeader();
  Stop(leader);
  const std::string file = folder_ + "/web.key";
  const auto write = [&file](const wire::Key& key) {
    std::ofstream(file) << wire::FormatKey(key) << "\n";
    std::filesystem::permissions(file, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  };
  write(kWeb);
  key_file_ = file;
  Start(leader);
  WaitForLeader();
  Node& node = *nodes_[leader - 1]->node;
  const wire::HkvRequest get{.kind = wire::HkvKind::kGet, .client_id = 5, .seq = 1, .key = "n"};
  EXPECT_TRUE(AskAs(leader, get, kWeb).has_value());
  write(kWeb);
  std::ofstream(file, std::ios::app) << wire::FormatKey(kOther) << "\n";
  EXPECT_EQ(node.ReloadKeys(false).status(), absl::OkStatus());
  EXPECT_TRUE(AskAs(leader, get, kWeb).has_value());
  EXPECT_TRUE(AskAs(leader, get, kOther).has_value()) << "while it is changed both keys prove the client";
  write(kOther);
  EXPECT_EQ(node.ReloadKeys(false).status(), absl::OkStatus());
  EXPECT_TRUE(AskAs(leader, get, kOther).has_value());
  EXPECT_FALSE(AskAs(leader, get, kWeb).has_value()) << "the former key proves nothing any more";
  std::ofstream(file) << "no key";
  const absl::Status refused = node.ReloadKeys(false).status();
  EXPECT_TRUE(absl::StrContains(refused.message(), "web.key\" expected one key or two")) << refused;
  EXPECT_TRUE(AskAs(leader, get, kOther).has_value()) << "and nothing changed";
}

// The nodes' own keys stand in the configuration; only the client's are in a file.
TEST_P(NamedClientsTest, AReloadedKeyOfAClientIsNoKeyOfTheConfiguration) {
  WaitForLeader();
  Stop(1);
  key_file_ = folder_ + "/web.key";
  Start(1);
  Node& node = *nodes_[0]->node;
  const NodeConfig config = ConfigOf(1);
  const auto refused = [&](const wire::Key& key) {
    std::ofstream(key_file_) << wire::FormatKey(key) << "\n";
    std::filesystem::permissions(key_file_, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    return std::string(node.ReloadKeys(true).status().message());
  };
  const wire::Key& announce = config.announce_keys->seals().key;
  EXPECT_TRUE(absl::StrContains(refused(config.cluster_keys.seals().key), "web.key has the same key as the cluster"));
  EXPECT_TRUE(
      absl::StrContains(refused(wire::DeriveProxyKey(announce, "proxy")), "web.key has the same key as a proxy"));
  EXPECT_EQ(Counter(1, "key_changes", ""), 0u);
  EXPECT_EQ(refused(kOther), "");
}

// Each node has the cluster key in a file of its own.
class ClusterKeyTest : public NodeTest {
 protected:
  NodeConfig ConfigOf(uint64_t id) const override {
    NodeConfig config = NodeTest::ConfigOf(id);
    config.cluster_key_file = FileOf(id);
    Write(id, {kFormer});
    config.cluster_keys = kFormer;
    config.named_clients = {{.name = "web", .key_file = folder_ + "/web.key", .keys = kClient, .read = {""}}};
    WriteKeys(folder_ + "/web.key", {kClient});
    return config;
  }
  std::string FileOf(uint64_t id) const { return folder_ + "/" + std::to_string(id) + ".key"; }
  void Write(uint64_t id, const std::vector<wire::Key>& keys) const { WriteKeys(FileOf(id), keys); }
  static void WriteKeys(const std::string& path, const std::vector<wire::Key>& keys) {
    std::ofstream file(path);
    for (const wire::Key& key : keys) file << wire::FormatKey(key) << "\n";
    file.close();
    std::filesystem::permissions(path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  }
  static wire::Key KeyOf(uint8_t byte) {
    wire::Key key;
    key.bytes.fill(byte);
    return key;
  }
  absl::Status Reload(uint64_t id, const std::vector<wire::Key>& keys, bool force = false) {
    Write(id, keys);
    return nodes_[id - 1]->node->ReloadKeys(force).status();
  }
  // Members tell which keys they have twice a second while one is changed.
  bool ReloadInTheEnd(uint64_t id, const std::vector<wire::Key>& keys) {
    absl::Status last;
    const bool done = Eventually([&] { return (last = Reload(id, keys)).ok(); });
    EXPECT_TRUE(done) << last;
    return done;
  }

  const wire::Key kFormer = KeyOf(1), kNext = KeyOf(2), kClient = KeyOf(3);
};
INSTANTIATE_TEST_SUITE_P(Durability, ClusterKeyTest, testing::Values(Durability::kMemory), DurabilityOf);

TEST_P(ClusterKeyTest, IsExchangedInThreeStepsAndNoStepCutsAMemberOff) {
  const uint64_t leader = WaitForLeader();
  const uint64_t session = Open(leader);
  EXPECT_TRUE(absl::StrContains(Reload(1, {kNext}).message(), "does not have the key")) << "not in one step";
  EXPECT_EQ(StatusOf(1).keys.cluster_other(), "");
  EXPECT_EQ(Reload(1, {kFormer, kNext}), absl::OkStatus());
  EXPECT_TRUE(
      absl::StrContains(Reload(1, {kNext, kFormer}).message(), "add it there first (`hedgerow-node keys add`)"));
  for (uint64_t id = 2; id <= 3; ++id) EXPECT_EQ(Reload(id, {kFormer, kNext}), absl::OkStatus());
  Write(1, {kFormer, kNext});
  for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(ReloadInTheEnd(id, {kNext, kFormer}));
  EXPECT_EQ(Increment(leader, session, 1), "1");
  for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(ReloadInTheEnd(id, {kNext}));
  for (uint64_t id = 1; id <= 3; ++id) {
    const NodeStatus status = StatusOf(id);
    EXPECT_EQ(status.keys.cluster_other(), "");
    EXPECT_GE(CounterIn(status, "key_changes", ""), 3u);
  }
  EXPECT_EQ(Increment(leader % 3 + 1, session, 2), "2") << "they hear each other under the new key alone";
}

// Though no key is changed, and long after they met. A status alone makes no traffic.
TEST_P(ClusterKeyTest, AnAdministratorHasTheMembersAskedForTheirKeys) {
  ASSERT_NE(WaitForLeader(), 0u);
  absl::SleepFor(absl::Milliseconds(3100));
  const auto have_told = [&] {
    const NodeStatus status = StatusOf(1);
    return std::all_of(status.peers.begin(), status.peers.end(),
                       [](const v1::Peer& peer) { return !peer.sealing_key().empty(); });
  };
  EXPECT_FALSE(have_told());
  absl::SleepFor(absl::Milliseconds(700));
  EXPECT_FALSE(have_told());
  nodes_[0]->node->AskForKeys();
  EXPECT_TRUE(Eventually(have_told));
}

TEST_P(ClusterKeyTest, AMemberThatIsDownHoldsAChangeUpUntilItIsForced) {
  const uint64_t leader = WaitForLeader();
  const uint64_t down = leader % 3 + 1, other = down % 3 + 1;
  for (const uint64_t id : {leader, other}) EXPECT_EQ(Reload(id, {kFormer, kNext}), absl::OkStatus());
  Stop(down);
  // What it has told is worth something for some seconds.
  EXPECT_TRUE(Eventually([&] {
    return absl::StrContains(Reload(other, {kNext, kFormer}).message(), "has not told which keys it has");
  }));
  EXPECT_EQ(Reload(other, {kNext, kFormer}, /*force=*/true), absl::OkStatus());
  EXPECT_EQ(Reload(leader, {kNext, kFormer}, /*force=*/true), absl::OkStatus());
  const uint64_t leads = WaitForLeader();
  EXPECT_EQ(Increment(leads, Open(leads), 1), "1");
}

TEST_P(ClusterKeyTest, AFileThatCannotBeUsedChangesNothing) {
  WaitForLeader();
  Node& node = *nodes_[0]->node;
  const std::string seals = StatusOf(1).keys.cluster_seals();
  std::ofstream(FileOf(1)) << "no key";
  EXPECT_TRUE(absl::StrContains(node.ReloadKeys(true).status().message(), "1.key\" expected one key or two"));
  EXPECT_TRUE(
      absl::StrContains(Reload(1, {kClient, kFormer}, true).message(), "web.key has the same key as the cluster"));
  EXPECT_EQ(StatusOf(1).keys.cluster_seals(), seals);
  EXPECT_EQ(CounterIn(StatusOf(1), "key_changes", ""), 0u);
}

TEST_P(NamedClientsTest, AReplayedWriteIsAnsweredAndDoesNothingNew) {
  const uint64_t leader = WaitForLeader();
  std::string recorded;
  ASSERT_EQ(AskAs(leader, IncrementOnce("n", 400), kWeb, &recorded)->values, std::vector<std::string>{"1"});
  for (uint64_t node = 1; node <= 3; ++node)
    EXPECT_EQ(AskRaw(node, recorded, &kWeb)->values, std::vector<std::string>{"1"})
        << "from another socket, to node " << node;
  EXPECT_EQ(AskAs(leader, {.kind = wire::HkvKind::kGet, .client_id = 5, .seq = 2, .key = "n"}, kWeb)->value, "1");
}

TEST_P(BusyNodeTest, TooManyRequestsMakeItAskForNoHedges) {
  const uint64_t leader = WaitForLeader();
  const uint64_t session = Open(leader);
  const std::unique_ptr<UdpSocket> socket = AnySocket();
  constexpr uint64_t kBurst = 64;
  for (uint64_t seq = 1; seq <= kBurst; ++seq) {
    socket->Send(members_[leader - 1].serve,
                 wire::Encode({.kind = wire::HkvKind::kWrite,
                               .timeout_us = 4'000'000,
                               .client_id = session,
                               .seq = seq,
                               .lowest_unanswered = 1,
                               .token = TokenOf(session),
                               .operations = {{.kind = kv::OperationKind::kPut, .key = "k", .value = "v"}}}));
  }
  socket->Flush();
  uint64_t refused = 0, done = 0, asked_for_no_hedge = 0;
  EXPECT_TRUE(Eventually([&] {
    for (const Datagram& datagram : socket->Receive(Now_ns())) {
      const auto answer = wire::ParseHkvAnswer(datagram.bytes);
      if (!answer.has_value()) continue;
      ++(answer->status == wire::HkvStatus::kOverloaded ? refused : done);
      asked_for_no_hedge += answer->pushback == wire::kHkvNeverHedge;
      EXPECT_TRUE(answer->status != wire::HkvStatus::kOverloaded || answer->pushback == wire::kHkvNeverHedge);
    }
    return refused + done == kBurst;
  }));
  EXPECT_GT(refused, 0u);
  EXPECT_GT(done, 0u);
  EXPECT_GE(asked_for_no_hedge, refused);
  EXPECT_EQ(Increment(leader, session, kBurst + 1), "1");
  const auto rested = Ask(leader, {.kind = wire::HkvKind::kGet, .client_id = 5, .seq = 1, .key = "n"});
  ASSERT_TRUE(rested.has_value());
  EXPECT_EQ(rested->pushback, 0u) << "it has room again";
}

TEST_P(NodeTest, ANodeOfAnotherClusterIsNotBelieved) {
  const uint64_t leader = WaitForLeader();
  wire::Key other_key;
  wire::PeerCodec forger({.cluster_id = 7, .keys = other_key, .self = raft::NodeId(leader % 3 + 1), .incarnation = 3});
  const std::unique_ptr<UdpSocket> socket = AnySocket();
  const raft::Term term = StatusOf(leader).term;
  for (int i = 0; i < 50; ++i) {
    socket->Send(members_[leader - 1].peer, forger.Seal(raft::NodeId(leader), raft::Term(term.value() + 1000),
                                                        raft::AppendReply{.accepted = false}));
  }
  socket->Flush();
  EXPECT_TRUE(Eventually([&] { return Counter(leader, "peer_dropped", "key") == 50; }));
  EXPECT_LT(StatusOf(leader).term.value(), term.value() + 1000);
}

}  // namespace
}  // namespace hedgerow::node
