// SPDX-License-Identifier: Apache-2.0
#include "cluster/wire/peer_pieces.h"

#include <algorithm>
#include <utility>

#include "cluster/wire/replay_window.h"

namespace hedgerow::wire {
namespace {

// A piece in pieces would make the receiver call itself as often as its sender likes.
bool IsPiece(const std::string& message) {
  constexpr size_t kKindOffset = offsetof(hr_peer_header, kind);
  return message.size() > kKindOffset && message[kKindOffset] == char{HR_PEER_PIECE};
}

}  // namespace

PeerPieces::Taken PeerPieces::Take(const PeerHeader& header, Piece piece) {
  Sender& sender = SenderOf(header);
  // Pieces have numbers just above their message's. Behind the replay window none is admitted any more.
  while (!sender.messages.empty() &&
         sender.messages.front().packet_number + HR_PEER_PIECES_MAX + ReplayWindow::kNumbers < header.packet_number) {
    GiveUp(sender, sender.messages.begin());
  }
  const auto message = MessageOf(sender, piece);
  std::vector<std::string>& pieces = message->pieces;
  const bool fits = piece.count == pieces.size() && pieces[piece.number].empty() &&
                    message->bytes + piece.bytes.size() <= kPeerMax_bytes;
  if (!fits) return {.reason = DropReason::kPiece};
  ++counters_.received;
  message->bytes += piece.bytes.size();
  sender.bytes += piece.bytes.size();
  pieces[piece.number] = std::move(piece.bytes);
  if (--message->missing == 0) {
    std::string whole = Join(sender, message);
    if (IsPiece(whole)) return {.reason = DropReason::kPiece};
    ++counters_.completed;
    return {.message = std::move(whole)};
  }
  // This message alone is below the bound, so another one is given up before it.
  while (sender.bytes > kBytesMax) {
    const bool oldest = sender.messages.front().packet_number == piece.message;
    GiveUp(sender, sender.messages.begin() + (oldest ? 1 : 0));
  }
  return {};
}

void PeerPieces::Forget(raft::NodeId peer) {
  std::erase_if(senders_, [&](const Sender& sender) {
    if (sender.id != peer) return false;
    counters_.incomplete += sender.messages.size();
    return true;
  });
}

// What an earlier incarnation has left incomplete stays so: none of its datagrams is admitted any more.
PeerPieces::Sender& PeerPieces::SenderOf(const PeerHeader& header) {
  const auto found =
      std::find_if(senders_.begin(), senders_.end(), [&](const Sender& sender) { return sender.id == header.from; });
  Sender& sender = found != senders_.end() ? *found : senders_.emplace_back(Sender{.id = header.from});
  if (sender.incarnation != header.from_incarnation) {
    counters_.incomplete += sender.messages.size();
    sender = {.id = header.from, .incarnation = header.from_incarnation};
  }
  return sender;
}

std::deque<PeerPieces::Message>::iterator PeerPieces::MessageOf(Sender& sender, const Piece& piece) {
  const auto found = std::find_if(sender.messages.begin(), sender.messages.end(),
                                  [&](const Message& message) { return message.packet_number == piece.message; });
  if (found != sender.messages.end()) return found;
  if (sender.messages.size() >= kMessagesMax) GiveUp(sender, sender.messages.begin());
  sender.messages.push_back({.packet_number = piece.message, .missing = piece.count});
  sender.messages.back().pieces.resize(piece.count);
  return sender.messages.end() - 1;
}

void PeerPieces::GiveUp(Sender& sender, std::deque<Message>::iterator message) {
  ++counters_.incomplete;
  sender.bytes -= message->bytes;
  sender.messages.erase(message);
}

std::string PeerPieces::Join(Sender& sender, std::deque<Message>::iterator message) {
  std::string whole;
  whole.reserve(message->bytes);
  for (const std::string& piece : message->pieces) whole += piece;
  sender.bytes -= message->bytes;
  sender.messages.erase(message);
  return whole;
}

}  // namespace hedgerow::wire
