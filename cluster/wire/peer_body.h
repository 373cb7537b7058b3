// SPDX-License-Identifier: Apache-2.0
//
// The bodies of the peer datagrams, kind by kind: how long, how written, how read (docs/WIRE_FORMAT.md).
// For PeerCodec, which adds and checks the header and the tag, and for the kernel part that is none
// (cluster/offload/testing/native_kernel.h).

#pragma once

#include <cstddef>
#include <type_traits>

#include "cluster/raft/bytes.h"
#include "cluster/wire/peer.h"

namespace hedgerow::wire {

// Of a body that cannot be written: one of its counts does not fit its field.
constexpr size_t kNoSize = kPeerMax_bytes + 1;

// What a PIECE takes besides its header and its part of the message.
constexpr size_t kPieceFixed_bytes = 16;

// Those without parts of their own length.
template <typename Body>
constexpr size_t kFixed_bytes = 0;
template <>
inline constexpr size_t kFixed_bytes<raft::VoteRequest> = sizeof(hr_peer_vote_request);
template <>
inline constexpr size_t kFixed_bytes<raft::VoteReply> = sizeof(hr_peer_vote_reply);
template <>
inline constexpr size_t kFixed_bytes<raft::AppendReply> = sizeof(hr_peer_append_reply);
template <>
inline constexpr size_t kFixed_bytes<raft::Heartbeat> = sizeof(hr_peer_heartbeat);
template <>
inline constexpr size_t kFixed_bytes<raft::HeartbeatReply> = sizeof(hr_peer_heartbeat_reply);
template <>
inline constexpr size_t kFixed_bytes<raft::ReadIndexRequest> = 16;
template <>
inline constexpr size_t kFixed_bytes<raft::ReadIndexReply> = 24;
template <>
inline constexpr size_t kFixed_bytes<raft::LastEntry> = 32;

template <>
inline constexpr size_t kFixed_bytes<Resign> = sizeof(hr_peer_resign);

template <typename Body>
size_t BodySize_bytes(const Body&) {
  static_assert(kFixed_bytes<Body> != 0 || std::is_same_v<Body, raft::TimeoutNow>);
  return kFixed_bytes<Body>;
}
size_t BodySize_bytes(const Hello& body);
size_t BodySize_bytes(const HelloAck& body);
size_t BodySize_bytes(const raft::AppendRequest& body);
size_t BodySize_bytes(const Forward& body);
size_t BodySize_bytes(const ForwardAnswer& body);
size_t BodySize_bytes(const Piece& body);

void PutBody(ByteWriter& writer, const Hello& body);
void PutBody(ByteWriter& writer, const HelloAck& body);
void PutBody(ByteWriter& writer, const raft::VoteRequest& body);
void PutBody(ByteWriter& writer, const raft::VoteReply& body);
void PutBody(ByteWriter& writer, const raft::AppendRequest& body);
void PutBody(ByteWriter& writer, const raft::AppendReply& body);
void PutBody(ByteWriter& writer, const raft::Heartbeat& body);
void PutBody(ByteWriter& writer, const raft::HeartbeatReply& body);
void PutBody(ByteWriter& writer, const raft::ReadIndexRequest& body);
void PutBody(ByteWriter& writer, const raft::ReadIndexReply& body);
void PutBody(ByteWriter& writer, const raft::TimeoutNow& body);
void PutBody(ByteWriter& writer, const raft::LastEntry& body);
void PutBody(ByteWriter& writer, const Forward& body);
void PutBody(ByteWriter& writer, const ForwardAnswer& body);
void PutBody(ByteWriter& writer, const Resign& body);
void PutBody(ByteWriter& writer, const Piece& body);

// The body of a known kind. The reader is done() afterwards exactly if the bytes were one.
PeerBody GetBody(ByteReader& reader, hr_peer_kind kind);

// The number of a body's kind: its place in PeerBody, from 1.
template <typename Body, size_t place = 0>
constexpr hr_peer_kind KindOf() {
  if constexpr (std::is_same_v<Body, std::variant_alternative_t<place, PeerBody>>) {
    return static_cast<hr_peer_kind>(place + 1);
  } else {
    return KindOf<Body, place + 1>();
  }
}
static_assert(std::variant_size_v<PeerBody> + 1 == HR_PEER_KINDS);
static_assert(KindOf<Hello>() == HR_PEER_HELLO);
static_assert(KindOf<HelloAck>() == HR_PEER_HELLO_ACK);
static_assert(KindOf<raft::VoteRequest>() == HR_PEER_VOTE_REQUEST);
static_assert(KindOf<raft::VoteReply>() == HR_PEER_VOTE_REPLY);
static_assert(KindOf<raft::AppendRequest>() == HR_PEER_APPEND);
static_assert(KindOf<raft::AppendReply>() == HR_PEER_APPEND_REPLY);
static_assert(KindOf<raft::Heartbeat>() == HR_PEER_HEARTBEAT);
static_assert(KindOf<raft::HeartbeatReply>() == HR_PEER_HEARTBEAT_REPLY);
static_assert(KindOf<raft::ReadIndexRequest>() == HR_PEER_READ_INDEX);
static_assert(KindOf<raft::ReadIndexReply>() == HR_PEER_READ_INDEX_REPLY);
static_assert(KindOf<raft::TimeoutNow>() == HR_PEER_TIMEOUT_NOW);
static_assert(KindOf<Forward>() == HR_PEER_FORWARD);
static_assert(KindOf<ForwardAnswer>() == HR_PEER_FORWARD_ANSWER);
static_assert(KindOf<Resign>() == HR_PEER_RESIGN);
static_assert(KindOf<Piece>() == HR_PEER_PIECE);
static_assert(KindOf<raft::LastEntry>() == HR_PEER_LAST_ENTRY);

}  // namespace hedgerow::wire
