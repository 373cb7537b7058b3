// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "bpf/tests/node/node_model.h"

#include <arpa/inet.h>
#include <linux/bpf.h>

#include <cstring>
#include <span>

#include "bpf/tests/checksum.h"
#include "bpf/tests/node/node_messages.h"

namespace hedgerow::packets {
namespace {

constexpr uint8_t kUdp = 17;

uint32_t Get16(const Bytes &bytes, size_t at) { return static_cast<uint32_t>(bytes[at] << 8 | bytes[at + 1]); }
void Put16(Bytes &bytes, size_t at, uint32_t value) {
  bytes[at] = static_cast<uint8_t>(value >> 8);
  bytes[at + 1] = static_cast<uint8_t>(value);
}

struct Udp {
  bool ipv6 = false;
  size_t l4 = 0;
  hr_address source{};
  uint16_t source_port = 0;
  Bytes payload{};
};

// The datagram to the node's peer port; nothing: the frame is none of the program's business.
std::optional<Udp> ToPeerPort(const Bytes &frame, const hr_node_config &config) {
  Udp udp;
  if (frame.size() < 14) return std::nullopt;
  const uint32_t type = Get16(frame, 12);
  if (type != 0x0800 && type != 0x86dd) return std::nullopt;
  udp.ipv6 = type == 0x86dd;
  udp.l4 = udp.ipv6 ? 54 : 34;
  if (frame.size() < udp.l4 + 8) return std::nullopt;
  hr_address destination{};
  size_t l4_bytes = 0;
  if (udp.ipv6) {
    if (frame[14] >> 4 != 6 || frame[20] != kUdp) return std::nullopt;
    std::memcpy(udp.source.bytes, &frame[22], 16);
    std::memcpy(destination.bytes, &frame[38], 16);
    l4_bytes = Get16(frame, 18);
  } else {
    if (frame[14] != 0x45 || frame[23] != kUdp || (Get16(frame, 20) & 0x3fff) != 0) return std::nullopt;
    udp.source.words[2] = destination.words[2] = htonl(0xffff);
    std::memcpy(&udp.source.words[3], &frame[26], 4);
    std::memcpy(&destination.words[3], &frame[30], 4);
    if (Get16(frame, 16) < 20) return std::nullopt;
    l4_bytes = Get16(frame, 16) - 20;
  }
  if (std::memcmp(&destination, &config.address, sizeof(destination)) != 0) return std::nullopt;
  if (Get16(frame, udp.l4 + 2) != ntohs(config.port_be)) return std::nullopt;
  if (l4_bytes < 8 || Get16(frame, udp.l4 + 4) != l4_bytes || udp.l4 + l4_bytes > frame.size()) return std::nullopt;
  udp.source_port = static_cast<uint16_t>(Get16(frame, udp.l4));
  udp.payload.assign(frame.begin() + static_cast<long>(udp.l4) + 8,
                     frame.begin() + static_cast<long>(udp.l4 + l4_bytes));
  return udp;
}

Bytes AnswerDatagram(NodeState &state, const hr_node_datagram &asked, const hr_node_spoken &spoken,
                     const union hr_node_reply &reply) {
  hr_peer_header header{};
  header.magic = HR_PEER_MAGIC;
  header.version = HR_PEER_VERSION;
  header.kind = static_cast<uint8_t>(asked.header.kind + 1);
  header.cluster_id = state.config.cluster_id;
  header.from_incarnation = spoken.incarnation;
  header.packet_number = ++state.packet_number;
  header.from = state.config.self;
  header.to = asked.header.from;
  header.term = spoken.term;
  header.config_epoch = spoken.config_epoch;
  header.key_id = NodeKey().id;
  size_t body_bytes = sizeof(hr_peer_vote_reply);
  if (asked.header.kind == HR_PEER_APPEND) body_bytes = sizeof(hr_peer_append_reply);
  if (asked.header.kind == HR_PEER_HEARTBEAT) body_bytes = sizeof(hr_peer_heartbeat_reply);
  header.bytes = static_cast<uint16_t>(sizeof(header) + body_bytes);
  Bytes datagram(header.bytes);
  std::memcpy(datagram.data(), &header, sizeof(header));
  std::memcpy(datagram.data() + sizeof(header), &reply, body_bytes);
  const uint64_t tag = hr_siphash_sealed(&kNodeKey, datagram.data(), datagram.size());
  std::memcpy(datagram.data() + offsetof(hr_peer_header, tag), &tag, sizeof(tag));
  return datagram;
}

// The same way back, with whole checksums.
Bytes AnswerFrame(const Bytes &frame, const Udp &asked, const Bytes &datagram) {
  Bytes answer(asked.l4 + 8 + datagram.size());
  std::memcpy(&answer[0], &frame[6], 6);
  std::memcpy(&answer[6], &frame[0], 6);
  std::memcpy(&answer[12], &frame[12], 2);
  const size_t l4_bytes = 8 + datagram.size();
  if (asked.ipv6) {
    answer[14] = 0x60;
    Put16(answer, 18, static_cast<uint32_t>(l4_bytes));
    answer[20] = kUdp;
    answer[21] = 64;
    std::memcpy(&answer[22], &frame[38], 16);
    std::memcpy(&answer[38], &frame[22], 16);
  } else {
    answer[14] = 0x45;
    Put16(answer, 16, static_cast<uint32_t>(20 + l4_bytes));
    Put16(answer, 20, 0x4000);
    answer[22] = 64;
    answer[23] = kUdp;
    std::memcpy(&answer[26], &frame[30], 4);
    std::memcpy(&answer[30], &frame[26], 4);
    Put16(answer, 24, static_cast<uint16_t>(~FoldedSum(std::span(answer).subspan(14, 20))));
  }
  std::memcpy(&answer[asked.l4], &frame[asked.l4 + 2], 2);
  std::memcpy(&answer[asked.l4 + 2], &frame[asked.l4], 2);
  Put16(answer, asked.l4 + 4, static_cast<uint32_t>(l4_bytes));
  std::memcpy(&answer[asked.l4 + 8], datagram.data(), datagram.size());
  const size_t at = asked.ipv6 ? 22 : 26, bytes = asked.ipv6 ? 16 : 4;
  const uint32_t pseudo = PseudoHeaderSum(std::span(answer).subspan(at, bytes),
                                          std::span(answer).subspan(at + bytes, bytes), l4_bytes, kUdp);
  const auto sum = static_cast<uint16_t>(~FoldedSum(std::span(answer).subspan(asked.l4), pseudo));
  Put16(answer, asked.l4 + 6, sum == 0 ? 0xffff : sum);
  return answer;
}

uint32_t FindMember(const NodeState &state, uint32_t node) {
  for (uint32_t i = 0; i < HR_NODE_MEMBERS; ++i)
    if (state.members[i].node == node) return i;
  return HR_NODE_NO_MEMBER;
}

ModelRecord MakeRecord(const hr_node_datagram &datagram, const Bytes &payload, uint64_t now_ns, bool vote) {
  ModelRecord record;
  record.head.kind = vote ? HR_NODE_RECORD_VOTE : HR_NODE_RECORD_APPEND;
  record.head.from = datagram.header.from;
  record.head.term = datagram.header.term;
  record.head.arrived_ns = now_ns;
  if (vote) return record;
  record.head.prev_index = datagram.body.append.prev_index;
  record.head.last_index = record.head.prev_index + datagram.body.append.count;
  record.head.bytes = static_cast<uint32_t>(payload.size());
  record.datagram = payload;
  return record;
}

// What is wrong before the lock, or HR_NODE_EVENT_COUNT.
uint32_t Fault(NodeState &state, const Udp &udp, const hr_node_datagram &datagram, ModelResult &result) {
  const auto bytes = static_cast<uint32_t>(udp.payload.size());
  if (!hr_node_header_fits(&datagram.header, bytes, state.config.cluster_id, state.config.self))
    return HR_NODE_EVENT_PASSED_MALFORMED;
  if (datagram.header.key_id != NodeKey().id) return HR_NODE_EVENT_DROPPED_KEY;
  if (datagram.header.tag != hr_siphash_sealed(&kNodeKey, udp.payload.data(), udp.payload.size()))
    return HR_NODE_EVENT_DROPPED_TAG;
  const uint32_t slot = FindMember(state, datagram.header.from);
  if (slot == HR_NODE_NO_MEMBER) return HR_NODE_EVENT_PASSED_MALFORMED;
  const hr_node_peer &member = state.members[slot];
  if (std::memcmp(&member.address, &udp.source, sizeof(udp.source)) != 0 || ntohs(member.port_be) != udp.source_port)
    return HR_NODE_EVENT_PASSED_SOURCE;
  result.taken_from = slot;
  switch (hr_node_window_take(&state.windows[slot], datagram.header.from_incarnation, datagram.header.packet_number)) {
    case HR_NODE_WINDOW_SEEN: return HR_NODE_EVENT_DROPPED_REPLAYED;
    case HR_NODE_WINDOW_TOO_OLD: return HR_NODE_EVENT_DROPPED_TOO_OLD;
    case HR_NODE_WINDOW_OTHER_INCARNATION: return HR_NODE_EVENT_PASSED_INCARNATION;
    case HR_NODE_WINDOW_NEW: break;
  }
  return hr_node_body_fault(&datagram, bytes);
}

int ActionOf(uint32_t event) {
  const bool dropped = event == HR_NODE_EVENT_DROPPED_TAG || event == HR_NODE_EVENT_DROPPED_REPLAYED ||
                       event == HR_NODE_EVENT_DROPPED_TOO_OLD || event == HR_NODE_EVENT_DROPPED_KEY;
  return dropped ? XDP_DROP : XDP_PASS;
}

}  // namespace

ModelResult RunModel(NodeState &state, const Bytes &frame, uint64_t now_ns) {
  ModelResult result{.action = XDP_PASS, .frame = frame};
  const std::optional<Udp> udp = ToPeerPort(frame, state.config);
  if (!udp.has_value()) return result;
  alignas(8) std::array<uint8_t, HR_NODE_DATAGRAM_MAX_BYTES + 8> memory{};
  const auto bytes = static_cast<uint32_t>(udp->payload.size());
  if (bytes < HR_PEER_HEADER_BYTES) return result.event = HR_NODE_EVENT_PASSED_MALFORMED, result;
  if (bytes > HR_NODE_DATAGRAM_MAX_BYTES) return result.event = HR_NODE_EVENT_PASSED_SIZE, result;
  std::memcpy(memory.data(), udp->payload.data(), bytes);
  hr_node_datagram datagram{};
  std::memcpy(&datagram, memory.data(), sizeof(datagram));
  const uint32_t fault = Fault(state, *udp, datagram, result);
  if (fault != HR_NODE_EVENT_COUNT) return result.event = fault, result.action = ActionOf(fault), result;
  const uint32_t kind = datagram.header.kind;
  if (kind == HR_PEER_APPEND) {
    if ((state.shared.capabilities & HR_NODE_CAN_APPEND) == 0)
      return result.event = HR_NODE_EVENT_PASSED_FENCED, result;
    const uint32_t entries = hr_node_entries_fault(memory.data(), bytes);
    if (entries != HR_NODE_EVENT_COUNT) return result.event = entries, result;
  }
  hr_node_taken taken{};
  taken.term = datagram.header.term;
  taken.now_ns = now_ns;
  taken.sent_index = state.sent_index;
  taken.sent_round = state.sent_round;
  taken.from = datagram.header.from;
  taken.slot = *result.taken_from;
  union hr_node_reply reply;
  std::memset(&reply, 0, sizeof(reply));
  hr_node_spoken spoken{};
  const hr_node_verdict verdict =
      hr_node_decide(&state.shared, kind, &taken, datagram.header.config_epoch, &datagram.body, 1, &reply, &spoken);
  result.event = taken.event;
  if (hr_node_keeps_record(verdict, &taken))
    result.record = MakeRecord(datagram, udp->payload, now_ns, kind == HR_PEER_VOTE_REQUEST);
  if (verdict == HR_NODE_CONSUMED) result.action = XDP_DROP;
  if (verdict != HR_NODE_ANSWER) return result;
  result.action = XDP_TX;
  result.frame = AnswerFrame(frame, *udp, AnswerDatagram(state, datagram, spoken, reply));
  return result;
}

}  // namespace hedgerow::packets
