// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The Internet checksum (RFC 1071) as the packet tests need it: to build packets, and to judge what the kernel
// programs made of them. Written independently of the code under test: whole packets are summed anew, byte by
// byte, and nothing is updated incrementally. Called by packet.cc and by every test that looks at an output
// packet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace hedgerow::packets {

// The folded sum of 16-bit words in network order, an odd last byte padded with zero; not complemented.
uint16_t FoldedSum(std::span<const uint8_t> bytes, uint32_t initial = 0);

// The sum over a pseudo header: addresses as on the wire (4 or 16 bytes each), length of layer 4, protocol.
uint32_t PseudoHeaderSum(std::span<const uint8_t> source, std::span<const uint8_t> destination, size_t l4_bytes,
                         uint8_t protocol);

// "" when every checksum of the frame is complete and right: the IPv4 header's and that of UDP, TCP, ICMP or
// ICMPv6. Otherwise what is wrong, with both values. A UDP checksum of 0 means "none" and is right over IPv4
// only. Fragments are judged by their IPv4 header alone. What cannot be parsed is wrong.
std::string ChecksumFault(std::span<const uint8_t> frame);

// The same for the IPv4 header of a packet quoted by an ICMP error (the rest of a quotation may be cut off).
std::string QuotedHeaderFault(std::span<const uint8_t> quotation);

}  // namespace hedgerow::packets
