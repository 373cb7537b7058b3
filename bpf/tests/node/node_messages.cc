// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "bpf/tests/node/node_messages.h"

#include <arpa/inet.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace hedgerow::packets {
namespace {

constexpr uint64_t kSecond_ns = 1'000'000'000;

template <typename T>
void Put(Bytes &bytes, const T &value) {
  const auto *begin = reinterpret_cast<const uint8_t *>(&value);
  bytes.insert(bytes.end(), begin, begin + sizeof(value));
}

hr_address MappedAddress(uint32_t node, bool ipv6) {
  hr_address address{};
  if (ipv6) {
    inet_pton(AF_INET6, AddressOf(node, true).c_str(), address.bytes);
  } else {
    address.words[2] = htonl(0xffff);
    inet_pton(AF_INET, AddressOf(node, false).c_str(), &address.words[3]);
  }
  return address;
}

}  // namespace

std::string AddressOf(uint32_t node, bool ipv6) {
  return ipv6 ? absl::StrCat("fd78::", node) : absl::StrCat("10.78.0.", node);
}

hr_node_peer MemberOf(uint32_t node, bool ipv6) {
  hr_node_peer peer{};
  peer.address = MappedAddress(node, ipv6);
  peer.node = node;
  peer.port_be = htons(kPeerPort);
  return peer;
}

hr_node_key NodeKey(const hr_siphash_key &key) { return {.key = key, .id = hr_key_id(&key), .reserved = 0}; }

hr_node_config NodeConfig(bool ipv6) {
  hr_node_config config{};
  config.cluster_id = kNodeCluster;
  config.address = MappedAddress(kSelf, ipv6);
  config.self = kSelf;
  config.port_be = htons(kPeerPort);
  return config;
}

hr_peer_header PeerHead(uint8_t kind, uint32_t from, uint64_t number, uint64_t term) {
  hr_peer_header header{};
  header.magic = HR_PEER_MAGIC;
  header.version = HR_PEER_VERSION;
  header.kind = kind;
  header.cluster_id = kNodeCluster;
  header.from_incarnation = IncarnationOf(from);
  header.packet_number = number;
  header.from = from;
  header.to = kSelf;
  header.term = term;
  header.config_epoch = kEpoch;
  header.key_id = NodeKey().id;
  return header;
}

Bytes SealPeer(hr_peer_header header, const Bytes &body, const hr_siphash_key &key) {
  Bytes datagram;
  header.bytes = static_cast<uint16_t>(sizeof(header) + body.size());
  Put(datagram, header);
  datagram.insert(datagram.end(), body.begin(), body.end());
  Reseal(datagram, key);
  return datagram;
}

void Reseal(Bytes &datagram, const hr_siphash_key &key) {
  const uint64_t tag = hr_siphash_sealed(&key, datagram.data(), datagram.size());
  std::memcpy(datagram.data() + offsetof(hr_peer_header, tag), &tag, sizeof(tag));
}

Bytes AppendBody(uint64_t prev_index, uint64_t prev_term, uint64_t term, const std::vector<size_t> &payloads_bytes,
                 uint64_t commit) {
  Bytes body;
  hr_peer_append append{};
  append.prev_index = prev_index;
  append.prev_term = prev_term;
  append.commit = commit;
  append.batch_term = payloads_bytes.empty() ? 0 : term;
  append.count = static_cast<uint32_t>(payloads_bytes.size());
  Put(body, append);
  for (const size_t payload_bytes : payloads_bytes) {
    Put(body, term);
    Put(body, ++prev_index);
    Put(body, uint8_t{1});
    Put(body, static_cast<uint32_t>(payload_bytes));
    const Bytes payload = Pattern(payload_bytes, static_cast<uint32_t>(prev_index));
    body.insert(body.end(), payload.begin(), payload.end());
  }
  return body;
}

Bytes PeerFrame(uint32_t from, const Bytes &datagram, bool ipv6) {
  Bytes frame =
      PacketBuilder(AddressOf(from, ipv6), AddressOf(kSelf, ipv6)).Udp(kPeerPort, kPeerPort, datagram).Build();
  const uint8_t macs[12] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, static_cast<uint8_t>(from)};
  std::memcpy(frame.data(), macs, sizeof(macs));
  return frame;
}

hr_node_shared FollowerShared(uint64_t now_ns) {
  hr_node_shared shared{};
  shared.incarnation = kOwnIncarnation;
  shared.raft = {.term = kTerm, .voted_for = 0, .leader = kLeader, .last_index = kLastIndex, .last_term = kTerm};
  shared.matched = kLastIndex;
  shared.election_timeout_ns = kSecond_ns / 20;
  shared.lease_until_ns = now_ns + 1000 * kSecond_ns;
  shared.loop_seq = 42;
  shared.config_epoch = kEpoch;
  shared.voters = (1u << kNodes) - 1;
  for (uint32_t id = 1; id <= kNodes; ++id) shared.members[SlotOf(id)].node = id;
  shared.self = SlotOf(kSelf);
  shared.role = HR_NODE_FOLLOWER;
  shared.capabilities =
      HR_NODE_CAN_HEARTBEAT | HR_NODE_CAN_VOTE | HR_NODE_CAN_GRANT | HR_NODE_CAN_APPEND | HR_NODE_CAN_COUNT;
  return shared;
}

}  // namespace hedgerow::packets
