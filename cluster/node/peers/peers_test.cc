// SPDX-License-Identifier: Apache-2.0
//
// What leaves for the other nodes and comes from them, as datagrams: which appends say that another follows,
// what becomes of those to nodes that have left, and messages in pieces.
#include "cluster/node/identity/identity_keeper.h"
#include "cluster/node/peers/peers.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bpf/abi/peer_abi.h"
#include "cluster/kv/command.h"
#include "cluster/node/testing/socket_testing.h"
#include "cluster/raft/log.h"
#include "cluster/raft/options.h"
#include "cluster/wire/peer_pieces.h"

namespace hedgerow::node {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class PeersTest : public testing::Test {
 protected:
  PeersTest() { peers_.SetMembers(Others(), 0, 0, 0); }

  struct Folder {
    Folder() { EXPECT_NE(mkdtemp(path.data()), nullptr); }
    ~Folder() { std::filesystem::remove_all(path); }
    std::string path = testing::TempDir() + "hedgerow-peers-test.XXXXXX";
  };

  std::vector<PeerState> Others() const {
    return {{.id = raft::NodeId(2), .address = receiver_->LocalAddress().value(), .slot = 7}};
  }
  void Append(uint64_t prev_index, uint64_t count, const raft::Entry& like = {.term = raft::Term(1)}) {
    raft::AppendRequest request{.prev_index = raft::LogIndex(prev_index), .prev_term = raft::Term(1)};
    for (uint64_t i = 1; i <= count; ++i) {
      request.entries.push_back(like);
      request.entries.back().index = raft::LogIndex(prev_index + i);
    }
    peers_.Send({.from = raft::NodeId(1), .to = raft::NodeId(2), .term = raft::Term(1), .body = std::move(request)});
  }
  // The flags of the appends that leave.
  std::vector<uint32_t> Flushed() {
    peers_.Flush();
    sender_->Flush();
    std::vector<uint32_t> flags;
    for (const Datagram& datagram : receiver_->Receive(0)) {
      EXPECT_GE(datagram.bytes.size(), wire::kPeerHeader_bytes);
      if (datagram.bytes[offsetof(hr_peer_header, kind)] != HR_PEER_APPEND) continue;
      uint32_t value = 0;
      std::memcpy(&value, datagram.bytes.data() + wire::kPeerHeader_bytes + offsetof(hr_peer_append, flags),
                  sizeof(value));
      flags.push_back(value);
    }
    return flags;
  }

  // Node 2 says this at `now_ns`. What node 1 says to it then.
  std::vector<wire::Opened> SentTo2(raft::Term term, const wire::PeerBody& body, uint64_t now_ns) {
    const std::string bytes = other_.Seal(raft::NodeId(1), term, body);
    peers_.Take({.from = receiver_->LocalAddress().value(), .bytes = bytes, .arrived_ns = now_ns}, now_ns, nobody_);
    return Greeted(now_ns);
  }
  std::vector<wire::Opened> Greeted(uint64_t now_ns) {
    peers_.Greet(now_ns);
    sender_->Flush();
    std::vector<wire::Opened> sent;
    for (const Datagram& datagram : receiver_->Receive(0)) sent.push_back(other_.Open(datagram.bytes));
    return sent;
  }
  // From now on node 2's incarnation is known.
  void Meet2() {
    const std::vector<wire::Opened> greeting = Greeted(1);
    ASSERT_EQ(Count<wire::Hello>(greeting), 1u);
    SentTo2(wire::CopyIdTerm(22), wire::HelloAck{.nonce = std::get<wire::Hello>(greeting[0].body).nonce}, 1);
  }
  void Take(const std::string& bytes, uint64_t now_ns = 1) {
    peers_.Take({.from = receiver_->LocalAddress().value(), .bytes = bytes, .arrived_ns = now_ns}, now_ns, nobody_);
  }
  uint64_t Dropped(wire::DropReason reason) const { return peers_.counters().drops[static_cast<size_t>(reason)]; }
  // An append of node 2 with one entry that has so many bytes.
  std::string LargeAppend(size_t bytes) {
    raft::AppendRequest append{.prev_index = raft::LogIndex(4), .prev_term = raft::Term(1)};
    append.entries.push_back({.term = raft::Term(3),
                              .index = raft::LogIndex(5),
                              .kind = raft::EntryKind::kCommand,
                              .payload = raft::Payload(std::string(bytes, 'x'))});
    return other_.Seal(raft::NodeId(1), raft::Term(3), std::move(append));
  }

  template <typename Body>
  static size_t Count(const std::vector<wire::Opened>& sent) {
    return static_cast<size_t>(std::count_if(sent.begin(), sent.end(), [](const wire::Opened& opened) {
      return std::holds_alternative<Body>(opened.body);
    }));
  }

  struct Nobody final : PeerReceiver {
    void Receive(uint64_t, raft::Message message) override { messages.push_back(std::move(message)); }
    void Receive(uint64_t, kv::Request request) override { requests.push_back(std::move(request)); }
    void Receive(raft::NodeId, uint64_t, const kv::Answer&) override {}
    void Receive(const raft::LeaderResigns&) override {}
    void Receive(const raft::LeaderStalled& hint) override { stall_hints.push_back(hint); }
    Promised PromisedBy(raft::NodeId) const override { return promised; }

    std::vector<raft::Message> messages;
    std::vector<kv::Request> requests;
    std::vector<raft::LeaderStalled> stall_hints;
    Promised promised;
  };

  Nobody nobody_;
  using Mode = wire::PeerTraits::Durability;

  wire::PeerCodec other_{{.cluster_id = 7, .keys = wire::KeyRing(), .self = raft::NodeId(2), .incarnation = 6}};
  std::unique_ptr<UdpSocket> sender_ = AnySocket();
  std::unique_ptr<UdpSocket> receiver_ = AnySocket();
  uint64_t drawn_ = 0;
  const Folder folder_;  // outlives the keeper, whose thread writes there
  // Node 2's copy of the log is on record, as it is once the two have met.
  const std::unique_ptr<IdentityKeeper> keeper_ = [this] {
    NodeConfig config;
    config.cluster_id = 7;
    config.self = raft::NodeId(1);
    config.data_dir = folder_.path;
    std::unique_ptr<IdentityKeeper> keeper = IdentityKeeper::Open(config).value();
    EXPECT_EQ(keeper->CountStart(11, ""), absl::OkStatus());
    EXPECT_TRUE(absl::IsUnavailable(keeper->Record(raft::NodeId(2), 22)));
    EXPECT_EQ(keeper->Flush(), absl::OkStatus());
    return keeper;
  }();
  Peers peers_{*sender_,
               {.cluster_id = 7,
                .keys = wire::KeyRing(),
                .self = raft::NodeId(1),
                .incarnation = 5,
                .traits = {.durability = Mode::kDisk, .features = 3, .version_min = 3, .version_max = 3}},
               *keeper_,
               [this] { return ++drawn_; }};
};

TEST_F(PeersTest, AnAppendSaysThatTheNextOneLeftWithIt) {
  Append(0, 2);
  Append(2, 1);
  Append(9, 1);
  EXPECT_THAT(Flushed(), ElementsAre(HR_PEER_APPEND_MORE, 0, 0)) << "the last does not begin where one ends";
}

TEST_F(PeersTest, TheLastOneNeverSaysSo) {
  Append(0, 1);
  EXPECT_THAT(Flushed(), ElementsAre(0)) << "or nobody would acknowledge it";
  Append(1, 1);
  EXPECT_THAT(Flushed(), ElementsAre(0));
}

TEST_F(PeersTest, ABurstIsAcknowledgedNowAndThen) {
  for (uint64_t prev_index = 0; prev_index < 20; ++prev_index) Append(prev_index, 1);
  const std::vector<uint32_t> flags = Flushed();
  ASSERT_EQ(flags.size(), 20u);
  uint32_t unsaid = 0;
  for (const uint32_t flag : flags) {
    unsaid = flag == 0 ? 0 : unsaid + 1;
    EXPECT_LE(unsaid, 7u) << "the last one's loss would leave all of them unsaid";
  }
  EXPECT_EQ(std::count(flags.begin(), flags.end(), 0u), 3);
}

TEST_F(PeersTest, NoAcknowledgementWaitsForWhatOnlyAProcessStores) {
  Append(0, 1);
  Append(1, 1, {.term = raft::Term(1), .payload = raft::Payload(std::string(1200, 'x'))});
  EXPECT_THAT(Flushed(), ElementsAre(0)) << "a kernel part stores nothing that comes in pieces";
  Append(2, 1);
  Append(3, 1, {.term = raft::Term(1), .kind = raft::EntryKind::kConfiguration});
  EXPECT_THAT(Flushed(), ElementsAre(0, 0));
  Append(4, 1);
  Append(5, 1, {.term = raft::Term(0)});
  EXPECT_THAT(Flushed(), ElementsAre(0, 0)) << "not of the leader's own term";
}

// Its slot is beyond those of members.
TEST_F(PeersTest, WhatWaitsForANodeThatHasLeftMeanwhileGoesNowhere) {
  Append(0, 2);
  Append(2, 1);
  peers_.SetMembers({}, 1, 1, 0);
  EXPECT_THAT(Flushed(), IsEmpty());
  EXPECT_EQ(peers_.counters().nowhere, 2u);
}

// The address of the configuration is dead; the member was started at another one.
TEST_F(PeersTest, AMemberIsReachedWhereItAnswersUntilItIsHeardAtItsOwnAddress) {
  const std::unique_ptr<UdpSocket> elsewhere = AnySocket();
  const auto take = [this](const NetAddress& from, raft::Term term, const wire::PeerBody& body, uint64_t now_ns) {
    peers_.Take({.from = from, .bytes = other_.Seal(raft::NodeId(1), term, body), .arrived_ns = now_ns}, now_ns,
                nobody_);
    peers_.Greet(now_ns);
    sender_->Flush();
  };
  const auto sent_to = [this](UdpSocket& socket) {
    std::vector<wire::Opened> sent;
    for (const Datagram& datagram : socket.Receive(0)) sent.push_back(other_.Open(datagram.bytes));
    return sent;
  };
  const NetAddress there = elsewhere->LocalAddress().value();
  take(there, wire::CopyIdTerm(22), wire::Hello{.nonce = 9}, 1);
  const std::vector<wire::Opened> sent = sent_to(*elsewhere);
  EXPECT_EQ(Count<wire::HelloAck>(sent), 1u) << "an answer goes to where the question came from";
  ASSERT_EQ(Count<wire::Hello>(sent), 1u);
  EXPECT_EQ(Count<wire::Hello>(sent_to(*receiver_)), 1u) << "it is looked for at its own address as well";
  Append(0, 1);
  EXPECT_EQ(Flushed().size(), 1u) << "a HELLO may be a recording, and moves nothing";

  const auto question = std::find_if(sent.begin(), sent.end(), [](const wire::Opened& opened) {
    return std::holds_alternative<wire::Hello>(opened.body);
  });
  take(there, wire::CopyIdTerm(22), wire::HelloAck{.nonce = std::get<wire::Hello>(question->body).nonce}, 2);
  EXPECT_EQ(peers_.states()[0].answers_at, there);
  Append(1, 1);
  EXPECT_TRUE(Flushed().empty());
  EXPECT_EQ(elsewhere->Receive(0).size(), 1u);

  // It is moved there: nothing changes but what the configuration says.
  std::vector<PeerState> moved = Others();
  moved[0].address = there;
  peers_.SetMembers(moved, 1, 1, 3);
  EXPECT_EQ(peers_.states()[0].answers_at.port, 0);
  // It is moved to where it is not.
  peers_.SetMembers(Others(), 2, 2, 4);
  EXPECT_EQ(peers_.states()[0].reached_at(), there);
  take(Others()[0].address, raft::Term(1), raft::Heartbeat{.round = 1}, 5);
  EXPECT_EQ(peers_.states()[0].reached_at(), Others()[0].address);
}

// The kernel would copy it to the address of the configuration.
TEST_F(PeersTest, NothingIsBroadcastToAMemberThatAnswersElsewhere) {
  const std::unique_ptr<UdpSocket> third = AnySocket();
  std::vector<PeerState> others = Others();
  others.push_back({.id = raft::NodeId(3), .address = third->LocalAddress().value(), .slot = 6});
  peers_.SetMembers(others, 1, 1, 0);
  peers_.SetBroadcast(0, 1u << 7 | 1u << 6);
  const auto heartbeats = [this] {
    for (const uint64_t to : {2, 3}) {
      peers_.Send({.from = raft::NodeId(1),
                   .to = raft::NodeId(to),
                   .term = raft::Term(1),
                   .body = raft::Heartbeat{.round = 1}});
    }
    const uint64_t before = peers_.counters().broadcasts;
    peers_.Flush();
    return peers_.counters().broadcasts - before;
  };
  EXPECT_EQ(heartbeats(), 1u);
  const std::vector<wire::Opened> greeting = Greeted(1);
  for (const wire::Opened& opened : greeting) {
    const auto* const hello = std::get_if<wire::Hello>(&opened.body);
    if (hello == nullptr) continue;
    const std::string ack = other_.Seal(raft::NodeId(1), wire::CopyIdTerm(22), wire::HelloAck{.nonce = hello->nonce});
    peers_.Take({.from = third->LocalAddress().value(), .bytes = ack, .arrived_ns = 1}, 1, nobody_);
  }
  ASSERT_NE(peers_.states()[0].answers_at.port, 0);
  EXPECT_EQ(heartbeats(), 0u);
}

// Node 2 has promised node 1 something in a former incarnation, and starts with less.
TEST_F(PeersTest, AMemberThatStartsWithLessThanItPromisedIsNotBelievedAndIsTold) {
  const auto opened_as = [](const std::vector<wire::Opened>& sent, auto found) {
    for (const wire::Opened& opened : sent) {
      if (std::holds_alternative<decltype(found)>(opened.body)) return opened;
    }
    ADD_FAILURE() << "it was not said";
    return sent.at(0);
  };
  // Its answer to node 1's question. The incarnation that node 1 knows it to be in then.
  const auto answer = [&](uint64_t now_ns, const wire::Started& started) {
    std::vector<wire::Opened> sent =
        SentTo2(raft::Term(5), raft::Heartbeat{.round = 1}, now_ns);  // in its new incarnation
    const auto nonce = std::get<wire::Hello>(opened_as(sent, wire::Hello()).body).nonce;
    SentTo2(wire::CopyIdTerm(22), wire::HelloAck{.nonce = nonce, .started = started}, now_ns);
    return peers_.IncarnationOf(raft::NodeId(2));
  };
  // How node 1 answers its question.
  const auto answer_term = [&](uint64_t now_ns, const wire::Started& started) {
    const auto sent = SentTo2(wire::CopyIdTerm(22), wire::Hello{.nonce = 9, .started = started}, now_ns);
    return opened_as(sent, wire::HelloAck()).header.term;
  };
  const auto in_incarnation = [this](uint64_t incarnation) {
    other_ = wire::PeerCodec(
        {.cluster_id = 7, .keys = wire::KeyRing(), .self = raft::NodeId(2), .incarnation = incarnation});
  };
  constexpr uint64_t kSecond_ns = 1'000'000'000;
  const wire::Started first{.starts = 1, .term = raft::Term(5), .last = raft::LogIndex(3)};
  ASSERT_EQ(answer(kSecond_ns, first), 6u);
  nobody_.promised = {.term = raft::Term(5), .last = raft::LogIndex(10)};
  EXPECT_EQ(answer_term(2 * kSecond_ns, first), wire::CopyIdTerm(11)) << "it has promised since it started";

  in_incarnation(7);
  const wire::Started short_log{.starts = 2, .term = raft::Term(5), .last = raft::LogIndex(9)};
  EXPECT_EQ(answer_term(3 * kSecond_ns, short_log), wire::kForeignLogTerm);
  EXPECT_EQ(answer(4 * kSecond_ns, short_log), 6u) << "nothing of it is believed";
  const wire::Started old_term{.starts = 2, .term = raft::Term(4), .last = raft::LogIndex(99)};
  EXPECT_EQ(answer_term(5 * kSecond_ns, old_term), wire::kForeignLogTerm);
  const wire::Started later_term{.starts = 2, .term = raft::Term(6), .last = raft::LogIndex(2)};
  EXPECT_EQ(answer_term(6 * kSecond_ns, later_term), wire::CopyIdTerm(11)) << "another leader may have truncated it";
  EXPECT_EQ(answer_term(7 * kSecond_ns, {}), wire::CopyIdTerm(11)) << "a program from before does not say";
  const wire::Started whole{.starts = 2, .term = raft::Term(5), .last = raft::LogIndex(10)};
  EXPECT_EQ(answer_term(8 * kSecond_ns, whole), wire::CopyIdTerm(11));
  EXPECT_EQ(answer(9 * kSecond_ns, whole), 7u);
}

// What it has on record is older than what it has answered since.
TEST_F(PeersTest, TheWordOfAMemberThatWentBackCountsForNothing) {
  constexpr uint64_t kSecond_ns = 1'000'000'000;
  const auto nonce = [&](uint64_t now_ns) {
    for (const wire::Opened& opened : SentTo2(raft::Term(5), raft::Heartbeat{.round = 1}, now_ns)) {
      if (const auto* hello = std::get_if<wire::Hello>(&opened.body); hello != nullptr) return hello->nonce;
    }
    ADD_FAILURE() << "it does not ask";
    return uint64_t{0};
  };
  const auto in_incarnation = [this](uint64_t incarnation) {
    other_ = wire::PeerCodec(
        {.cluster_id = 7, .keys = wire::KeyRing(), .self = raft::NodeId(2), .incarnation = incarnation});
  };
  const wire::Started fifth{.starts = 5, .term = raft::Term(5), .last = raft::LogIndex(3)};
  SentTo2(wire::CopyIdTerm(22), wire::HelloAck{.nonce = nonce(kSecond_ns), .started = fifth}, kSecond_ns);
  ASSERT_EQ(peers_.IncarnationOf(raft::NodeId(2)), 6u);

  // An older copy of its folder was put back, with what it had on record by then.
  in_incarnation(7);
  const wire::Started third{.starts = 3, .term = raft::Term(5), .last = raft::LogIndex(3)};
  SentTo2(wire::CopyIdTerm(22), wire::Hello{.nonce = 9, .started = third}, 2 * kSecond_ns);
  SentTo2(wire::kForeignLogTerm, wire::HelloAck{.nonce = nonce(3 * kSecond_ns), .started = third}, 3 * kSecond_ns);
  EXPECT_FALSE(peers_.refused_by().IsSet());
  EXPECT_EQ(Dropped(wire::DropReason::kForeignLog), 1u) << "it is not believed in anything else either";

  // Its right folder is there again, and it says the same: one word is enough.
  in_incarnation(8);
  const wire::Started sixth{.starts = 6, .term = raft::Term(5), .last = raft::LogIndex(3)};
  SentTo2(wire::CopyIdTerm(22), wire::Hello{.nonce = 9, .started = sixth}, 4 * kSecond_ns);
  SentTo2(wire::kForeignLogTerm, wire::HelloAck{.nonce = nonce(5 * kSecond_ns), .started = sixth}, 5 * kSecond_ns);
  EXPECT_EQ(peers_.refused_by(), raft::NodeId(2));
}

// No HELLO of that incarnation has come yet, or another one since: the answer alone says that it holds less than it
// promised.
TEST_F(PeersTest, TheWordOfAMemberThatBreaksItsPromiseInTheSameAnswerCountsForNothing) {
  constexpr uint64_t kSecond_ns = 1'000'000'000;
  Meet2();
  nobody_.promised = {.term = raft::Term(5), .last = raft::LogIndex(10)};
  const auto accuses = [&](uint64_t incarnation, uint64_t last, uint64_t now_ns) {
    other_ = wire::PeerCodec(
        {.cluster_id = 7, .keys = wire::KeyRing(), .self = raft::NodeId(2), .incarnation = incarnation});
    const std::vector<wire::Opened> asked = SentTo2(raft::Term(5), raft::Heartbeat{.round = 1}, now_ns);
    ASSERT_EQ(Count<wire::Hello>(asked), 1u);
    SentTo2(wire::kForeignLogTerm,
            wire::HelloAck{.nonce = std::get<wire::Hello>(asked[0].body).nonce,
                           .started = {.starts = 2, .term = raft::Term(5), .last = raft::LogIndex(last)}},
            now_ns);
  };
  accuses(7, 9, kSecond_ns);
  EXPECT_FALSE(peers_.refused_by().IsSet());
  EXPECT_EQ(Dropped(wire::DropReason::kForeignLog), 1u);
  accuses(8, 10, 2 * kSecond_ns);
  EXPECT_EQ(peers_.refused_by(), raft::NodeId(2)) << "it holds what it promised, so its word counts";
}

// A LOST node knows nothing of the members yet when it hears the word, whatever the member's own log holds.
TEST_F(PeersTest, TheWordAgainstANodeThatHasJustStartedCounts) {
  nobody_.promised = {.term = raft::Term(5), .last = raft::LogIndex(10)};
  const std::vector<wire::Opened> asked = Greeted(1);
  ASSERT_EQ(Count<wire::Hello>(asked), 1u);
  SentTo2(wire::kForeignLogTerm,
          wire::HelloAck{.nonce = std::get<wire::Hello>(asked[0].body).nonce,
                         .started = {.starts = 2, .term = raft::Term(5), .last = raft::LogIndex(9)}},
          1);
  EXPECT_EQ(peers_.refused_by(), raft::NodeId(2));
}

// The change that made it a member may be gone back from, and what a LOST node had is moved aside by then.
TEST_F(PeersTest, ALostNodesQuestionForItsIdIsAnsweredOnceThatIsCommitted) {
  const wire::PeerBody asks = wire::Hello{.nonce = 9};
  peers_.SetMembers(Others(), 1, 0, 0);
  EXPECT_EQ(Count<wire::HelloAck>(SentTo2(raft::Term(), asks, 1)), 0u);
  EXPECT_EQ(peers_.counters().drops[static_cast<size_t>(wire::DropReason::kConfigEpoch)], 1u);
  EXPECT_EQ(Count<wire::HelloAck>(SentTo2(wire::CopyIdTerm(22), asks, 2)), 1u) << "of a member with a log";
  EXPECT_EQ(Count<wire::HelloAck>(SentTo2(raft::Term(3), asks, 3)), 1u) << "of a program that says none";
  peers_.SetMembers(Others(), 1, 1, 0);
  EXPECT_EQ(Count<wire::HelloAck>(SentTo2(raft::Term(), asks, 4)), 1u);
}

// Nothing lowers a term, so one datagram of a liar would end the cluster.
TEST_F(PeersTest, AMessageOfATermThatElectionsCannotHaveReachedIsDropped) {
  Meet2();
  constexpr uint64_t kSecond_ns = 1'000'000'000;
  constexpr uint64_t kStarted_ns = 100 * kSecond_ns;
  const raft::TermLimit limit(raft::Term(5), kStarted_ns);
  peers_.SetTermLimit(limit);
  const auto hears = [&](uint64_t term, uint64_t now_ns) {
    const size_t before = nobody_.messages.size();
    SentTo2(raft::Term(term), raft::Heartbeat{.round = 1}, now_ns);
    return nobody_.messages.size() > before;
  };
  const uint64_t last = 5 + raft::TermLimit::kAhead;
  EXPECT_TRUE(hears(last, kStarted_ns));
  EXPECT_FALSE(hears(last + 1, kStarted_ns));
  EXPECT_FALSE(hears(UINT64_MAX - 8, kStarted_ns));
  EXPECT_EQ(Dropped(wire::DropReason::kTerm), 2u);
  EXPECT_TRUE(hears(5, kStarted_ns)) << "the sender is heard all the same";
  // The line rises with time, by 15,258 terms a second.
  EXPECT_FALSE(hears(last + 15'259, kStarted_ns + kSecond_ns));
  EXPECT_TRUE(hears(last + 15'258, kStarted_ns + kSecond_ns));
  EXPECT_EQ(Dropped(wire::DropReason::kTerm), 3u);
  // A node that had no term when it started believes the first.
  peers_.SetTermLimit(raft::TermLimit());
  EXPECT_TRUE(hears(last * 1000, kStarted_ns));
}

TEST_F(PeersTest, AStalledLeaderSpeaksForItselfAlone) {
  Meet2();
  SentTo2(raft::Term(3), wire::Resign{.incarnation = 6, .leader = raft::NodeId(2), .stalled = true}, 1);
  ASSERT_EQ(nobody_.stall_hints.size(), 1u);
  EXPECT_EQ(nobody_.stall_hints[0].leader, raft::NodeId(2));
  EXPECT_EQ(nobody_.stall_hints[0].term, raft::Term(3));
  SentTo2(raft::Term(3), wire::Resign{.incarnation = 6, .leader = raft::NodeId(3), .stalled = true}, 2);
  SentTo2(raft::Term(3), wire::Resign{.incarnation = 5, .leader = raft::NodeId(2), .stalled = true}, 3);
  EXPECT_EQ(nobody_.stall_hints.size(), 1u);
}

TEST_F(PeersTest, ANodeOfTheOtherDurabilityModeIsNotBelieved) {
  const auto answers = [this](Mode mode, uint64_t now_ns) {
    const std::vector<wire::Opened> greeting = Greeted(now_ns);
    ASSERT_EQ(Count<wire::Hello>(greeting), 1u);
    const auto& hello = std::get<wire::Hello>(greeting[0].body);
    EXPECT_EQ(hello.traits.durability, Mode::kDisk) << "it says its own";
    SentTo2(wire::CopyIdTerm(22), wire::HelloAck{.nonce = hello.nonce, .traits = {.durability = mode}}, now_ns);
  };
  const auto dropped = [this] {
    return peers_.counters().drops[static_cast<size_t>(wire::DropReason::kOtherDurability)];
  };
  uint64_t now_ns = 1'000'000'000;
  answers(Mode::kMemory, now_ns);
  EXPECT_EQ(dropped(), 1u);
  EXPECT_EQ(peers_.IncarnationOf(raft::NodeId(2)), 0u);
  EXPECT_TRUE(peers_.states()[0].IsIncompatible(now_ns));
  EXPECT_THAT(peers_.states()[0].incompatible, testing::HasSubstr("has `durability: memory`, and this node"));
  SentTo2(raft::Term(3), wire::Resign{.incarnation = 6, .leader = raft::NodeId(2), .stalled = true}, now_ns);
  EXPECT_TRUE(nobody_.stall_hints.empty());
  // A recorded answer, to no question of this node.
  SentTo2(wire::CopyIdTerm(22), wire::HelloAck{.nonce = 1, .traits = {.durability = Mode::kMemory}}, now_ns);
  EXPECT_EQ(dropped(), 1u);
  // Its file was corrected.
  now_ns += wire::PeerIncarnations::kAskCap_ns;
  answers(Mode::kDisk, now_ns);
  EXPECT_EQ(peers_.IncarnationOf(raft::NodeId(2)), 6u);
  EXPECT_FALSE(peers_.states()[0].IsIncompatible(now_ns));
}

// It was set up under the same ids and key. Neither node has lost anything, and neither is told so.
TEST_F(PeersTest, AMemberOfAnotherClusterIsRefusedByItsLogsName) {
  peers_.SetLogUuid(0xaaa);
  const wire::PeerTraits other{.version_min = 3, .version_max = 3, .log_uuid = 0xbbb};
  for (const uint64_t copy : {22u, 23u}) {  // the copy that is on record, and a new one
    const uint64_t now_ns = copy * 1'000'000'000;
    const std::vector<wire::Opened> greeting = Greeted(now_ns);
    ASSERT_EQ(Count<wire::Hello>(greeting), 1u);
    const uint64_t nonce = std::get<wire::Hello>(greeting[0].body).nonce;
    SentTo2(wire::CopyIdTerm(copy), wire::HelloAck{.nonce = nonce, .traits = other}, now_ns);
    EXPECT_EQ(peers_.IncarnationOf(raft::NodeId(2)), 0u);
    EXPECT_THAT(peers_.states()[0].incompatible,
                testing::HasSubstr("its log is 0000000000000bbb, and this node's 0000000000000aaa"));
    const auto sent = SentTo2(wire::CopyIdTerm(copy), wire::Hello{.nonce = 9, .traits = other}, now_ns + 1);
    ASSERT_EQ(Count<wire::HelloAck>(sent), 1u);
    for (const wire::Opened& opened : sent) EXPECT_NE(opened.header.term, wire::kForeignLogTerm);
  }
  const uint64_t now_ns = uint64_t{30} * 1'000'000'000;
  const std::vector<wire::Opened> greeting = Greeted(now_ns);
  ASSERT_EQ(Count<wire::Hello>(greeting), 1u);
  SentTo2(wire::kForeignLogTerm,
          wire::HelloAck{.nonce = std::get<wire::Hello>(greeting[0].body).nonce, .traits = other}, now_ns);
  EXPECT_FALSE(peers_.refused_by().IsSet()) << "another cluster's word makes nobody LOST";
}

TEST_F(PeersTest, AMemberThatSpeaksOtherVersionsIsRefusedByBothRanges) {
  const std::vector<wire::Opened> greeting = Greeted(1);
  ASSERT_EQ(Count<wire::Hello>(greeting), 1u);
  SentTo2(wire::CopyIdTerm(22),
          wire::HelloAck{.nonce = std::get<wire::Hello>(greeting[0].body).nonce,
                         .traits = {.version_min = 4, .version_max = 5, .build = "9.9"}},
          1);
  EXPECT_EQ(peers_.IncarnationOf(raft::NodeId(2)), 0u);
  EXPECT_EQ(Dropped(wire::DropReason::kVersion), 1u);
  EXPECT_THAT(peers_.states()[0].incompatible,
              testing::HasSubstr("versions 4 to 5 of the protocol between nodes (build 9.9), and this node 3 to 3"));
}

TEST_F(PeersTest, WhatAllCanDoIsWhatIsAgreed) {
  EXPECT_EQ(peers_.AgreedFeatures(), 0u) << "nobody has been heard yet";
  const auto answers = [this](uint32_t features, uint64_t now_ns) {
    const std::vector<wire::Opened> greeting = Greeted(now_ns);
    ASSERT_EQ(Count<wire::Hello>(greeting), 1u);
    SentTo2(wire::CopyIdTerm(22),
            wire::HelloAck{.nonce = std::get<wire::Hello>(greeting[0].body).nonce,
                           .traits = {.features = features, .version_min = 3, .version_max = 9}},
            now_ns);
  };
  answers(6, 1);
  EXPECT_EQ(peers_.AgreedFeatures(), 2u) << "of this node's 3";
}

TEST_F(PeersTest, AnAppendThatIsFullIsOneDatagram) {
  const raft::Options options;
  for (const size_t payload_bytes : {size_t{0}, size_t{7}, size_t{60}, size_t{500}, size_t{1107}}) {
    raft::Log log{std::vector<raft::Entry>()};
    for (uint64_t index = 1; index <= 100; ++index) {
      log.Append({.term = raft::Term(1),
                  .index = raft::LogIndex(index),
                  .payload = raft::Payload(std::string(payload_bytes, 'x'))});
    }
    raft::AppendRequest append{.entries =
                                   log.Slice(raft::LogIndex(1), options.append_max_entries, options.append_max_bytes)};
    peers_.Send({.from = raft::NodeId(1), .to = raft::NodeId(2), .term = raft::Term(1), .body = std::move(append)});
    EXPECT_EQ(Flushed().size(), 1u) << payload_bytes;
  }
  EXPECT_EQ(peers_.counters().split, 0u);
}

TEST_F(PeersTest, WhatIsLongerThanADatagramLeavesInPieces) {
  Append(0, 1, {.term = raft::Term(1), .payload = raft::Payload(std::string(60'000, 'x'))});
  peers_.Flush();
  sender_->Flush();
  wire::PeerPieces pieces;
  std::string whole;
  size_t count = 0;
  for (const Datagram& datagram : receiver_->Receive(0)) {
    EXPECT_LE(datagram.bytes.size(), wire::kPeerDatagramMax_bytes);
    wire::Opened opened = other_.Open(datagram.bytes);
    ASSERT_TRUE(std::holds_alternative<wire::Piece>(opened.body));
    EXPECT_TRUE(whole.empty());
    whole = pieces.Take(opened.header, std::get<wire::Piece>(std::move(opened.body))).message;
    ++count;
  }
  EXPECT_EQ(count, peers_.counters().pieces);
  EXPECT_EQ(peers_.counters().split, 1u);
  EXPECT_TRUE(std::holds_alternative<raft::AppendRequest>(other_.Open(whole).body));
}

// Each piece has the UDP header by which the kernel part addresses its copies.
TEST_F(PeersTest, WhatGoesToSeveralPeersIsCopiedPieceByPiece) {
  std::vector<PeerState> others = Others();
  others.push_back({.id = raft::NodeId(3), .address = others[0].address, .slot = 2});
  peers_.SetMembers(others, 0, 0, 0);
  peers_.SetBroadcast(1u << 24, 1u << 7 | 1u << 2);
  for (const uint64_t to : {2u, 3u}) {
    raft::AppendRequest append;
    append.entries.push_back(
        {.term = raft::Term(1), .index = raft::LogIndex(1), .payload = raft::Payload(std::string(5000, 'x'))});
    peers_.Send({.from = raft::NodeId(1), .to = raft::NodeId(to), .term = raft::Term(1), .body = std::move(append)});
  }
  peers_.Flush();
  EXPECT_EQ(peers_.counters().split, 1u);
  EXPECT_GE(peers_.counters().pieces, 5u);
  EXPECT_EQ(peers_.counters().broadcasts, peers_.counters().pieces);
}

TEST_F(PeersTest, AMessageInPiecesIsTakenOnceAndAsOneDatagram) {
  Meet2();
  const std::string sealed = LargeAppend(60'000);
  const std::vector<std::string> pieces = other_.Split(sealed);
  for (auto piece = pieces.rbegin(); piece != pieces.rend(); ++piece) {
    EXPECT_THAT(nobody_.messages, IsEmpty());
    Take(*piece);
  }
  ASSERT_EQ(nobody_.messages.size(), 1u);
  EXPECT_EQ(nobody_.messages[0].from, raft::NodeId(2));
  EXPECT_EQ(nobody_.messages[0].to, raft::NodeId(1));
  EXPECT_EQ(nobody_.messages[0].term, raft::Term(3));
  const auto& append = std::get<raft::AppendRequest>(nobody_.messages[0].body);
  ASSERT_EQ(append.entries.size(), 1u);
  EXPECT_EQ(append.entries[0].payload.size_bytes(), 60'000u);
  for (const std::string& piece : pieces) Take(piece);
  Take(sealed);
  EXPECT_EQ(Dropped(wire::DropReason::kReplayed), pieces.size() + 1) << "recorded";
  for (const std::string& piece : other_.Split(sealed)) Take(piece);
  EXPECT_EQ(Dropped(wire::DropReason::kReplayed), pieces.size() + 2) << "new pieces, but not a new message";
  EXPECT_EQ(nobody_.messages.size(), 1u);
}

TEST_F(PeersTest, ALargeCommandIsForwardedInPieces) {
  Meet2();
  kv::Command command{.key = {.kind = kv::CommandKind::kWrite, .a = 5, .b = 1}};
  command.operations.push_back({.key = "k", .value = std::string(9000, 'v')});
  const std::string sealed = other_.Seal(raft::NodeId(1), raft::Term(3), wire::Forward{.command = kv::Encode(command)});
  for (const std::string& piece : other_.Split(sealed)) Take(piece);
  ASSERT_EQ(nobody_.requests.size(), 1u);
}

TEST_F(PeersTest, WhatALeaderMakesForItselfIsNotForwarded) {
  Meet2();
  const auto forward = [this](kv::RequestKey key) {
    const kv::Command command{.key = key};
    Take(other_.Seal(raft::NodeId(1), raft::Term(3), wire::Forward{.timeout_ns = 1, .command = kv::Encode(command)}));
  };
  for (const kv::CommandKind kind : {kv::CommandKind::kTick, kv::CommandKind::kSettings, kv::CommandKind::kPurge})
    forward({.kind = kind});
  forward({.kind = kv::CommandKind::kCheck, .a = 5, .b = 6, .c = 3});  // in the name of another member
  EXPECT_EQ(peers_.counters().bad_commands, 4u);
  EXPECT_THAT(nobody_.requests, IsEmpty());
  forward({.kind = kv::CommandKind::kCheck, .a = 5, .b = 6, .c = 2});
  forward({.kind = kv::CommandKind::kWrite, .a = 7, .b = 1});
  EXPECT_EQ(nobody_.requests.size(), 2u);
  EXPECT_EQ(peers_.counters().bad_commands, 4u);
}

TEST_F(PeersTest, PiecesOfRemovedNodesAndOfFormerIncarnationsTakeNoMemory) {
  wire::PeerCodec removed({.cluster_id = 7, .keys = wire::KeyRing(), .self = raft::NodeId(9), .incarnation = 8});
  const std::string sealed =
      removed.Seal(raft::NodeId(1), raft::Term(1), wire::Forward{.command = std::string(9000, 'x')});
  for (const std::string& piece : removed.Split(sealed)) Take(piece);
  EXPECT_EQ(peers_.received_pieces().received, 0u);
  EXPECT_EQ(peers_.counters().refused, 8u);
  Meet2();
  wire::PeerCodec before({.cluster_id = 7, .keys = wire::KeyRing(), .self = raft::NodeId(2), .incarnation = 4});
  const std::string recorded =
      before.Seal(raft::NodeId(1), raft::Term(1), wire::Forward{.command = std::string(9000, 'x')});
  for (const std::string& piece : before.Split(recorded)) Take(piece);
  EXPECT_EQ(peers_.received_pieces().received, 0u);
  EXPECT_EQ(Dropped(wire::DropReason::kOtherIncarnation), 8u);
}

// It is asked again, but not as fast as it answers.
TEST_F(PeersTest, AnyMemberOfTheClusterThatANodeJoinsMayLeadAndReachIt) {
  peers_.SetMembers({}, 0, 0, 0);
  for (uint64_t id = 2; id < 2 + HR_RAFT_MAX_MEMBERS; ++id) {
    wire::PeerCodec member{{.cluster_id = 7, .keys = wire::KeyRing(), .self = raft::NodeId(id), .incarnation = 6}};
    member.SetConfigEpoch(1);
    const std::string hello = member.Seal(raft::NodeId(1), raft::Term(1), wire::Hello{.nonce = id});
    peers_.Take({.from = receiver_->LocalAddress().value(), .to = {}, .bytes = hello, .arrived_ns = 1}, 1, nobody_);
  }
  EXPECT_EQ(Dropped(wire::DropReason::kNoMember), 0u);
}

TEST_F(PeersTest, APeerWhoseCopyCannotBeRecordedIsAskedNowAndThen) {
  const auto answer = [this](uint64_t now_ns) {
    const std::vector<wire::Opened> sent = Greeted(now_ns);
    EXPECT_EQ(Count<wire::Hello>(sent), 1u);
    if (sent.empty() || !std::holds_alternative<wire::Hello>(sent[0].body)) return std::vector<wire::Opened>();
    return SentTo2(wire::CopyIdTerm(22), wire::HelloAck{.nonce = std::get<wire::Hello>(sent[0].body).nonce}, now_ns);
  };
  keeper_->KeepOnly({});
  ASSERT_EQ(keeper_->Flush(), absl::OkStatus());
  peers_.SetMembers(Others(), 0, 0, 0);
  ASSERT_EQ(keeper_->Flush(), absl::OkStatus());
  std::filesystem::remove_all(folder_.path);
  uint64_t now_ns = 1'000'000'000;
  EXPECT_THAT(answer(now_ns), IsEmpty()) << "it is being written, which the loop does not wait for";
  EXPECT_TRUE(peers_.recorded().ok());
  EXPECT_FALSE(keeper_->Flush().ok());
  now_ns += wire::PeerIncarnations::kAskFloor_ns;
  for (int round = 0; round < 3; ++round) {
    EXPECT_THAT(answer(now_ns), IsEmpty()) << "not at once";
    EXPECT_FALSE(peers_.recorded().ok());
    EXPECT_EQ(peers_.IncarnationOf(raft::NodeId(2)), 0u);
    EXPECT_THAT(SentTo2(raft::Term(1), raft::Heartbeat{.round = 1}, now_ns), IsEmpty());
    now_ns += wire::PeerIncarnations::kAskCap_ns;
    EXPECT_THAT(Greeted(now_ns - 1), IsEmpty()) << "nor because it speaks";
    EXPECT_FALSE(keeper_->Flush().ok());
  }
  std::filesystem::create_directory(folder_.path);
  answer(now_ns);
  EXPECT_EQ(peers_.IncarnationOf(raft::NodeId(2)), 0u) << "nothing of it counts before that is durable";
  EXPECT_EQ(keeper_->Flush(), absl::OkStatus());
  answer(now_ns + wire::PeerIncarnations::kAskCap_ns);
  EXPECT_TRUE(peers_.recorded().ok());
  EXPECT_EQ(peers_.IncarnationOf(raft::NodeId(2)), 6u);
}

TEST_F(PeersTest, AListOfSourcesShutsOutAllOthersButMembers) {
  const auto from = [](const char* address) { return NetAddress::Parse(address).value(); };
  const auto take = [&](const NetAddress& source) {
    peers_.Take({.from = source, .bytes = "none of ours", .arrived_ns = 1}, 1, nobody_);
    return Dropped(wire::DropReason::kSource);
  };
  peers_.SetSources({from("192.0.2.1:4802")}, net::Networks({*net::Network::Parse("192.0.2.128/25")}));
  EXPECT_EQ(take(from("192.0.2.1:9")), 0u) << "a member of the file, whatever its port";
  EXPECT_EQ(take(from("192.0.2.200:4802")), 0u) << "listed";
  EXPECT_EQ(take(receiver_->LocalAddress().value()), 0u) << "a member of the configuration";
  EXPECT_EQ(Dropped(wire::DropReason::kTooShort), 3u);
  EXPECT_EQ(take(from("192.0.2.2:4802")), 1u);
  EXPECT_EQ(take(from("[2001:db8::1]:4802")), 2u);
  EXPECT_EQ(Dropped(wire::DropReason::kTooShort), 3u) << "not looked at";
}

// So that an operator learns which member it is; nothing that it says counts.
TEST_F(PeersTest, AMemberThatTheListShutsOutIsKnown) {
  Meet2();
  const NetAddress elsewhere = NetAddress::Parse("192.0.2.2:4802").value();
  peers_.SetSources({}, net::Networks());
  const auto take = [&](const std::string& bytes, uint64_t now_ns) {
    peers_.Take({.from = elsewhere, .bytes = bytes, .arrived_ns = now_ns}, now_ns, nobody_);
  };
  const auto sent_by_2 = [&] { return other_.Seal(raft::NodeId(1), raft::Term(1), raft::Heartbeat{.round = 1}); };
  const auto excluded = [&](uint64_t heard_ns, uint64_t now_ns) {
    return peers_.states()[0].IsExcluded(heard_ns, now_ns);
  };
  const uint64_t then_ns = 5'000'000'000;
  take("none of ours", then_ns);
  EXPECT_FALSE(excluded(1, then_ns)) << "it may be of any program";
  take(sent_by_2(), then_ns);
  EXPECT_THAT(nobody_.messages, IsEmpty());
  EXPECT_TRUE(excluded(1, then_ns));
  EXPECT_EQ(peers_.states()[0].excluded_at, elsewhere);
  EXPECT_FALSE(excluded(1, then_ns + PeerState::kLostTimeout_ns)) << "no longer";
  EXPECT_FALSE(excluded(then_ns - 1, then_ns)) << "it is heard from its own address";
  const uint64_t later_ns = 2 * PeerState::kLostTimeout_ns;
  for (int i = 0; i < 20; ++i) take("none of ours", later_ns);
  take(sent_by_2(), later_ns + 1);
  EXPECT_FALSE(excluded(1, later_ns + 1)) << "a flood is not opened";
}

TEST_F(PeersTest, WithoutAListSoManyDatagramsOfUnlistedSourcesAreOpenedInASecond) {
  const NetAddress elsewhere = NetAddress::Parse("192.0.2.2:4802").value();
  const auto take = [&](uint64_t now_ns, int datagrams) {
    for (int i = 0; i < datagrams; ++i)
      peers_.Take({.from = elsewhere, .bytes = "none of ours", .arrived_ns = now_ns}, now_ns, nobody_);
    return Dropped(wire::DropReason::kSource);
  };
  EXPECT_EQ(take(1, 1000), 0u);
  EXPECT_EQ(take(999'999'999, 1), 1u);
  Take(std::string("none of ours"), 999'999'999);
  EXPECT_EQ(Dropped(wire::DropReason::kTooShort), 1001u) << "members are heard meanwhile";
  EXPECT_EQ(take(1'000'000'001, 1), 1u) << "the next second";
}

// The source of connections follows where a member answers.
TEST_F(PeersTest, AMemberThatAnswersElsewhereMayConnectFromThere) {
  Meet2();
  const uint64_t version = peers_.addresses_version();
  const NetAddress elsewhere = NetAddress::Parse("192.0.2.2:4802").value();
  EXPECT_THAT(peers_.MemberAddresses(), ElementsAre(receiver_->LocalAddress().value()));
  const std::string hello = other_.Seal(raft::NodeId(1), wire::CopyIdTerm(22), wire::Hello{.nonce = 1});
  peers_.Take({.from = elsewhere, .bytes = hello, .arrived_ns = 1}, 1, nobody_);
  EXPECT_THAT(peers_.MemberAddresses(), ElementsAre(receiver_->LocalAddress().value())) << "it may be a recorded one";
  peers_.AskAgain();
  const uint64_t later_ns = 10'000'000'000;
  uint64_t nonce = 0;
  for (const wire::Opened& sent : Greeted(later_ns))
    if (const auto* asked = std::get_if<wire::Hello>(&sent.body)) nonce = asked->nonce;
  ASSERT_NE(nonce, 0u);
  const std::string answer = other_.Seal(raft::NodeId(1), wire::CopyIdTerm(22), wire::HelloAck{.nonce = nonce});
  peers_.Take({.from = elsewhere, .bytes = answer, .arrived_ns = later_ns}, later_ns, nobody_);
  EXPECT_THAT(peers_.MemberAddresses(), ElementsAre(receiver_->LocalAddress().value(), elsewhere));
  EXPECT_GT(peers_.addresses_version(), version);
}

}  // namespace
}  // namespace hedgerow::node
