// SPDX-License-Identifier: Apache-2.0
//
// What nodes say to each other as datagrams: bpf/abi/peer_abi.h and a body. PeerCodec seals what this process
// sends and opens what it receives; opening checks everything that needs no memory of earlier datagrams, and
// PeerIncarnations (peer_incarnations.h) the rest. Used by the node's transport, in its loop's thread; not
// thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "bpf/abi/peer_abi.h"
#include "bpf/abi/siphash_abi.h"
#include "cluster/kv/command.h"
#include "cluster/raft/message.h"
#include "cluster/raft/types.h"
#include "cluster/wire/key.h"

namespace hedgerow::wire {

constexpr uint16_t kPeerPort = 4802;
constexpr size_t kPeerHeader_bytes = HR_PEER_HEADER_BYTES;
constexpr size_t kPeerMax_bytes = HR_PEER_MAX_BYTES;                   // of a message
constexpr size_t kPeerDatagramMax_bytes = HR_PEER_DATAGRAM_MAX_BYTES;  // of what is sent; see PeerCodec::Split
// What an APPEND takes besides its payloads: once, and for each entry.
constexpr size_t kAppendFixed_bytes = kPeerHeader_bytes + sizeof(hr_peer_append);
constexpr size_t kAppendEntryFixed_bytes = 21;

// In the header of a HELLO: its sender has lost what it promised, and will never take part as itself again. It
// gets no answer; a node that hears it may report it to an operator, and believes nothing else for it.
inline constexpr raft::Term kLostTerm{UINT64_MAX};

// In the header of a HELLO_ACK: its sender has recorded another log of the node that asked, or knows of a later
// state of it, and never believes this one under that id.
inline constexpr raft::Term kForeignLogTerm{UINT64_MAX - 1};
// In the header of a HELLO_ACK: the node that asked is no member by the configuration that is committed at its
// sender, whose epoch stands in the header. The sender is no peer of it, and says nothing else.
inline constexpr raft::Term kRemovedTerm{UINT64_MAX - 2};

// Otherwise the term of a HELLO and of a HELLO_ACK says which log its sender has. Programs from before there
// were copy ids look at neither, and put their term there, which is less than all of these.
inline constexpr uint64_t kCopyIdMark = uint64_t{1} << 63;
inline constexpr uint64_t kCopyIds = uint64_t{1} << 62;  // they are 1 to this, less one

constexpr raft::Term CopyIdTerm(uint64_t copy_id) { return raft::Term(kCopyIdMark | copy_id); }

inline constexpr size_t kBuildMax_bytes = 63;

// What a node must have in common with its peers, or says that it can do; in every HELLO and HELLO_ACK.
struct PeerTraits {
  enum class Durability : uint8_t { kUnknown = 0, kDisk = 1, kMemory = 2 };
  Durability durability = Durability::kUnknown;
  uint32_t features = 0;  // bits (kv/features.h); an unknown one means nothing
  // The least and the greatest version of this protocol that the sender speaks; 0: it does not say.
  uint16_t version_min = 0;
  uint16_t version_max = 0;
  uint64_t log_uuid = 0;  // of the replicated log that it has a copy of; 0: it has not heard of it yet
  std::string build{};    // for people; at most kBuildMax_bytes
  // By KeyId: which cluster key the sender seals with, and which other one it opens; 0: none.
  uint32_t sealing_key = 0;
  uint32_t other_key = 0;

  bool operator==(const PeerTraits&) const = default;
};

// What a node found in its folder when it started: how often it has started on its log by now, and the term and
// last entry that it had then. All that it promised in former incarnations is in it, or the folder is an older
// copy that was put back.
struct Started {
  uint64_t starts = 0;  // 0: it does not say (a program from before, or a LOST node)
  raft::Term term{};
  raft::LogIndex last{};
};

struct Hello {
  uint64_t nonce = 0;
  PeerTraits traits{};
  Started started{};
};

struct HelloAck {
  uint64_t nonce = 0;
  PeerTraits traits{};
  Started started{};
};

// A client's write on its way to the leader.
struct Forward {
  uint64_t tag = 0;  // the sender's, repeated in the answer
  uint64_t age_ns = 0;
  uint64_t timeout_ns = 0;
  uint8_t hops = 0;
  std::string command{};  // as it stands in the log: kv::Encode
};

struct ForwardAnswer {
  enum class Kind : uint8_t { kResult = 0, kNotLeader = 1 };
  uint64_t tag = 0;
  Kind kind = Kind::kResult;
  kv::Result result{};  // kResult
};

// A dying leader's last message, sent by its kernel: the nodes that should stand for election at once, in
// order. Or, where its loop only waits for a processor, that it is stalled: then it does not resign, and names no
// node.
struct Resign {
  uint64_t incarnation = 0;  // of the leader that resigns
  raft::NodeId leader{};
  bool stalled = false;
  std::vector<raft::NodeId> successors{};  // at most HR_PEER_SUCCESSORS
};

// Part of a sealed message that is longer than a datagram.
struct Piece {
  uint64_t message = 0;  // the message's packet number
  uint16_t number = 0;   // of this piece within its message, from 0
  uint16_t count = 0;    // of the message's pieces: 2 to HR_PEER_PIECES_MAX
  std::string bytes{};   // at least one
};

// In the order of enum hr_peer_kind.
using PeerBody =
    std::variant<Hello, HelloAck, raft::VoteRequest, raft::VoteReply, raft::AppendRequest, raft::AppendReply,
                 raft::Heartbeat, raft::HeartbeatReply, raft::ReadIndexRequest, raft::ReadIndexReply, raft::TimeoutNow,
                 Forward, ForwardAnswer, Resign, Piece, raft::LastEntry>;

struct PeerHeader {
  hr_peer_kind kind = HR_PEER_HELLO;
  uint64_t from_incarnation = 0;
  uint64_t packet_number = 0;
  raft::NodeId from{};
  raft::NodeId to{};  // not set: every peer
  raft::Term term{};
  uint32_t config_epoch = 0;
};

// Of a HELLO or HELLO_ACK; 0: it says none.
constexpr uint64_t CopyIdIn(const PeerHeader& header) {
  const uint64_t value = header.term.value();
  return value >= kCopyIdMark && value - kCopyIdMark < kCopyIds ? value - kCopyIdMark : 0;
}

enum class DropReason : uint8_t {
  kNone = HR_PEER_DROP_NONE,
  kTooShort = HR_PEER_DROP_TOO_SHORT,
  kMagic = HR_PEER_DROP_MAGIC,
  kVersion = HR_PEER_DROP_VERSION,
  kLength = HR_PEER_DROP_LENGTH,
  kOtherCluster = HR_PEER_DROP_OTHER_CLUSTER,
  kOtherNode = HR_PEER_DROP_OTHER_NODE,
  kTag = HR_PEER_DROP_TAG,
  kConfigEpoch = HR_PEER_DROP_CONFIG_EPOCH,
  kKind = HR_PEER_DROP_KIND,
  kMalformed = HR_PEER_DROP_MALFORMED,
  kNoMember = HR_PEER_DROP_NO_MEMBER,
  kIncarnationUnknown = HR_PEER_DROP_INCARNATION_UNKNOWN,
  kOtherIncarnation = HR_PEER_DROP_OTHER_INCARNATION,
  kReplayed = HR_PEER_DROP_REPLAYED,
  kTooOld = HR_PEER_DROP_TOO_OLD,
  kNonce = HR_PEER_DROP_NONCE,
  kHelloLimit = HR_PEER_DROP_HELLO_LIMIT,
  kForeignLog = HR_PEER_DROP_FOREIGN_LOG,
  kOtherDurability = HR_PEER_DROP_OTHER_DURABILITY,
  kPiece = HR_PEER_DROP_PIECE,
  kSource = HR_PEER_DROP_SOURCE,
  kKey = HR_PEER_DROP_KEY,
  kTerm = HR_PEER_DROP_TERM,
};
constexpr size_t kDropReasons = HR_PEER_DROPS;

// For metrics: "replayed". The caller counts what it drops, by reason.
std::string_view Name(DropReason reason);

struct Opened {
  DropReason reason = DropReason::kNone;  // anything else: `header` and `body` mean nothing
  PeerHeader header{};
  PeerBody body{};

  bool ok() const { return reason == DropReason::kNone; }
};

struct PeerIdentity {
  uint64_t cluster_id = 0;
  KeyRing keys{};
  raft::NodeId self{};        // 1..2^32-1
  uint64_t incarnation = 0;   // drawn at random when the process starts, never 0
  uint32_t config_epoch = 0;  // at first: see PeerCodec::SetConfigEpoch
  PeerTraits traits{};        // for the transport's HELLOs; the codec writes what it is given
};

class PeerCodec {
 public:
  explicit PeerCodec(const PeerIdentity& identity);

  // The message, with the next packet number. `to` not set: for every peer. `term` is this node's.
  // Empty, and no number is drawn, if it would pass kPeerMax_bytes or a count its field: only an append or a
  // command beyond any bound of ours can be.
  std::string Seal(raft::NodeId to, raft::Term term, const PeerBody& body);
  // The same for a message of the core's, without a copy of its body. `followed`: an append that another one
  // follows, to the same peers and at once.
  std::string Seal(const raft::Message& message, bool followed = false);
  // The datagrams that carry a sealed message which is longer than kPeerDatagramMax_bytes: its pieces, in
  // order, each sealed with a packet number of its own. A shorter message is its own datagram.
  std::vector<std::string> Split(std::string_view sealed);

  // What may be believed of a datagram before PeerIncarnations::Admit has looked at it: nothing yet.
  Opened Open(std::string_view datagram) const;
  // The same of one whose tag this node's kernel part has found right, in memory that only the kernel writes.
  Opened OpenProven(std::string_view datagram) const;

  // The configuration that this node goes by from now on; the core's messages carry their own.
  void SetConfigEpoch(uint32_t epoch) { identity_.config_epoch = epoch; }
  // From the next datagram on.
  void SetKeys(const KeyRing& keys) { identity_.keys = keys; }

  uint64_t incarnation() const { return identity_.incarnation; }
  uint64_t packet_number() const { return packet_number_; }  // of the last datagram sealed; 0: none yet

  // From now on numbers come from `draw`: a counter that others (a node's kernel programs) draw from, too.
  void DrawFrom(std::function<uint64_t()> draw) { draw_ = std::move(draw); }

 private:
  template <typename Body>
  std::string SealBody(raft::NodeId to, raft::Term term, uint32_t config_epoch, const Body& body,
                       bool followed = false);
  Opened Open(std::string_view datagram, bool proven) const;
  DropReason WhyNotSealed(std::string_view datagram, uint32_t key_id, uint64_t tag, bool proven) const;
  uint64_t DrawNumber();

  PeerIdentity identity_;
  uint64_t packet_number_ = 0;
  std::function<uint64_t()> draw_{};
};

// The core's message in an opened and admitted datagram, whose body moves out; nothing if it is none of the
// core's (HELLO, HELLO_ACK, FORWARD, FORWARD_ANSWER, RESIGN, PIECE). A datagram for every peer becomes one for
// `self`.
std::optional<raft::Message> TakeMessage(raft::NodeId self, Opened& opened);

}  // namespace hedgerow::wire
