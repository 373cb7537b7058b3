// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Packets for the packet tests: a builder that writes whole Ethernet frames with right (or deliberately other)
// checksums, a reader that takes them apart again, and the DNS messages the tests speak. Pure bytes, no kernel.
// A test builds the packet it sends, and the packet it expects, with the same builder and compares bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hedgerow::packets {

using Bytes = std::vector<uint8_t>;

inline constexpr size_t kEthernetBytes = 14;
inline constexpr uint8_t kTcpSyn = 0x02;
inline constexpr uint8_t kTcpAck = 0x10;
inline constexpr uint8_t kTcpSynAck = 0x12;

enum class Checksum {
  kRight,
  kPartial,  // what the stack leaves for the device: the folded pseudo header, not complemented
  kNone,     // UDP over IPv4: 0
};

// One packet between two addresses of one family ("10.0.0.1" or "fd00::1"). Methods return the builder, so that
// a packet reads as one expression; Build() may be called any number of times.
class PacketBuilder {
 public:
  PacketBuilder(std::string_view source, std::string_view destination);

  PacketBuilder &Udp(uint16_t source_port, uint16_t destination_port, Bytes payload);
  // `number`: of a SYN; what answers it acknowledges the next one.
  PacketBuilder &Tcp(uint16_t source_port, uint16_t destination_port, uint8_t flags, Bytes payload = {},
                     uint32_t number = 1000);
  // Echo request or reply of the family.
  PacketBuilder &Echo(bool reply, uint16_t id, Bytes payload);
  // An ICMP error of the family; `quoted` is an IP packet without its Ethernet header. `rest`: bytes 4 to 7
  // (the MTU).
  PacketBuilder &IcmpError(uint8_t type, uint8_t code, Bytes quoted, uint32_t rest = 0);

  PacketBuilder &Ttl(uint8_t ttl);
  PacketBuilder &Id(uint16_t id);             // IPv4 identification
  PacketBuilder &Ipv4Options(Bytes options);  // padded to 4 bytes with end-of-list
  PacketBuilder &With(Checksum checksum);
  PacketBuilder &UdpLength(uint16_t bytes);    // a lie about the UDP length
  PacketBuilder &TrailingBytes(Bytes bytes);   // within the IP packet, behind the UDP datagram
  PacketBuilder &AtomicFragment(uint32_t id);  // IPv6: a fragment header on a whole packet (RFC 6946)

  Bytes Build() const;
  // The packet in fragments that carry `l4_bytes` (a multiple of 8) of layer 4 each.
  std::vector<Bytes> BuildFragments(size_t l4_bytes, uint32_t id) const;

 private:
  bool ipv6() const { return source_.size() == 16; }
  uint8_t IcmpProtocol() const;
  Bytes L4() const;
  Bytes Frame(const Bytes &l4, bool fragment, size_t offset_bytes, bool more, uint32_t id) const;

  Bytes source_, destination_;
  uint8_t protocol_ = 0;
  uint8_t ttl_ = 64;
  uint16_t id_ = 0x4d2;
  Bytes options_;
  Bytes l4_;
  Bytes trailing_;
  Checksum checksum_ = Checksum::kRight;
  bool atomic_ = false;
  uint32_t atomic_id_ = 0;
};

// A frame taken apart, as far as it goes.
struct PacketView {
  std::array<uint8_t, 6> destination_mac{};
  std::string source, destination;  // textual
  uint8_t protocol = 0;
  uint8_t ttl = 0;
  uint16_t source_port = 0, destination_port = 0;
  Bytes payload;  // of UDP; ICMP: behind its 8 bytes
  uint8_t icmp_type = 0, icmp_code = 0;
  uint16_t udp_checksum = 0;
};
PacketView Read(const Bytes &frame);

// The frame without its Ethernet header: what tests compare, since MACs are set when a packet leaves.
Bytes Layer3(const Bytes &frame);
// `frame` cut off after `bytes`.
Bytes CutTo(const Bytes &frame, size_t bytes);

Bytes Text(std::string_view text);
// `count` bytes that differ from each other and from one seed to the next.
Bytes Pattern(size_t count, uint32_t seed);

// A DNS query for NAME IN A (RFC 1035); `name` in dotted form.
Bytes DnsQuery(uint16_t id, std::string_view name, uint16_t flags = 0x0100);
// The answer to a query: its id and question repeated, `rcode`, and one A record when rcode is 0.
Bytes DnsAnswer(const Bytes &query, uint8_t rcode = 0, uint8_t last_octet = 1);

}  // namespace hedgerow::packets
