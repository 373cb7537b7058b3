// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Peer datagrams for the tests of a node's kernel programs, and the little cluster they speak of: node 1 is the
// one under test, at slot 0; nodes 2 to 5 are its peers. Pure bytes, no kernel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bpf/node/raft/datagram.h"
#include "bpf/tests/packet.h"

namespace hedgerow::packets {

inline constexpr uint64_t kNodeCluster = 77;
inline constexpr hr_siphash_key kNodeKey = {0x2726252423222120, 0x2f2e2d2c2b2a2928};
inline constexpr hr_siphash_key kNextNodeKey = {0x1111111122222222, 0x3333333344444444};  // of a change
// As the kernel programs hold it.
hr_node_key NodeKey(const hr_siphash_key &key = kNodeKey);
inline constexpr uint32_t kSelf = 1, kLeader = 2, kPeer = 3;
inline constexpr uint32_t kNodes = 5;
inline constexpr uint16_t kPeerPort = 4802;
inline constexpr uint32_t kEpoch = 3;
inline constexpr uint64_t kTerm = 5;
inline constexpr uint64_t kLastIndex = 10;
inline constexpr uint64_t kSentIndex = 100, kSentRound = 10;  // as leader
inline constexpr uint64_t kOwnIncarnation = 0x1111;

inline uint32_t SlotOf(uint32_t node) { return node - 1; }
inline uint64_t IncarnationOf(uint32_t node) { return 0x1000 * node + 0x111; }
std::string AddressOf(uint32_t node, bool ipv6);
hr_node_peer MemberOf(uint32_t node, bool ipv6);
hr_node_config NodeConfig(bool ipv6);

// Of a datagram from `from` to node 1, in term kTerm; the tag and the length come with SealPeer. `kind` may be none
// that there is (enum hr_peer_kind).
hr_peer_header PeerHead(uint8_t kind, uint32_t from, uint64_t number, uint64_t term = kTerm);
// Header and body with the right length and tag.
Bytes SealPeer(hr_peer_header header, const Bytes &body, const hr_siphash_key &key = kNodeKey);
// The tag made anew over bytes as they are.
void Reseal(Bytes &datagram, const hr_siphash_key &key = kNodeKey);

template <typename Body>
Bytes BodyBytes(const Body &body) {
  const auto *begin = reinterpret_cast<const uint8_t *>(&body);
  return Bytes(begin, begin + sizeof(body));
}
// One entry for each payload, from index `prev + 1` on, all of `term`.
Bytes AppendBody(uint64_t prev_index, uint64_t prev_term, uint64_t term, const std::vector<size_t> &payloads_bytes,
                 uint64_t commit = 0);
// From a peer to node 1's peer port, as a frame with MACs of their own.
Bytes PeerFrame(uint32_t from, const Bytes &datagram, bool ipv6);

// A follower of node 2 in term kTerm with kLastIndex entries, that may everything for a long time.
hr_node_shared FollowerShared(uint64_t now_ns);

}  // namespace hedgerow::packets
