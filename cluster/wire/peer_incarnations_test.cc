// SPDX-License-Identifier: Apache-2.0
#include "cluster/wire/peer_incarnations.h"

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace hedgerow::wire {
namespace {

using raft::NodeId;
using raft::Term;

const Key kKey = {.bytes = {1}};
constexpr uint64_t kStart_ns = 1'000'000'000'000;
constexpr uint64_t kMillisecond_ns = 1'000'000;
constexpr uint64_t kSecond_ns = 1'000'000'000;
const std::vector<NodeId> kMembers = {NodeId(1), NodeId(2), NodeId(3)};

// A node with what it sends and what it believes. A new one with the same id is the node after a restart.
struct Node {
  Node(uint64_t id, uint64_t incarnation)
      : codec({.cluster_id = 7, .keys = kKey, .self = NodeId(id), .incarnation = incarnation, .config_epoch = 0}),
        incarnations(NodeId(id), kMembers, [this] { return random(); }),
        random(incarnation) {}
  Node(const Node&) = delete;

  DropReason Receive(const std::string& datagram, uint64_t now_ns = kStart_ns) {
    const Opened opened = codec.Open(datagram);
    return opened.ok() ? incarnations.Admit(opened, now_ns) : opened.reason;
  }
  std::string Heartbeat() { return codec.Seal(NodeId(), Term(1), raft::Heartbeat{.round = 1}); }
  // Empty: none is due.
  std::string AskHello(uint64_t peer, uint64_t now_ns = kStart_ns) {
    const uint64_t nonce = incarnations.NonceFor(NodeId(peer), now_ns);
    return nonce == 0 ? std::string() : codec.Seal(NodeId(peer), Term(1), Hello{.nonce = nonce});
  }
  std::string AckTo(uint64_t peer, const std::string& hello) {
    const Opened opened = codec.Open(hello);
    return codec.Seal(NodeId(peer), Term(1), HelloAck{.nonce = std::get<Hello>(opened.body).nonce});
  }
  // Learns the other's incarnation, as it happens on the wire. The acknowledgement, for who records it.
  std::string Meet(Node& other, uint64_t other_id, uint64_t id, uint64_t now_ns = kStart_ns) {
    const std::string hello = AskHello(other_id, now_ns);
    EXPECT_FALSE(hello.empty());
    EXPECT_EQ(other.Receive(hello, now_ns), DropReason::kNone);
    std::string ack = other.AckTo(id, hello);
    EXPECT_EQ(Receive(ack, now_ns), DropReason::kNone);
    return ack;
  }

  PeerCodec codec;
  PeerIncarnations incarnations;
  std::mt19937_64 random;
};

TEST(PeerIncarnations, NoPeerIsBelievedBeforeItHasAnswered) {
  Node a(1, 100);
  Node b(2, 200);
  EXPECT_EQ(a.Receive(b.Heartbeat()), DropReason::kIncarnationUnknown);
  EXPECT_EQ(a.incarnations.IncarnationOf(NodeId(2)), 0u);
  a.Meet(b, 2, 1);
  EXPECT_EQ(a.incarnations.IncarnationOf(NodeId(2)), 200u);
  EXPECT_EQ(a.Receive(b.Heartbeat()), DropReason::kNone);
}

TEST(PeerIncarnations, ANonMemberIsNotBelieved) {
  Node a(1, 100);
  Node unknown(9, 900);
  EXPECT_EQ(a.Receive(unknown.Heartbeat()), DropReason::kNoMember);
  EXPECT_EQ(a.Receive(unknown.codec.Seal(NodeId(1), Term(1), Hello{.nonce = 1})), DropReason::kNoMember);
  EXPECT_EQ(a.Receive(unknown.codec.Seal(NodeId(1), Term(1), HelloAck{.nonce = 1})), DropReason::kNoMember);
  EXPECT_EQ(a.incarnations.NonceFor(NodeId(9), kStart_ns), 0u);
  EXPECT_EQ(a.incarnations.NonceFor(NodeId(1), kStart_ns), 0u) << "itself";
}

// A HELLO and its answer, which says `term` for a term.
DropReason Answered(Node& a, Node& b, Term term, uint64_t now_ns) {
  const std::string hello = a.AskHello(2, now_ns);
  EXPECT_FALSE(hello.empty());
  const Opened opened = b.codec.Open(hello);
  const HelloAck ack{.nonce = std::get<Hello>(opened.body).nonce};
  return a.Receive(b.codec.Seal(NodeId(1), term, ack), now_ns);
}

TEST(PeerIncarnations, OnlyAFreshAnswerSaysThatThisNodeWasRemoved) {
  Node a(1, 100);
  Node b(2, 200);
  a.Meet(b, 2, 1);
  EXPECT_EQ(a.incarnations.NonceFor(NodeId(2), kStart_ns + kSecond_ns), 0u) << "its incarnation is known";
  a.incarnations.AskAgain(NodeId(2));
  const uint64_t now_ns = kStart_ns + kSecond_ns;
  EXPECT_EQ(Answered(a, b, kRemovedTerm, now_ns), DropReason::kConfigEpoch);
  EXPECT_EQ(a.incarnations.IncarnationOf(NodeId(2)), 200u) << "what was known of it stays";
  EXPECT_EQ(a.Receive(b.codec.Seal(NodeId(1), kRemovedTerm, HelloAck{.nonce = 12345}), now_ns), DropReason::kNonce);
  EXPECT_EQ(Answered(a, b, Term(1), now_ns + kSecond_ns), DropReason::kNone) << "it is asked until it says otherwise";
  EXPECT_EQ(a.incarnations.NonceFor(NodeId(2), now_ns + 2 * kSecond_ns), 0u);
}

TEST(PeerIncarnations, AMemberWithAnotherLogIsNeverBelieved) {
  Node a(1, 100);
  {
    Node b(2, 200);
    EXPECT_EQ(Answered(a, b, CopyIdTerm(77), kStart_ns), DropReason::kNone);
    EXPECT_EQ(a.incarnations.CopyOf(NodeId(2)), 77u);
    a.incarnations.Remember(NodeId(2), 77);
    EXPECT_EQ(a.Receive(b.Heartbeat()), DropReason::kNone);
  }
  Node emptied(2, 201);
  for (uint64_t i = 1; i <= 3; ++i) {
    EXPECT_EQ(a.Receive(emptied.Heartbeat()), DropReason::kOtherIncarnation);
    EXPECT_EQ(Answered(a, emptied, CopyIdTerm(78), kStart_ns + i * kSecond_ns), DropReason::kForeignLog);
    EXPECT_EQ(a.incarnations.IncarnationOf(NodeId(2)), 200u) << "as it was";
  }
  Node again(2, 202);  // the folder of before was put back
  EXPECT_EQ(a.Receive(again.Heartbeat()), DropReason::kOtherIncarnation);
  EXPECT_EQ(Answered(a, again, CopyIdTerm(77), kStart_ns + 9 * kSecond_ns), DropReason::kNone);
  EXPECT_EQ(a.Receive(again.Heartbeat()), DropReason::kNone);
}

// As in Peers: what a HELLO_ACK says is compared before it is believed.
DropReason StartedAgain(Node& a, Node& b, uint64_t starts, uint64_t now_ns) {
  const std::string hello = a.AskHello(2, now_ns);
  EXPECT_FALSE(hello.empty());
  const HelloAck ack{.nonce = std::get<Hello>(b.codec.Open(hello).body).nonce, .started = {.starts = starts}};
  const Opened opened = a.codec.Open(b.codec.Seal(NodeId(1), CopyIdTerm(77), ack));
  const DropReason reason = a.incarnations.Admit(opened, now_ns, a.incarnations.WentBack(opened.header, ack.started));
  if (reason == DropReason::kNone) a.incarnations.Remember(NodeId(2), 77);
  return reason;
}

TEST(PeerIncarnations, AFolderThatWentBackSaysFewerStartsOrAsManyInAnotherIncarnation) {
  Node a(1, 100);
  Node first(2, 200);
  EXPECT_EQ(StartedAgain(a, first, 4, kStart_ns), DropReason::kNone);
  Node second(2, 201);
  EXPECT_EQ(a.Receive(second.Heartbeat()), DropReason::kOtherIncarnation);
  EXPECT_EQ(StartedAgain(a, second, 5, kStart_ns + kSecond_ns), DropReason::kNone);
  uint64_t now_ns = kStart_ns + kSecond_ns;
  for (const uint64_t starts : {4, 5}) {
    Node back(2, 202);
    EXPECT_EQ(a.Receive(back.Heartbeat()), DropReason::kOtherIncarnation);
    EXPECT_EQ(StartedAgain(a, back, starts, now_ns += kSecond_ns), DropReason::kForeignLog) << starts;
    EXPECT_EQ(a.incarnations.IncarnationOf(NodeId(2)), 201u) << "as it was";
  }
  a.incarnations.Forget(NodeId(2), now_ns);
  EXPECT_EQ(StartedAgain(a, first, 4, now_ns += kSecond_ns), DropReason::kForeignLog) << "that is not forgotten";
  EXPECT_EQ(StartedAgain(a, second, 5, now_ns += kSecond_ns), DropReason::kNone) << "it may be the same incarnation";
  a.incarnations.Remember(NodeId(2), 78);
  EXPECT_FALSE(a.incarnations.WentBack({.from = NodeId(2), .term = CopyIdTerm(78)}, {.starts = 1})) << "of another log";
}

TEST(PeerIncarnations, APeerThatReportsNoLogIsOfAnEarlierProgramAndBelieved) {
  Node a(1, 100);
  Node b(2, 200);
  a.incarnations.Remember(NodeId(2), 77);
  EXPECT_EQ(Answered(a, b, Term(5), kStart_ns), DropReason::kNone);
  EXPECT_EQ(a.incarnations.CopyOf(NodeId(2)), 0u);
  EXPECT_EQ(a.Receive(b.Heartbeat()), DropReason::kNone);
}

TEST(PeerIncarnations, AnAnswerThatRefusesThisLogTeachesNothingElse) {
  Node a(1, 100);
  Node b(2, 200);
  EXPECT_EQ(a.Receive(b.codec.Seal(NodeId(1), kForeignLogTerm, HelloAck{.nonce = 1})), DropReason::kNonce)
      << "nobody was asked: it may be recorded";
  EXPECT_EQ(Answered(a, b, kForeignLogTerm, kStart_ns), DropReason::kForeignLog);
  EXPECT_EQ(a.incarnations.IncarnationOf(NodeId(2)), 0u);
}

TEST(PeerIncarnations, ACopyIdIsNoTermAndNothingElseThatIsSaidInItsPlace) {
  for (const uint64_t id : {uint64_t{1}, kCopyIds - 1}) {
    EXPECT_EQ(CopyIdIn({.term = CopyIdTerm(id)}), id);
    EXPECT_NE(CopyIdTerm(id), kLostTerm);
    EXPECT_NE(CopyIdTerm(id), kForeignLogTerm);
  }
  for (const Term term : {Term(), Term(1), Term(kCopyIdMark - 1), kLostTerm, kForeignLogTerm}) {
    EXPECT_EQ(CopyIdIn({.term = term}), 0u);
  }
}

TEST(PeerIncarnations, EachDatagramIsBelievedOnce) {
  Node a(1, 100);
  Node b(2, 200);
  a.Meet(b, 2, 1);
  std::vector<std::string> sent;
  for (int i = 0; i < 5000; ++i) sent.push_back(b.Heartbeat());
  EXPECT_EQ(a.Receive(sent[1]), DropReason::kNone);
  EXPECT_EQ(a.Receive(sent[0]), DropReason::kNone) << "overtaken";
  EXPECT_EQ(a.Receive(sent[0]), DropReason::kReplayed);
  EXPECT_EQ(a.Receive(sent[1]), DropReason::kReplayed);
  EXPECT_EQ(a.Receive(sent[4999]), DropReason::kNone);
  EXPECT_EQ(a.Receive(sent[4999 - 4096]), DropReason::kTooOld);
  EXPECT_EQ(a.Receive(sent[4999 - 4095]), DropReason::kNone);
}

TEST(PeerIncarnations, WhatWasSentBeforeTheAnswerIsOld) {
  Node a(1, 100);
  Node b(2, 200);
  const std::string before = b.Heartbeat();
  const std::string ack = a.Meet(b, 2, 1);
  EXPECT_EQ(a.Receive(before), DropReason::kTooOld);
  EXPECT_EQ(a.Receive(ack), DropReason::kNonce) << "the answer itself, again";
}

TEST(PeerIncarnations, ARecordingIsWorthNothingAfterItsSenderStartedAnew) {
  Node a(1, 100);
  std::vector<std::string> recording;
  {
    Node b(2, 200);
    recording.push_back(a.Meet(b, 2, 1));
    recording.push_back(b.Heartbeat());
    recording.push_back(b.Heartbeat());
    ASSERT_EQ(a.Receive(recording[1]), DropReason::kNone);
  }
  Node b(2, 201);
  EXPECT_EQ(a.Receive(b.Heartbeat()), DropReason::kOtherIncarnation);
  a.Meet(b, 2, 1, kStart_ns + kSecond_ns);
  EXPECT_EQ(a.incarnations.IncarnationOf(NodeId(2)), 201u);
  EXPECT_EQ(a.Receive(recording[0]), DropReason::kNonce);
  EXPECT_EQ(a.Receive(recording[1]), DropReason::kOtherIncarnation);
  EXPECT_EQ(a.Receive(recording[2]), DropReason::kOtherIncarnation)
      << "never delivered, and yet of a former incarnation";
  EXPECT_EQ(a.incarnations.IncarnationOf(NodeId(2)), 201u);
  EXPECT_EQ(a.Receive(b.Heartbeat()), DropReason::kNone);
}

TEST(PeerIncarnations, ARecordingIsWorthNothingAfterItsReceiverStartedAnew) {
  Node b(2, 200);
  std::vector<std::string> recording;
  {
    Node a(1, 100);
    recording.push_back(a.Meet(b, 2, 1));
    recording.push_back(b.Heartbeat());
    ASSERT_EQ(a.Receive(recording[1]), DropReason::kNone);
  }
  Node a(1, 101);
  ASSERT_FALSE(a.AskHello(2).empty());
  EXPECT_EQ(a.Receive(recording[0]), DropReason::kNonce) << "the answer to its former incarnation's question";
  EXPECT_EQ(a.Receive(recording[1]), DropReason::kIncarnationUnknown);
  a.Meet(b, 2, 1, kStart_ns + kSecond_ns);
  EXPECT_EQ(a.Receive(recording[1]), DropReason::kTooOld);
}

// Else one recorded datagram of a former incarnation would open the way for all that were seen since.
TEST(PeerIncarnations, TheSameIncarnationLearnedAgainForgetsNothing) {
  Node a(1, 100);
  const std::string old = Node(2, 199).Heartbeat();
  Node b(2, 200);
  a.Meet(b, 2, 1);
  ASSERT_EQ(a.Receive(old), DropReason::kOtherIncarnation);
  const std::string hello = a.AskHello(2, kStart_ns + kSecond_ns);
  ASSERT_FALSE(hello.empty()) << "a datagram of another incarnation is a reason to ask";
  const std::string ack = b.AckTo(1, hello);
  const std::string first = b.Heartbeat();
  const std::string second = b.Heartbeat();
  ASSERT_EQ(a.Receive(second), DropReason::kNone);
  ASSERT_EQ(a.Receive(ack, kStart_ns + kSecond_ns), DropReason::kNone) << "overtaken by what was sent after it";
  EXPECT_EQ(a.Receive(second), DropReason::kReplayed);
  EXPECT_EQ(a.Receive(first), DropReason::kNone);
}

TEST(PeerIncarnations, AnAnswerToNoQuestionTeachesNothing) {
  Node a(1, 100);
  Node b(2, 200);
  EXPECT_EQ(a.Receive(b.codec.Seal(NodeId(1), Term(1), HelloAck{.nonce = 0})), DropReason::kNonce);
  EXPECT_EQ(a.Receive(b.codec.Seal(NodeId(1), Term(1), HelloAck{.nonce = 1})), DropReason::kNonce);
  const std::string hello = a.AskHello(2);
  const uint64_t nonce = std::get<Hello>(b.codec.Open(hello).body).nonce;
  EXPECT_EQ(a.Receive(b.codec.Seal(NodeId(1), Term(1), HelloAck{.nonce = nonce + 1})), DropReason::kNonce);
  Node c(3, 300);
  EXPECT_EQ(a.Receive(c.codec.Seal(NodeId(1), Term(1), HelloAck{.nonce = nonce})), DropReason::kNonce)
      << "asked of another";
  EXPECT_EQ(a.incarnations.IncarnationOf(NodeId(2)), 0u);
  EXPECT_EQ(a.incarnations.IncarnationOf(NodeId(3)), 0u);
  a.Meet(b, 2, 1, kStart_ns + PeerIncarnations::kAskFloor_ns);
  EXPECT_EQ(a.Receive(b.codec.Seal(NodeId(1), Term(1), HelloAck{.nonce = 0})), DropReason::kNonce)
      << "no question waits any more";
}

TEST(PeerIncarnations, AQuestionIsRepeatedUntilItIsAnsweredEverMoreSeldom) {
  Node a(1, 100);
  std::vector<uint64_t> asked_ns;
  std::vector<uint64_t> nonces;
  for (uint64_t now_ns = kStart_ns; now_ns < kStart_ns + 10 * kSecond_ns; now_ns += kMillisecond_ns) {
    if (const uint64_t nonce = a.incarnations.NonceFor(NodeId(2), now_ns)) {
      asked_ns.push_back(now_ns);
      nonces.push_back(nonce);
    }
  }
  ASSERT_GT(asked_ns.size(), 20u);
  ASSERT_LT(asked_ns.size(), 30u);
  EXPECT_EQ(asked_ns[0], kStart_ns);
  EXPECT_EQ(asked_ns[1], kStart_ns + PeerIncarnations::kAskFloor_ns);
  EXPECT_EQ(nonces[1], nonces[0]) << "an answer that takes longer than the wait still counts";
  EXPECT_EQ(asked_ns.back() - asked_ns[asked_ns.size() - 2], PeerIncarnations::kAskCap_ns);
  EXPECT_NE(nonces.back(), nonces[0]) << "and yet not for ever";
}

TEST(PeerIncarnations, AnAnswerThatTookTooLongTeachesNothing) {
  Node a(1, 100);
  Node b(2, 200);
  const std::string hello = a.AskHello(2);
  const std::string late = b.AckTo(1, hello);
  EXPECT_EQ(a.Receive(late, kStart_ns + PeerIncarnations::kNonceLifetime_ns), DropReason::kNonce);
  EXPECT_EQ(a.Receive(late, kStart_ns + PeerIncarnations::kNonceLifetime_ns - 1), DropReason::kNone);
}

TEST(PeerIncarnations, APeerThatSpeaksIsAskedSoon) {
  Node a(1, 100);
  uint64_t now_ns = kStart_ns;
  for (; now_ns < kStart_ns + 10 * kSecond_ns; now_ns += kMillisecond_ns) a.incarnations.NonceFor(NodeId(2), now_ns);
  a.incarnations.NonceFor(NodeId(3), now_ns);
  // A HELLO is no proof of an incarnation, but a reason to ask.
  Node b(2, 200);
  const std::string hello = b.AskHello(1);
  EXPECT_EQ(a.Receive(hello, now_ns), DropReason::kNone);
  EXPECT_EQ(a.incarnations.IncarnationOf(NodeId(2)), 0u);
  EXPECT_LE(a.incarnations.next_ask_ns(), now_ns + PeerIncarnations::kAskFloor_ns);
  EXPECT_NE(a.incarnations.NonceFor(NodeId(2), now_ns + PeerIncarnations::kAskFloor_ns), 0u);
}

// What was recorded may be sent at any rate: it must not make this node send as fast.
TEST(PeerIncarnations, RecordingsDoNotRaiseTheRateOfQuestions) {
  Node a(1, 100);
  Node b(2, 200);
  a.Meet(b, 2, 1);
  const std::string old = Node(2, 199).Heartbeat();
  int asked = 0;
  for (uint64_t now_ns = kStart_ns; now_ns < kStart_ns + kSecond_ns; now_ns += kMillisecond_ns / 10) {
    ASSERT_EQ(a.Receive(old, now_ns), DropReason::kOtherIncarnation);
    asked += a.incarnations.NonceFor(NodeId(2), now_ns) != 0;
  }
  EXPECT_LE(asked, 100);
  EXPECT_GE(asked, 90);
  EXPECT_EQ(a.Receive(b.Heartbeat()), DropReason::kNone) << "and it goes on believing the living";
}

// Whose log cannot be recorded is not believed; what it goes on saying must not make this node ask as fast.
TEST(PeerIncarnations, AForgottenPeerIsNotAskedForAWhileWhateverItSays) {
  Node a(1, 100);
  Node b(2, 200);
  Node c(3, 300);
  a.Meet(c, 3, 1);
  EXPECT_EQ(Answered(a, b, CopyIdTerm(77), kStart_ns), DropReason::kNone);
  a.incarnations.Remember(NodeId(2), 77);
  a.incarnations.Forget(NodeId(2), kStart_ns);
  EXPECT_EQ(a.incarnations.IncarnationOf(NodeId(2)), 0u);
  EXPECT_EQ(a.incarnations.CopyOf(NodeId(2)), 0u);
  const uint64_t until_ns = kStart_ns + PeerIncarnations::kAskCap_ns;
  for (uint64_t now_ns = kStart_ns; now_ns < until_ns; now_ns += 10 * kMillisecond_ns) {
    ASSERT_EQ(a.Receive(b.Heartbeat(), now_ns), DropReason::kIncarnationUnknown);
    ASSERT_EQ(a.Receive(b.codec.Seal(NodeId(1), Term(1), Hello{.nonce = 1}), now_ns), DropReason::kNone);
    ASSERT_EQ(a.incarnations.NonceFor(NodeId(2), now_ns), 0u);
    ASSERT_EQ(a.incarnations.next_ask_ns(), until_ns);
  }
  EXPECT_EQ(Answered(a, b, CopyIdTerm(78), until_ns), DropReason::kForeignLog) << "what it may have is remembered";
  EXPECT_EQ(Answered(a, b, CopyIdTerm(77), until_ns + PeerIncarnations::kAskFloor_ns), DropReason::kNone);
  EXPECT_EQ(a.Receive(b.Heartbeat(), until_ns), DropReason::kNone);
}

TEST(PeerIncarnations, AKnownPeerIsNotAsked) {
  Node a(1, 100);
  Node b(2, 200);
  Node c(3, 300);
  EXPECT_LE(a.incarnations.next_ask_ns(), kStart_ns);
  a.Meet(b, 2, 1);
  EXPECT_EQ(a.incarnations.NonceFor(NodeId(2), kStart_ns + 100 * kSecond_ns), 0u);
  EXPECT_LE(a.incarnations.next_ask_ns(), kStart_ns) << "the other is not known";
  a.Meet(c, 3, 1);
  EXPECT_EQ(a.incarnations.next_ask_ns(), UINT64_MAX);
}

TEST(PeerIncarnations, AHelloIsAnsweredWhateverItsIncarnationAndNumber) {
  Node a(1, 100);
  Node b(2, 200);
  a.Meet(b, 2, 1);
  const std::string hello = Node(2, 199).AskHello(1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(a.Receive(hello), DropReason::kNone);
  EXPECT_EQ(a.incarnations.IncarnationOf(NodeId(2)), 200u) << "it changes nothing";
}

TEST(PeerIncarnations, NoMoreThanAHundredHellosOfAPeerAreAnsweredWithinASecond) {
  Node a(1, 100);
  Node b(2, 200);
  const std::string hello = b.AskHello(1);
  std::vector<uint64_t> answered_ns;
  uint64_t refused = 0;
  for (uint64_t i = 0; i < 30'000; ++i) {  // 10,000 a second, after a rest
    const uint64_t now_ns = kStart_ns + i * kMillisecond_ns / 10;
    const DropReason reason = a.Receive(hello, now_ns);
    ASSERT_TRUE(reason == DropReason::kNone || reason == DropReason::kHelloLimit);
    if (reason == DropReason::kNone) answered_ns.push_back(now_ns);
    refused += reason == DropReason::kHelloLimit;
  }
  for (size_t i = 100; i < answered_ns.size(); ++i) {
    ASSERT_GE(answered_ns[i] - answered_ns[i - 100], kSecond_ns);
  }
  EXPECT_GE(answered_ns.size(), 190u) << "but nearly as many";
  EXPECT_EQ(a.incarnations.HellosRefused(NodeId(2)), refused);
  EXPECT_EQ(a.Receive(b.AskHello(3)), DropReason::kOtherNode) << "what is not for it takes nothing from them";
}

TEST(PeerIncarnations, AFloodOfOnePeersHellosLeavesTheOthersTheirs) {
  Node a(1, 100);
  const std::string flood = Node(2, 200).AskHello(1);
  for (int i = 0; i < 1000; ++i) (void)a.Receive(flood);
  EXPECT_EQ(a.Receive(flood), DropReason::kHelloLimit);
  EXPECT_EQ(a.Receive(Node(3, 300).AskHello(1)), DropReason::kNone);
  for (int i = 0; i < 1000; ++i) (void)a.incarnations.MayAnswerHello(kStart_ns);
  EXPECT_FALSE(a.incarnations.MayAnswerHello(kStart_ns));
  EXPECT_GT(a.incarnations.HellosRefused(NodeId()), 0u);
  EXPECT_EQ(a.Receive(Node(3, 300).AskHello(1)), DropReason::kNone);
}

}  // namespace
}  // namespace hedgerow::wire
