// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "bpf/tests/checksum.h"

#include <netinet/in.h>

#include <cstdio>

namespace hedgerow::packets {
namespace {

constexpr size_t kEthernetBytes = 14;

uint16_t Word(std::span<const uint8_t> bytes, size_t offset) {
  return static_cast<uint16_t>(bytes[offset] << 8 | bytes[offset + 1]);
}

std::string Wrong(const char *what, uint16_t is, uint16_t should_be) {
  char text[96];
  snprintf(text, sizeof(text), "%s checksum is %04x, should be %04x", what, is, should_be);
  return text;
}

// Zero and all ones are the same number in one's complement: a receiver takes either.
bool Same(uint16_t a, uint16_t b) { return a == b || (a == 0 && b == 0xffff) || (a == 0xffff && b == 0); }

// Sums `bytes` as if the word at `offset` were zero; the complement is what should stand there.
uint16_t Expected(std::span<const uint8_t> bytes, size_t offset, uint32_t initial) {
  const uint16_t present = Word(bytes, offset);
  uint32_t sum = FoldedSum(bytes, initial);
  sum += static_cast<uint16_t>(~present);  // one's complement subtraction
  sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

std::string L4Fault(std::span<const uint8_t> source, std::span<const uint8_t> destination, uint8_t protocol,
                    std::span<const uint8_t> l4) {
  const bool ipv6 = source.size() == 16;
  size_t offset = 0;
  const char *name = "";
  uint32_t pseudo = PseudoHeaderSum(source, destination, l4.size(), protocol);
  switch (protocol) {
    case IPPROTO_UDP: {
      if (l4.size() < 8) return "UDP header is cut short";
      const uint16_t udp_bytes = Word(l4, 4);
      if (udp_bytes < 8 || udp_bytes > l4.size()) return "UDP length is wrong";
      l4 = l4.first(udp_bytes);
      pseudo = PseudoHeaderSum(source, destination, udp_bytes, protocol);
      if (Word(l4, 6) == 0) return ipv6 ? "UDP checksum is 0, which IPv6 forbids" : "";
      offset = 6;
      name = "UDP";
      break;
    }
    case IPPROTO_TCP:
      if (l4.size() < 20) return "TCP header is cut short";
      offset = 16;
      name = "TCP";
      break;
    case IPPROTO_ICMP:
      if (l4.size() < 8) return "ICMP header is cut short";
      pseudo = 0;
      offset = 2;
      name = "ICMP";
      break;
    case IPPROTO_ICMPV6:
      if (l4.size() < 8) return "ICMPv6 header is cut short";
      offset = 2;
      name = "ICMPv6";
      break;
    default: return "";
  }
  const uint16_t should_be = Expected(l4, offset, pseudo);
  const uint16_t is = Word(l4, offset);
  return Same(is, should_be) ? "" : Wrong(name, is, should_be);
}

std::string Ipv4Fault(std::span<const uint8_t> packet) {
  if (std::string fault = QuotedHeaderFault(packet); !fault.empty()) return fault;
  const size_t header_bytes = static_cast<size_t>(packet[0] & 0xf) * 4;
  const size_t total_bytes = Word(packet, 2);
  if (total_bytes < header_bytes || total_bytes > packet.size()) return "IPv4 total length is wrong";
  if (Word(packet, 6) & 0x3fff) return "";  // a fragment
  return L4Fault(packet.subspan(12, 4), packet.subspan(16, 4), packet[9],
                 packet.subspan(header_bytes, total_bytes - header_bytes));
}

std::string Ipv6Fault(std::span<const uint8_t> packet) {
  if (packet.size() < 40 || packet[0] >> 4 != 6) return "IPv6 header is wrong";
  const size_t payload_bytes = Word(packet, 4);
  if (payload_bytes + 40 > packet.size()) return "IPv6 payload length is wrong";
  if (packet[6] == IPPROTO_FRAGMENT) return "";
  return L4Fault(packet.subspan(8, 16), packet.subspan(24, 16), packet[6], packet.subspan(40, payload_bytes));
}

}  // namespace

uint16_t FoldedSum(std::span<const uint8_t> bytes, uint32_t initial) {
  uint64_t sum = initial;
  for (size_t i = 0; i < bytes.size(); ++i) sum += i % 2 == 0 ? bytes[i] << 8 : bytes[i];
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(sum);
}

uint32_t PseudoHeaderSum(std::span<const uint8_t> source, std::span<const uint8_t> destination, size_t l4_bytes,
                         uint8_t protocol) {
  return uint32_t{FoldedSum(source)} + FoldedSum(destination) + static_cast<uint32_t>(l4_bytes >> 16) +
         static_cast<uint32_t>(l4_bytes & 0xffff) + protocol;
}

std::string ChecksumFault(std::span<const uint8_t> frame) {
  if (frame.size() < kEthernetBytes) return "frame is cut short";
  const uint16_t ethertype = Word(frame, 12);
  if (ethertype == 0x0800) return Ipv4Fault(frame.subspan(kEthernetBytes));
  if (ethertype == 0x86dd) return Ipv6Fault(frame.subspan(kEthernetBytes));
  return "not an IP packet";
}

std::string QuotedHeaderFault(std::span<const uint8_t> quotation) {
  if (quotation.size() < 20 || quotation[0] >> 4 != 4) return "IPv4 header is wrong";
  const size_t header_bytes = static_cast<size_t>(quotation[0] & 0xf) * 4;
  if (header_bytes < 20 || header_bytes > quotation.size()) return "IPv4 header length is wrong";
  const uint16_t should_be = Expected(quotation.first(header_bytes), 10, 0);
  const uint16_t is = Word(quotation, 10);
  return Same(is, should_be) ? "" : Wrong("IPv4", is, should_be);
}

}  // namespace hedgerow::packets
