// SPDX-License-Identifier: Apache-2.0
//
// Messages that are longer than a datagram: split, lost in part, repeated, mixed, and bounded in memory.
#include "cluster/wire/peer_pieces.h"

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "cluster/wire/peer_incarnations.h"

namespace hedgerow::wire {
namespace {

using raft::NodeId;
using raft::Term;

constexpr uint64_t kIncarnation = 77;

PeerIdentity Identity(uint64_t node, uint64_t incarnation = kIncarnation) {
  return {.cluster_id = 7,
          .keys = Key{.bytes = {1, 2, 3}},
          .self = NodeId(node),
          .incarnation = incarnation,
          .config_epoch = 3};
}

// Node 2 speaks to node 1, which puts together what arrives.
class PeerPiecesTest : public testing::Test {
 protected:
  static std::string Text(size_t bytes) {
    std::string text(bytes, '\0');
    std::mt19937 random(static_cast<uint32_t>(bytes));
    for (char& letter : text) letter = static_cast<char>(random());
    return text;
  }
  std::string Sealed(size_t command_bytes) {
    return sender_.Seal(NodeId(1), Term(42), Forward{.tag = 5, .command = Text(command_bytes)});
  }
  std::vector<std::string> Pieces(size_t command_bytes) { return sender_.Split(Sealed(command_bytes)); }

  PeerPieces::Taken Take(const std::string& datagram) {
    Opened opened = receiver_.Open(datagram);
    EXPECT_TRUE(opened.ok()) << Name(opened.reason);
    if (!opened.ok()) return {.reason = opened.reason};
    return pieces_.Take(opened.header, std::get<Piece>(std::move(opened.body)));
  }
  // A piece like this datagram's, with another packet number, as `change` wants it.
  template <typename Change>
  std::string Changed(const std::string& datagram, Change change) {
    Opened opened = receiver_.Open(datagram);
    auto piece = std::get<Piece>(std::move(opened.body));
    change(piece);
    return sender_.Seal(NodeId(1), Term(42), std::move(piece));
  }
  std::string Again(const std::string& datagram) {
    return Changed(datagram, [](Piece&) {});
  }

  PeerCodec sender_{Identity(2)};
  PeerCodec receiver_{Identity(1)};
  PeerPieces pieces_;
};

TEST_F(PeerPiecesTest, AMessageArrivesWholeWhateverTheOrderOfItsPieces) {
  std::mt19937 random(1);
  for (const size_t bytes : {size_t{1200}, size_t{1400}, size_t{8192}, size_t{60'000}}) {
    const std::string sealed = Sealed(bytes);
    std::vector<std::string> datagrams = sender_.Split(sealed);
    std::shuffle(datagrams.begin(), datagrams.end(), random);
    std::string whole;
    for (const std::string& datagram : datagrams) {
      EXPECT_LE(datagram.size(), kPeerDatagramMax_bytes);
      EXPECT_TRUE(whole.empty());
      PeerPieces::Taken taken = Take(datagram);
      EXPECT_EQ(taken.reason, DropReason::kNone);
      whole = std::move(taken.message);
    }
    EXPECT_EQ(whole, sealed);
    const Opened opened = receiver_.Open(whole);
    ASSERT_TRUE(opened.ok());
    EXPECT_EQ(std::get<Forward>(opened.body).command, Text(bytes));
  }
  EXPECT_EQ(pieces_.counters().completed, 4u);
  EXPECT_EQ(pieces_.counters().incomplete, 0u);
}

TEST_F(PeerPiecesTest, TheLargestMessageHasPiecesEnough) {
  const std::string sealed = Sealed(kPeerMax_bytes - kPeerHeader_bytes - 29);
  ASSERT_EQ(sealed.size(), kPeerMax_bytes);
  const std::vector<std::string> datagrams = sender_.Split(sealed);
  EXPECT_LE(datagrams.size(), size_t{HR_PEER_PIECES_MAX});
  std::string whole;
  for (const std::string& datagram : datagrams) whole = Take(datagram).message;
  EXPECT_EQ(whole, sealed);
}

TEST_F(PeerPiecesTest, PiecesSayWhatTheirMessageSays) {
  raft::AppendRequest append;
  append.entries.push_back({.payload = raft::Payload(Text(3000))});
  const raft::Message message{
      .from = NodeId(2), .to = {}, .term = Term(9), .config_epoch = 8, .body = std::move(append)};
  const std::string sealed = sender_.Seal(message);
  const uint64_t number = sender_.packet_number();
  for (const std::string& datagram : sender_.Split(sealed)) {
    const Opened opened = receiver_.Open(datagram);
    ASSERT_TRUE(opened.ok());
    EXPECT_FALSE(opened.header.to.IsSet()) << "for every peer";
    EXPECT_EQ(opened.header.term, Term(9));
    EXPECT_EQ(opened.header.config_epoch, 8u);
    EXPECT_GT(opened.header.packet_number, number);
    EXPECT_EQ(std::get<Piece>(opened.body).message, number);
  }
}

TEST_F(PeerPiecesTest, PiecesOfSeveralMessagesMayBeMixed) {
  const std::vector<std::string> first = Pieces(3000);
  const std::vector<std::string> second = Pieces(3000);
  ASSERT_EQ(first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i) {
    const bool last = i + 1 == first.size();
    EXPECT_EQ(Take(first[i]).message.empty(), !last);
    EXPECT_EQ(Take(second[i]).message.empty(), !last);
  }
}

TEST_F(PeerPiecesTest, AMessageThatHasLostAPieceIsGivenUpOnceThatPieceIsTooOld) {
  const std::vector<std::string> lost = Pieces(5000);
  for (size_t i = 1; i < lost.size(); ++i) EXPECT_TRUE(Take(lost[i]).message.empty());
  const auto complete = [this] {
    std::string whole;
    for (const std::string& datagram : Pieces(5000)) whole = Take(datagram).message;
    return !whole.empty();
  };
  EXPECT_TRUE(complete());
  EXPECT_EQ(pieces_.counters().incomplete, 0u) << "the piece may be late";
  for (uint64_t i = 0; i < ReplayWindow::kNumbers + HR_PEER_PIECES_MAX; ++i) {
    sender_.Seal(NodeId(3), Term(), Hello{});
  }
  EXPECT_TRUE(complete());
  EXPECT_EQ(pieces_.counters().incomplete, 1u);
}

TEST_F(PeerPiecesTest, APieceThatRepeatsOrContradictsAnotherIsRefused) {
  const std::vector<std::string> datagrams = Pieces(3000);
  ASSERT_EQ(datagrams.size(), 3u);
  EXPECT_EQ(Take(datagrams[0]).reason, DropReason::kNone);
  EXPECT_EQ(Take(Again(datagrams[0])).reason, DropReason::kPiece);
  EXPECT_EQ(Take(Changed(datagrams[0], [](Piece& piece) { piece.bytes += 'x'; })).reason, DropReason::kPiece);
  EXPECT_EQ(Take(Changed(datagrams[1], [](Piece& piece) { piece.count = 2; })).reason, DropReason::kPiece);
  EXPECT_EQ(Take(Changed(datagrams[1], [](Piece& piece) { piece.count = 64, piece.number = 63; })).reason,
            DropReason::kPiece);
  EXPECT_EQ(Take(datagrams[1]).reason, DropReason::kNone);
  EXPECT_FALSE(Take(datagrams[2]).message.empty()) << "the right ones make it up all the same";
  EXPECT_EQ(pieces_.counters().received, 3u);
}

TEST_F(PeerPiecesTest, CountsAndNumbersThatCannotBeAreMalformed) {
  const std::vector<std::string> datagrams = Pieces(3000);
  const auto reason = [&](auto change) { return receiver_.Open(Changed(datagrams[0], change)).reason; };
  EXPECT_EQ(reason([](Piece& piece) { piece.count = 0; }), DropReason::kMalformed);
  EXPECT_EQ(reason([](Piece& piece) { piece.count = 1; }), DropReason::kMalformed);
  EXPECT_EQ(reason([](Piece& piece) { piece.count = HR_PEER_PIECES_MAX + 1; }), DropReason::kMalformed);
  EXPECT_EQ(reason([](Piece& piece) { piece.number = piece.count; }), DropReason::kMalformed);
  EXPECT_EQ(reason([](Piece& piece) { piece.bytes.clear(); }), DropReason::kMalformed);
  EXPECT_EQ(reason([](Piece& piece) { piece.bytes = Text(kPeerDatagramMax_bytes + 1); }), DropReason::kMalformed);
  EXPECT_EQ(reason([](Piece& piece) { piece.count = HR_PEER_PIECES_MAX; }), DropReason::kNone);
}

TEST_F(PeerPiecesTest, NoMessageIsLongerThanOneMayBe) {
  const std::string datagram = Pieces(3000)[0];
  const auto piece = [&](uint16_t number) {
    return Changed(
        datagram, [number](Piece& made) { made = {.message = 1, .number = number, .count = 64, .bytes = Text(1100)}; });
  };
  for (uint16_t number = 0; number < 59; ++number) EXPECT_EQ(Take(piece(number)).reason, DropReason::kNone);
  EXPECT_EQ(Take(piece(59)).reason, DropReason::kPiece);
}

TEST_F(PeerPiecesTest, PiecesOfTwoIncarnationsMakeNoMessage) {
  const std::vector<std::string> before = Pieces(1400);
  EXPECT_TRUE(Take(before[0]).message.empty());
  sender_ = PeerCodec(Identity(2, kIncarnation + 1));
  const std::vector<std::string> after = Pieces(1400);
  EXPECT_TRUE(Take(after[1]).message.empty()) << "its message has the same number";
  EXPECT_EQ(pieces_.counters().incomplete, 1u);
  EXPECT_FALSE(Take(after[0]).message.empty());
}

TEST_F(PeerPiecesTest, APieceInPiecesIsRefused) {
  const std::string inner = Pieces(1400)[0];
  ASSERT_EQ(inner.size(), kPeerDatagramMax_bytes);
  const auto half = [&](uint16_t number) {
    std::string bytes = number == 0 ? inner.substr(0, 600) : inner.substr(600);
    return sender_.Seal(NodeId(1), Term(42),
                        Piece{.message = 99, .number = number, .count = 2, .bytes = std::move(bytes)});
  };
  EXPECT_EQ(Take(half(0)).reason, DropReason::kNone);
  EXPECT_EQ(Take(half(1)).reason, DropReason::kPiece);
  EXPECT_EQ(pieces_.counters().completed, 0u);
}

TEST_F(PeerPiecesTest, APeerHasSoManyIncompleteMessagesAndTheOldestGoes) {
  std::vector<std::vector<std::string>> messages;
  for (size_t i = 0; i <= PeerPieces::kMessagesMax; ++i) {
    messages.push_back(Pieces(1400));
    EXPECT_TRUE(Take(messages.back()[0]).message.empty());
  }
  EXPECT_EQ(pieces_.counters().incomplete, 1u);
  for (size_t i = 1; i < messages.size(); ++i) EXPECT_FALSE(Take(messages[i][1]).message.empty()) << i;
  EXPECT_TRUE(Take(messages[0][1]).message.empty()) << "its first piece is forgotten";
}

TEST_F(PeerPiecesTest, APeerHasSoManyBytesAndTheOldestMessageGoes) {
  std::vector<std::vector<std::string>> messages;
  for (size_t sent_bytes = 0; sent_bytes <= PeerPieces::kBytesMax; sent_bytes += 60'000) {
    messages.push_back(Pieces(60'000));
    for (size_t i = 1; i < messages.back().size(); ++i) EXPECT_TRUE(Take(messages.back()[i]).message.empty());
  }
  ASSERT_LT(messages.size(), PeerPieces::kMessagesMax);
  EXPECT_EQ(pieces_.counters().incomplete, 1u);
  EXPECT_FALSE(Take(messages.back()[0]).message.empty());
  EXPECT_FALSE(Take(messages[1][0]).message.empty());
  EXPECT_TRUE(Take(messages[0][0]).message.empty());
}

TEST_F(PeerPiecesTest, OnePeersPiecesPushNoneOfAnotherOut) {
  PeerCodec other(Identity(3));
  const std::vector<std::string> theirs = other.Split(other.Seal(NodeId(1), Term(1), Forward{.command = Text(1400)}));
  EXPECT_TRUE(Take(theirs[0]).message.empty());
  for (size_t i = 0; i < 2 * PeerPieces::kMessagesMax; ++i) Take(Pieces(1400)[0]);
  EXPECT_FALSE(Take(theirs[1]).message.empty());
}

TEST_F(PeerPiecesTest, APeerThatIsForgottenLeavesNothing) {
  const std::vector<std::string> datagrams = Pieces(1400);
  EXPECT_TRUE(Take(datagrams[0]).message.empty());
  pieces_.Forget(NodeId(2));
  EXPECT_EQ(pieces_.counters().incomplete, 1u);
  EXPECT_TRUE(Take(datagrams[1]).message.empty());
}

// A message's own number is lower than those of its pieces, and is looked at when the last of them has come.
TEST_F(PeerPiecesTest, TheReplayWindowIsWideEnoughForManyLargeMessagesOutOfOrder) {
  PeerIncarnations incarnations(NodeId(1), {NodeId(2)}, [] { return uint64_t{5}; });
  incarnations.NonceFor(NodeId(2), 1);
  const std::string ack = sender_.Seal(NodeId(1), CopyIdTerm(9), HelloAck{.nonce = 5});
  ASSERT_EQ(incarnations.Admit(receiver_.Open(ack), 1), DropReason::kNone);
  std::vector<std::string> datagrams;
  for (int i = 0; i < 8; ++i) {
    for (std::string& piece : Pieces(60'000)) datagrams.push_back(std::move(piece));
  }
  std::shuffle(datagrams.begin(), datagrams.end(), std::mt19937(3));
  size_t whole = 0;
  for (const std::string& datagram : datagrams) {
    ASSERT_EQ(incarnations.Admit(receiver_.Open(datagram), 2), DropReason::kNone);
    const std::string message = Take(datagram).message;
    if (message.empty()) continue;
    ++whole;
    EXPECT_EQ(incarnations.Admit(receiver_.Open(message), 2), DropReason::kNone);
  }
  EXPECT_EQ(whole, 8u);
}

}  // namespace
}  // namespace hedgerow::wire
