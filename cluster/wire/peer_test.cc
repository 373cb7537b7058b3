// SPDX-License-Identifier: Apache-2.0
#include "cluster/wire/peer.h"

#include <cstddef>
#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "build_paths.h"
#include "cluster/raft/bytes.h"
#include "cluster/wire/peer_body.h"
#include "operate/hex.h"

namespace hedgerow::wire {
namespace {

using raft::LogIndex;
using raft::NodeId;
using raft::Term;

const Key kKey = {.bytes = {9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 1, 2, 3, 4, 5, 6}};
constexpr uint64_t kCluster = 0x5152535455565758;
constexpr uint64_t kIncarnation = 0x6162636465666768;
constexpr size_t kTagOffset = 8;

PeerIdentity Identity(uint64_t node) {
  return {.cluster_id = kCluster, .keys = kKey, .self = NodeId(node), .incarnation = kIncarnation, .config_epoch = 3};
}

// Node 2 speaks to node 1.
PeerCodec Sender() { return PeerCodec(Identity(2)); }
PeerCodec Receiver() { return PeerCodec(Identity(1)); }

raft::AppendRequest Append() {
  const auto entry = [](uint64_t term, uint64_t index, raft::EntryKind kind, std::string payload) {
    return raft::Entry{
        .term = Term(term), .index = LogIndex(index), .kind = kind, .payload = raft::Payload(std::move(payload))};
  };
  return {.prev_index = LogIndex(10),
          .prev_term = Term(4),
          .commit = LogIndex(9),
          .entries = {entry(5, 11, raft::EntryKind::kNoOp, ""),
                      entry(5, 12, raft::EntryKind::kCommand, std::string("com\0mand", 8)),
                      entry(6, 13, raft::EntryKind::kCommand, std::string(3000, 'x'))}};
}

ForwardAnswer Result() {
  ForwardAnswer answer{.tag = 71};
  answer.result = {
      .code = kv::ResultCode::kOk, .session = 72, .token = 73, .values = {"", "-12", std::string(300, 'v')}};
  return answer;
}

std::vector<PeerBody> Bodies() {
  return {
      Hello{.nonce = 1, .traits = {.durability = PeerTraits::Durability::kDisk, .features = 3}},
      HelloAck{.nonce = 2, .traits = {.durability = PeerTraits::Durability::kMemory, .features = 1u << 31}},
      raft::VoteRequest{.asked_term = Term(3),
                        .last_index = LogIndex(4),
                        .last_term = Term(5),
                        .transfer_term = Term(6),
                        .pre_vote = true},
      raft::VoteReply{.asked_term = Term(7), .pre_vote = false, .granted = true},
      raft::VoteReply{.asked_term = Term(7), .pre_vote = true, .granted = false},
      Append(),
      raft::AppendRequest{},
      raft::AppendReply{.accepted = false,
                        .index = LogIndex(8),
                        .conflict_term = Term(9),
                        .conflict_index = LogIndex(10),
                        .loop_seq = 99},
      raft::AppendReply{.accepted = true, .index = LogIndex(8), .conflict_term = {}, .conflict_index = {}},
      raft::Heartbeat{.round = 11, .commit = LogIndex(12), .election_timeout_ns = 13},
      raft::HeartbeatReply{.round = 14, .matched = LogIndex(15), .loop_seq = 98},
      raft::ReadIndexRequest{.id = {.incarnation = 16, .number = 17}},
      raft::ReadIndexReply{.id = {.incarnation = 18, .number = 19}, .index = LogIndex(20)},
      raft::TimeoutNow{},
      Forward{.tag = 21, .age_ns = 22, .timeout_ns = 23, .hops = 1, .command = "command"},
      Result(),
      ForwardAnswer{.tag = 24, .kind = ForwardAnswer::Kind::kNotLeader, .result = {}},
      Resign{.incarnation = 25, .leader = NodeId(2), .successors = {NodeId(3), NodeId(1)}},
      Piece{.message = 26, .number = 1, .count = 3, .bytes = "part"},
      raft::LastEntry{.id = {.incarnation = 27, .number = 28}, .last = {.index = LogIndex(29), .term = Term(30)}},
  };
}

// What a program of this version sealed of all of these but the last two, with numbers from 1, and (from version 3
// on) of the first append once more, which another one follows, and of the last two. Made after
// docs/WIRE_FORMAT.md and not by this program.
std::vector<std::string> OfVersion(int version) {
  std::vector<std::string> datagrams;
  std::ifstream file(HEDGEROW_SOURCE_DIR "/cluster/wire/testdata/peer-" + std::to_string(version));
  std::string kind, bytes;
  while (file >> kind >> bytes) datagrams.push_back(operate::BytesOfHex(bytes));
  return datagrams;
}

// The datagram with a byte changed and the tag made anew: what only somebody with the key could send.
std::string Forged(std::string datagram, size_t offset, uint8_t value) {
  datagram[offset] = static_cast<char>(value);
  const hr_siphash_key key = SipHashKey(kKey);
  const uint64_t tag = hr_siphash_sealed(&key, datagram.data(), datagram.size());
  for (size_t i = 0; i < 8; ++i) datagram[kTagOffset + i] = static_cast<char>(tag >> (8 * i));
  return datagram;
}

TEST(PeerCodec, EveryKindSurvivesTheJourney) {
  PeerCodec sender = Sender();
  std::set<int> kinds;
  for (const PeerBody& body : Bodies()) {
    const std::string datagram = sender.Seal(NodeId(1), Term(42), body);
    const Opened opened = Receiver().Open(datagram);
    ASSERT_TRUE(opened.ok()) << Name(opened.reason) << " kind " << body.index() + 1;
    EXPECT_EQ(opened.header.kind, static_cast<int>(body.index() + 1));
    EXPECT_EQ(opened.header.from, NodeId(2));
    EXPECT_EQ(opened.header.to, NodeId(1));
    EXPECT_EQ(opened.header.from_incarnation, kIncarnation);
    EXPECT_EQ(opened.header.packet_number, sender.packet_number());
    EXPECT_EQ(opened.header.term, Term(42));
    ASSERT_EQ(opened.body.index(), body.index());
    // Sealed again it is the same, so nothing was lost on the way.
    PeerCodec again = Sender();
    while (again.packet_number() + 1 < opened.header.packet_number) again.Seal(NodeId(1), Term(), Hello{});
    EXPECT_EQ(again.Seal(NodeId(1), Term(42), opened.body), datagram);
    kinds.insert(opened.header.kind);
  }
  EXPECT_EQ(kinds.size(), size_t{HR_PEER_KINDS - 1}) << "a kind without a sample";
}

TEST(PeerCodec, WhatANodeStartedWithIsSaidOrTakesNoRoom) {
  const Started started{.starts = 3, .term = Term(4), .last = LogIndex(5)};
  PeerCodec sender = Sender();
  for (const PeerBody& body :
       {PeerBody(Hello{.nonce = 1, .started = started}), PeerBody(HelloAck{.nonce = 1, .started = started})}) {
    const std::string datagram = sender.Seal(NodeId(1), Term(42), body);
    ASSERT_EQ(datagram.size(), kPeerHeader_bytes + 40);
    const Opened opened = Receiver().Open(datagram);
    ASSERT_TRUE(opened.ok()) << Name(opened.reason);
    const auto* const hello = std::get_if<Hello>(&opened.body);
    const Started& started = hello != nullptr ? hello->started : std::get<HelloAck>(opened.body).started;
    EXPECT_EQ(started.starts, 3u);
    EXPECT_EQ(started.term, Term(4));
    EXPECT_EQ(started.last, LogIndex(5));
    for (size_t i = 0; i < 8; ++i) ASSERT_EQ(datagram[kPeerHeader_bytes + 16 + i], i == 0 ? 3 : 0);
    EXPECT_EQ(Receiver().Open(Forged(datagram, kPeerHeader_bytes + 16, 0)).reason, DropReason::kMalformed)
        << "it says that it does not say";
  }
}

// Which protocol and build, and of which log: behind a length, so that a later program can say more.
TEST(PeerCodec, AHelloSaysMoreThanItsReceiverMustKnow) {
  PeerCodec sender = Sender();
  const PeerTraits traits{.durability = PeerTraits::Durability::kDisk,
                          .features = 5,
                          .version_min = 3,
                          .version_max = 4,
                          .log_uuid = 0x1122334455667788,
                          .build = "hedgerow 1.2"};
  const Started started{.starts = 3, .term = Term(4), .last = LogIndex(5)};
  const std::string whole = sender.Seal(NodeId(1), Term(42), Hello{.nonce = 1, .traits = traits, .started = started});
  const Opened opened = Receiver().Open(whole);
  ASSERT_TRUE(opened.ok()) << Name(opened.reason);
  EXPECT_EQ(std::get<Hello>(opened.body).traits, traits);
  EXPECT_EQ(std::get<Hello>(opened.body).started.starts, 3u);

  // Two bytes more of a program to come, before what it has started with.
  std::string later = whole;
  const size_t end = later.size() - 24;
  later.insert(end, "xy");
  later[kPeerHeader_bytes + 10] = static_cast<char>(later[kPeerHeader_bytes + 10] + 2);
  const uint16_t bytes = static_cast<uint16_t>(later.size());
  std::memcpy(later.data() + offsetof(hr_peer_header, bytes), &bytes, sizeof(bytes));
  const Opened understood = Receiver().Open(Forged(later, kPeerHeader_bytes, later[kPeerHeader_bytes]));
  ASSERT_TRUE(understood.ok()) << Name(understood.reason);
  EXPECT_EQ(std::get<Hello>(understood.body).traits, traits);
  EXPECT_EQ(std::get<Hello>(understood.body).started.starts, 3u);
}

// Nodes of this program and of those before it with the same version are one cluster as long as both hold.
TEST(PeerCodec, WhatVersion4SealedIsOpenedAndWhatIsSealedIsWhatItOpens) {
  ASSERT_EQ(HR_PEER_VERSION, 4) << "another version wants a file of its own, and an upgrade that is not rolling";
  const std::vector<std::string> golden = OfVersion(4);
  const std::vector<PeerBody> bodies = Bodies();
  ASSERT_EQ(golden.size(), bodies.size() + 1);
  PeerCodec sender = Sender();
  const size_t piece = bodies.size() - 2;
  for (size_t i = 0; i < piece; ++i) {
    EXPECT_EQ(sender.Seal(NodeId(1), Term(42), bodies[i]), golden[i]) << i;
    const Opened opened = Receiver().Open(golden[i]);
    ASSERT_TRUE(opened.ok()) << i << " " << Name(opened.reason);
    EXPECT_EQ(opened.body.index(), bodies[i].index());
    EXPECT_EQ(CopyIdIn(opened.header), 0u) << "it says no log";
  }
  const raft::Message message{
      .from = NodeId(2), .to = NodeId(1), .term = Term(42), .config_epoch = 3, .body = Append()};
  EXPECT_EQ(sender.Seal(message, /*followed=*/true), golden[piece]);
  EXPECT_TRUE(Receiver().Open(golden[piece]).ok());
  for (const size_t i : {piece, piece + 1}) {
    EXPECT_EQ(sender.Seal(NodeId(1), Term(42), bodies[i]), golden[i + 1]);
    EXPECT_TRUE(Receiver().Open(golden[i + 1]).ok());
  }
}

TEST(PeerCodec, WhatAnEarlierVersionSealedIsRefusedByName) {
  for (const int version : {2, 3}) {
    const std::vector<std::string> golden = OfVersion(version);
    ASSERT_GE(golden.size(), Bodies().size() - 2) << "version 2 knew no pieces, and neither knew the last kind";
    for (const std::string& datagram : golden) {
      EXPECT_EQ(Receiver().Open(datagram).reason, DropReason::kVersion);
    }
  }
}

// Of a HELLO and its answer the programs before there were copy ids do not look at the term.
TEST(PeerCodec, ACopyIdChangesNothingThatProgramsWithoutOneLookAt) {
  const std::vector<std::string> golden = OfVersion(4);
  ASSERT_GE(golden.size(), 2u);
  PeerCodec sender = Sender();
  constexpr size_t kTermOffset = offsetof(hr_peer_header, term);
  for (size_t i = 0; i < 2; ++i) {
    std::string datagram = sender.Seal(NodeId(1), CopyIdTerm(77), Bodies()[i]);
    const Opened opened = Receiver().Open(datagram);
    ASSERT_TRUE(opened.ok());
    EXPECT_EQ(CopyIdIn(opened.header), 77u);
    datagram.replace(kTagOffset, 8, golden[i], kTagOffset, 8);
    datagram.replace(kTermOffset, 8, golden[i], kTermOffset, 8);
    EXPECT_EQ(datagram, golden[i]);
  }
}

TEST(PeerCodec, AnAppendArrivesAsItWas) {
  Opened opened = Receiver().Open(Sender().Seal(NodeId(1), Term(6), Append()));
  ASSERT_TRUE(opened.ok());
  const auto& append = std::get<raft::AppendRequest>(opened.body);
  EXPECT_EQ(append.prev_index, LogIndex(10));
  EXPECT_EQ(append.prev_term, Term(4));
  EXPECT_EQ(append.commit, LogIndex(9));
  EXPECT_EQ(append.entries, Append().entries);
}

TEST(PeerCodec, AnAnswerArrivesAsItWas) {
  const Opened opened = Receiver().Open(Sender().Seal(NodeId(1), Term(6), Result()));
  ASSERT_TRUE(opened.ok());
  const auto& answer = std::get<ForwardAnswer>(opened.body);
  EXPECT_EQ(answer.tag, 71u);
  EXPECT_EQ(answer.kind, ForwardAnswer::Kind::kResult);
  EXPECT_EQ(answer.result, Result().result);
}

TEST(PeerCodec, TheHeaderIsTheStructOfTheKernelPrograms) {
  PeerCodec sender = Sender();
  sender.Seal(NodeId(1), Term(), Hello{});
  const std::string datagram = sender.Seal(NodeId(1), Term(0x7172737475767778), Hello{.nonce = 5});
  ASSERT_EQ(datagram.size(), 80u);
  hr_peer_header header;
  std::memcpy(&header, datagram.data(), sizeof(header));
  EXPECT_EQ(std::memcmp(datagram.data(), "HRP1", 4), 0);
  EXPECT_EQ(header.magic, HR_PEER_MAGIC);
  EXPECT_EQ(header.version, 4);
  EXPECT_EQ(header.kind, HR_PEER_HELLO);
  EXPECT_EQ(header.bytes, 80);
  EXPECT_EQ(header.cluster_id, kCluster);
  EXPECT_EQ(header.from_incarnation, kIncarnation);
  EXPECT_EQ(header.packet_number, 2u);
  EXPECT_EQ(header.from, 2u);
  EXPECT_EQ(header.to, 1u);
  EXPECT_EQ(header.term, 0x7172737475767778u);
  EXPECT_EQ(header.config_epoch, 3u);
  EXPECT_EQ(header.key_id, KeyId(kKey));
  const hr_siphash_key key = SipHashKey(kKey);
  std::string untagged = datagram;
  std::memset(untagged.data() + kTagOffset, 0, 8);
  EXPECT_EQ(header.tag, hr_siphash(&key, untagged.data(), untagged.size()));
}

TEST(PeerCodec, BodiesAreAsLongAsThePageSays) {
  PeerCodec sender = Sender();
  const auto body_bytes = [&](const PeerBody& body) {
    return sender.Seal(NodeId(1), Term(), body).size() - kPeerHeader_bytes;
  };
  EXPECT_EQ(body_bytes(Hello{}), 16u);
  EXPECT_EQ(body_bytes(HelloAck{}), 16u);
  EXPECT_EQ(body_bytes(raft::VoteRequest{}), 40u);
  EXPECT_EQ(body_bytes(raft::VoteReply{}), 16u);
  EXPECT_EQ(body_bytes(raft::AppendRequest{}), 40u);
  EXPECT_EQ(body_bytes(Append()), 40u + 3 * 21 + 3008);
  EXPECT_EQ(body_bytes(raft::AppendReply{}), 40u);
  EXPECT_EQ(body_bytes(raft::Heartbeat{}), 24u);
  EXPECT_EQ(body_bytes(raft::HeartbeatReply{}), 24u);
  EXPECT_EQ(body_bytes(raft::ReadIndexRequest{}), 16u);
  EXPECT_EQ(body_bytes(raft::ReadIndexReply{}), 24u);
  EXPECT_EQ(body_bytes(raft::LastEntry{}), 32u);
  EXPECT_EQ(body_bytes(raft::TimeoutNow{}), 0u);
  EXPECT_EQ(body_bytes(Forward{}), 29u);
  EXPECT_EQ(body_bytes(ForwardAnswer{}), 27u);
  EXPECT_EQ(body_bytes(Result()), 27u + 3 * 4 + 303);
  EXPECT_EQ(body_bytes(Resign{}), 48u);
}

TEST(PeerCodec, EveryShorteningIsRefused) {
  for (const PeerBody& body : Bodies()) {
    const std::string datagram = Sender().Seal(NodeId(1), Term(42), body);
    for (size_t size = 0; size < datagram.size(); ++size) {
      const Opened opened = Receiver().Open(std::string_view(datagram).substr(0, size));
      EXPECT_EQ(opened.reason, size < kPeerHeader_bytes ? DropReason::kTooShort : DropReason::kLength) << size;
    }
    EXPECT_EQ(Receiver().Open(datagram + '\0').reason, DropReason::kLength);
  }
}

// Also by somebody who has the key: a body ends where it ends.
TEST(PeerCodec, EveryShorteningWithTheRightTagIsMalformed) {
  for (const PeerBody& body : Bodies()) {
    std::string datagram = Sender().Seal(NodeId(1), Term(42), body);
    for (size_t size = kPeerHeader_bytes; size <= datagram.size() + 1; ++size) {
      std::string other = datagram.substr(0, size);
      other.resize(size);
      other[7] = static_cast<char>(size >> 8);
      const Opened opened = Receiver().Open(Forged(other, 6, static_cast<uint8_t>(size)));
      EXPECT_EQ(opened.reason, size == datagram.size() ? DropReason::kNone : DropReason::kMalformed) << size;
    }
  }
}

TEST(PeerCodec, EveryDamagedByteIsRefused) {
  const PeerCodec receiver = Receiver();
  std::mt19937_64 random(1);
  for (const PeerBody& body : Bodies()) {
    const std::string datagram = Sender().Seal(NodeId(1), Term(42), body);
    std::string damaged = datagram;
    for (size_t i = 0; i < datagram.size(); ++i) {
      // All values in the header and the bodies of fixed length; of the 3,000 bytes of a command one each.
      const int flips = i < 256 ? 255 : 1;
      for (int flip = 1; flip <= flips; ++flip) {
        const int by = flips == 1 ? static_cast<int>(1 + random() % 255) : flip;
        damaged[i] = static_cast<char>(datagram[i] ^ by);
        EXPECT_FALSE(receiver.Open(damaged).ok()) << "kind " << body.index() + 1 << " byte " << i << " by " << by;
      }
      damaged[i] = datagram[i];
    }
    EXPECT_TRUE(receiver.Open(damaged).ok());
  }
}

TEST(PeerCodec, AnAppendSaysThatAnotherFollows) {
  constexpr size_t kFlagsOffset = kPeerHeader_bytes + 36;
  const raft::Message message{.from = NodeId(2), .to = NodeId(1), .term = Term(6), .body = Append()};
  PeerCodec sender = Sender();
  const std::string alone = sender.Seal(message);
  const std::string followed = sender.Seal(message, /*followed=*/true);
  EXPECT_EQ(alone[kFlagsOffset], 0);
  EXPECT_EQ(followed[kFlagsOffset], 1);
  const Opened opened = Receiver().Open(followed);
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(std::get<raft::AppendRequest>(opened.body).entries, Append().entries);
  std::string unknown = followed;
  unknown[kFlagsOffset] = 2;
  EXPECT_EQ(Receiver().OpenProven(unknown).reason, DropReason::kMalformed);
}

TEST(PeerCodec, OfAProvenDatagramOnlyTheTagIsBelieved) {
  PeerCodec sender = Sender();
  std::string datagram = sender.Seal(NodeId(1), Term(6), Append());
  datagram[kTagOffset] ^= 1;
  EXPECT_EQ(Receiver().Open(datagram).reason, DropReason::kTag);
  const Opened opened = Receiver().OpenProven(datagram);
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(std::get<raft::AppendRequest>(opened.body).entries, Append().entries);
  EXPECT_EQ(PeerCodec(Identity(3)).OpenProven(datagram).reason, DropReason::kOtherNode);
  EXPECT_EQ(Receiver().OpenProven(datagram.substr(0, datagram.size() - 1)).reason, DropReason::kLength);
}

TEST(PeerCodec, EveryReasonIsSaidForWhatItMeans) {
  const std::string good = Sender().Seal(NodeId(1), Term(42), Hello{.nonce = 1});
  const auto reason = [](const std::string& datagram) { return Receiver().Open(datagram).reason; };
  EXPECT_EQ(reason(good), DropReason::kNone);
  EXPECT_EQ(reason(""), DropReason::kTooShort);
  EXPECT_EQ(reason(Forged(good, 3, '2')), DropReason::kMagic);
  EXPECT_EQ(reason(Forged(good, 4, 1)), DropReason::kVersion);
  EXPECT_EQ(reason(Forged(good, 6, 81)), DropReason::kLength);
  EXPECT_EQ(reason(Forged(good, 16, 0)), DropReason::kOtherCluster);
  EXPECT_EQ(reason(Forged(good, 44, 3)), DropReason::kOtherNode);
  EXPECT_EQ(reason(Forged(good, 56, 4)), DropReason::kNone) << "of another configuration: the core's to judge";
  EXPECT_EQ(reason(Forged(good, 40, 1)), DropReason::kNoMember) << "from itself";
  EXPECT_EQ(reason(Forged(good, 40, 0)), DropReason::kNoMember) << "from nobody";
  EXPECT_EQ(reason(Forged(good, 5, 0)), DropReason::kKind);
  EXPECT_EQ(reason(Forged(good, 5, HR_PEER_KINDS)), DropReason::kKind);
  EXPECT_EQ(reason(Forged(good, 32, 0)), DropReason::kMalformed) << "packet number 0";
  PeerIdentity other = Identity(2);
  Key key = kKey;
  key.bytes[0] ^= 1;
  other.keys = key;
  EXPECT_EQ(reason(PeerCodec(other).Seal(NodeId(1), Term(42), Hello{.nonce = 1})), DropReason::kKey);
}

TEST(PeerCodec, WhileAKeyIsChangedBothOpenAndTheFirstSeals) {
  const Key next = {.bytes = {9, 9, 9}};
  PeerCodec sender = Sender(), receiver = Receiver();
  const auto sealed = [&sender] { return sender.Seal(NodeId(1), Term(42), Hello{.nonce = 1}); };
  const std::string former = sealed();
  sender.SetKeys(KeyRing(kKey, next));
  EXPECT_EQ(receiver.Open(sealed()).reason, DropReason::kNone) << "the former one seals still";
  sender.SetKeys(KeyRing(next, kKey));
  EXPECT_EQ(receiver.Open(sealed()).reason, DropReason::kKey);
  receiver.SetKeys(KeyRing(kKey, next));
  EXPECT_EQ(receiver.Open(sealed()).reason, DropReason::kNone);
  EXPECT_EQ(receiver.Open(former).reason, DropReason::kNone);
  receiver.SetKeys(next);
  EXPECT_EQ(receiver.Open(sealed()).reason, DropReason::kNone);
  EXPECT_EQ(receiver.Open(former).reason, DropReason::kKey) << "a recording is worth nothing";
  EXPECT_EQ(receiver.Open(Forged(sealed(), 5, HR_PEER_HELLO_ACK)).reason, DropReason::kTag)
      << "nor a forgery with the former key";
}

TEST(PeerCodec, AnIncarnationOfZeroIsMalformed) {
  std::string datagram = Sender().Seal(NodeId(1), Term(42), Hello{});
  std::memset(datagram.data() + 24, 0, 8);
  EXPECT_EQ(Receiver().Open(Forged(datagram, 24, 0)).reason, DropReason::kMalformed);
}

TEST(PeerCodec, ForEveryPeerIsForEachOfThem) {
  PeerCodec sender = Sender();
  const std::string datagram = sender.Seal(NodeId(), Term(42), raft::Heartbeat{.round = 1});
  for (const uint64_t node : {1u, 3u, 7u}) EXPECT_TRUE(PeerCodec(Identity(node)).Open(datagram).ok());
  EXPECT_EQ(sender.Open(datagram).reason, DropReason::kNoMember) << "its own comes back";
}

// Raft's fields are numbers, but flags, kinds and codes have values that mean nothing.
TEST(PeerCodec, ValuesThatMeanNothingAreMalformed) {
  const auto reason = [](const PeerBody& body, size_t offset, uint8_t value) {
    const std::string datagram = Sender().Seal(NodeId(1), Term(42), body);
    return Receiver().Open(Forged(datagram, kPeerHeader_bytes + offset, value)).reason;
  };
  EXPECT_EQ(reason(Hello{}, 8, 2), DropReason::kMalformed) << "a format of traits that there is not";
  EXPECT_EQ(reason(HelloAck{}, 9, 3), DropReason::kMalformed) << "durability";
  EXPECT_EQ(reason(HelloAck{}, 10, 1), DropReason::kMalformed) << "more than there is";
  EXPECT_EQ(reason(Hello{}, 15, 0x80), DropReason::kNone) << "a feature that this program does not know";
  EXPECT_EQ(reason(raft::VoteRequest{}, 32, 2), DropReason::kMalformed) << "pre_vote";
  EXPECT_EQ(reason(raft::VoteReply{}, 8, 2), DropReason::kMalformed) << "pre_vote";
  EXPECT_EQ(reason(raft::VoteReply{}, 12, 255), DropReason::kMalformed) << "granted";
  EXPECT_EQ(reason(raft::AppendReply{}, 32, 2), DropReason::kMalformed) << "accepted";
  EXPECT_EQ(reason(raft::AppendReply{}, 36, 1), DropReason::kMalformed) << "reserved";
  EXPECT_EQ(reason(raft::VoteRequest{}, 36, 1), DropReason::kMalformed) << "reserved";
  EXPECT_EQ(reason(Append(), 36, 2), DropReason::kMalformed) << "a flag that there is not";
  EXPECT_EQ(reason(Append(), 24, 5), DropReason::kMalformed) << "a batch term that is not every entry's";
  EXPECT_EQ(reason(Append(), 40 + 16, 3), DropReason::kMalformed) << "entry kind";
  EXPECT_EQ(reason(ForwardAnswer{}, 8, 2), DropReason::kMalformed) << "answer kind";
  const auto no_code = static_cast<uint8_t>(kv::kResultCodeLast) + 1;
  EXPECT_EQ(reason(ForwardAnswer{}, 9, static_cast<uint8_t>(no_code)), DropReason::kMalformed) << "code";
  EXPECT_EQ(reason(ForwardAnswer{.kind = ForwardAnswer::Kind::kNotLeader}, 9, 1), DropReason::kMalformed);
  EXPECT_EQ(reason(ForwardAnswer{.kind = ForwardAnswer::Kind::kNotLeader}, 10, 1), DropReason::kMalformed);
}

TEST(PeerCodec, NotLeaderCarriesNoResult) {
  ForwardAnswer answer = Result();
  answer.kind = ForwardAnswer::Kind::kNotLeader;
  const Opened opened = Receiver().Open(Sender().Seal(NodeId(1), Term(42), answer));
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(std::get<ForwardAnswer>(opened.body).result, kv::Result{});
}

TEST(PeerCodec, NumbersItsDatagramsFromOneOverAllReceivers) {
  PeerCodec sender = Sender();
  EXPECT_EQ(sender.packet_number(), 0u);
  for (uint64_t number = 1; number <= 5; ++number) {
    const uint64_t to = 3 + number % 2;
    const Opened opened = PeerCodec(Identity(to)).Open(sender.Seal(NodeId(to), Term(1), Hello{}));
    ASSERT_TRUE(opened.ok());
    EXPECT_EQ(opened.header.packet_number, number);
  }
}

TEST(PeerCodec, WhatDoesNotFitIsNotSealedAndTakesNoNumber) {
  PeerCodec sender = Sender();
  Forward forward;
  forward.command = std::string(kPeerMax_bytes - kPeerHeader_bytes - 29, 'c');
  const std::string largest = sender.Seal(NodeId(1), Term(1), forward);
  EXPECT_EQ(largest.size(), kPeerMax_bytes);
  EXPECT_TRUE(Receiver().Open(largest).ok());
  forward.command += 'c';
  EXPECT_TRUE(sender.Seal(NodeId(1), Term(1), forward).empty());
  raft::AppendRequest append;
  append.entries.resize(70'000);
  EXPECT_TRUE(sender.Seal(NodeId(1), Term(1), append).empty());
  ForwardAnswer answer;
  answer.result.values.resize(65);
  EXPECT_TRUE(sender.Seal(NodeId(1), Term(1), answer).empty());
  EXPECT_EQ(sender.packet_number(), 1u);
}

TEST(PeerCodec, AnAppendTakesWhatItsConstantsSay) {
  PeerCodec sender = Sender();
  EXPECT_EQ(sender.Seal(NodeId(1), Term(1), Append()).size(), kAppendFixed_bytes + 3 * kAppendEntryFixed_bytes + 3008);
}

// By it a kernel program knows a batch without looking at its entries.
TEST(PeerCodec, AnAppendSaysTheTermThatAllItsEntriesHave) {
  const auto batch_term = [](const raft::AppendRequest& append) {
    const std::string datagram = Sender().Seal(NodeId(1), Term(9), append);
    hr_peer_append fixed;
    std::memcpy(&fixed, datagram.data() + kPeerHeader_bytes, sizeof(fixed));
    EXPECT_EQ(fixed.count, append.entries.size());
    return fixed.batch_term;
  };
  raft::AppendRequest append = Append();
  EXPECT_EQ(batch_term(append), 0u) << "of two terms";
  append.entries.pop_back();
  EXPECT_EQ(batch_term(append), 5u);
  append.entries.clear();
  EXPECT_EQ(batch_term(append), 0u);
}

TEST(PeerCodec, ASuccessorAfterTheLastIsMalformed) {
  const std::string datagram = Sender().Seal(NodeId(1), Term(1), Resign{.successors = {NodeId(4)}});
  EXPECT_EQ(Receiver().Open(Forged(datagram, kPeerHeader_bytes + 24, 5)).reason, DropReason::kMalformed);
}

// Programs of this version that do not know of it drop it as malformed, and wait as they would.
TEST(PeerCodec, AStalledLeaderNamesNoSuccessor) {
  const Resign body{.incarnation = 25, .leader = NodeId(2), .stalled = true};
  const std::string stalled = Sender().Seal(NodeId(1), Term(1), body);
  const Opened opened = Receiver().Open(stalled);
  ASSERT_TRUE(opened.ok());
  EXPECT_TRUE(std::get<Resign>(opened.body).stalled);
  EXPECT_EQ(Sender().Seal(NodeId(1), Term(1), opened.body), stalled);
  EXPECT_EQ(Receiver().Open(Forged(stalled, kPeerHeader_bytes + 16, 4)).reason, DropReason::kMalformed);
  EXPECT_EQ(Receiver().Open(Forged(stalled, kPeerHeader_bytes + 12, 2)).reason, DropReason::kMalformed);
}

// A node's process and its kernel programs number their datagrams together.
TEST(PeerCodec, DrawsItsNumbersFromACounterThatOthersShare) {
  PeerCodec sender = Sender();
  uint64_t shared = 100;
  sender.DrawFrom([&shared] { return ++shared; });
  EXPECT_EQ(Receiver().Open(sender.Seal(NodeId(1), Term(1), Hello{})).header.packet_number, 101u);
  shared = 200;
  EXPECT_EQ(Receiver().Open(sender.Seal(NodeId(1), Term(1), Hello{})).header.packet_number, 201u);
  EXPECT_EQ(shared, 201u);
}

// A count that promises more than there is must not take memory for it.
TEST(PeerCodec, AnAppendsCountIsHeldAgainstItsBytes) {
  const std::string datagram = Sender().Seal(NodeId(1), Term(1), raft::AppendRequest{});
  EXPECT_EQ(Receiver().Open(Forged(datagram, kPeerHeader_bytes + 35, 0xff)).reason, DropReason::kMalformed);
}

TEST(TakeMessage, GivesTheCoresMessagesAndNoOthers) {
  for (const PeerBody& body : Bodies()) {
    Opened opened = Receiver().Open(Sender().Seal(NodeId(), Term(42), body));
    ASSERT_TRUE(opened.ok());
    const bool is_ours = std::holds_alternative<Hello>(body) || std::holds_alternative<HelloAck>(body) ||
                         std::holds_alternative<Forward>(body) || std::holds_alternative<ForwardAnswer>(body) ||
                         std::holds_alternative<Resign>(body) || std::holds_alternative<Piece>(body);
    const auto message = TakeMessage(NodeId(1), opened);
    ASSERT_EQ(message.has_value(), !is_ours) << body.index();
    if (!message.has_value()) continue;
    EXPECT_EQ(message->from, NodeId(2));
    EXPECT_EQ(message->to, NodeId(1));
    EXPECT_EQ(message->term, Term(42));
    // Sealing the core's message is sealing its body.
    EXPECT_EQ(Sender().Seal(*message), Sender().Seal(NodeId(1), Term(42), body));
  }
}

TEST(DropReason, HasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (size_t reason = 0; reason < kDropReasons; ++reason) names.insert(Name(static_cast<DropReason>(reason)));
  EXPECT_EQ(names.size(), kDropReasons);
  EXPECT_EQ(Name(DropReason::kTooShort), "too_short");
  EXPECT_EQ(Name(DropReason::kReplayed), "replayed");
  EXPECT_EQ(Name(DropReason::kHelloLimit), "hello_limit");
  EXPECT_EQ(Name(DropReason::kForeignLog), "foreign_log");
  EXPECT_EQ(Name(DropReason::kPiece), "piece");
  EXPECT_EQ(Name(static_cast<DropReason>(200)), "unknown");
}

}  // namespace
}  // namespace hedgerow::wire
