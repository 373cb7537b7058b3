// SPDX-License-Identifier: Apache-2.0
//
// Puts messages together that arrive in pieces, because they are longer than a datagram (PeerCodec::Split).
// Each piece was authenticated and admitted on its own before it comes here, so only peers can take memory, and
// each peer no more than the bounds below. The whole message is judged by its receiver as if it had come as one
// datagram: it has a tag and a packet number of its own. Used by the node's transport, in its loop's thread;
// not thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "cluster/raft/types.h"
#include "cluster/wire/peer.h"

namespace hedgerow::wire {

class PeerPieces {
 public:
  // Incomplete messages of one peer, and their bytes. The oldest message is given up for a newer one: a sender
  // sends all pieces of a message in a row, so the oldest is the likeliest to have lost one.
  static constexpr size_t kMessagesMax = 32;
  static constexpr size_t kBytesMax = 512 * 1024;

  struct Counters {
    uint64_t received = 0;    // pieces that were kept
    uint64_t completed = 0;   // messages
    uint64_t incomplete = 0;  // messages that were given up
  };

  struct Taken {
    DropReason reason = DropReason::kNone;
    std::string message{};  // whole, if this was its last missing piece; else empty
  };

  // A piece whose datagram, with this header, PeerCodec has opened and PeerIncarnations has admitted. kPiece:
  // it does not go with the earlier pieces of its message (and these stay), or the message is itself a piece.
  Taken Take(const PeerHeader& header, Piece piece);
  // This peer's messages are given up.
  void Forget(raft::NodeId peer);

  const Counters& counters() const { return counters_; }

 private:
  struct Message {
    uint64_t packet_number = 0;
    std::vector<std::string> pieces{};  // by number; empty: missing
    size_t missing = 0;
    size_t bytes = 0;
  };
  struct Sender {
    raft::NodeId id{};
    uint64_t incarnation = 0;        // of all its messages
    std::deque<Message> messages{};  // in the order in which their first pieces arrived
    size_t bytes = 0;
  };

  Sender& SenderOf(const PeerHeader& header);
  std::deque<Message>::iterator MessageOf(Sender& sender, const Piece& piece);
  void GiveUp(Sender& sender, std::deque<Message>::iterator message);
  static std::string Join(Sender& sender, std::deque<Message>::iterator message);

  std::vector<Sender> senders_;
  Counters counters_;
};

}  // namespace hedgerow::wire
