// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "bpf/tests/packet.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "bpf/tests/checksum.h"

namespace hedgerow::packets {
namespace {

constexpr uint8_t kClientMac[6] = {0x02, 0, 0, 0, 0, 0x01};
constexpr uint8_t kPeerMac[6] = {0x02, 0, 0, 0, 0, 0x02};

void Put8(Bytes &bytes, uint8_t value) { bytes.push_back(value); }
void Put16(Bytes &bytes, uint16_t value) {
  bytes.push_back(static_cast<uint8_t>(value >> 8));
  bytes.push_back(static_cast<uint8_t>(value));
}
void Put32(Bytes &bytes, uint32_t value) {
  Put16(bytes, static_cast<uint16_t>(value >> 16));
  Put16(bytes, static_cast<uint16_t>(value));
}
void PutAll(Bytes &bytes, std::span<const uint8_t> more) { bytes.insert(bytes.end(), more.begin(), more.end()); }
void Set16(Bytes &bytes, size_t offset, uint16_t value) {
  bytes[offset] = static_cast<uint8_t>(value >> 8);
  bytes[offset + 1] = static_cast<uint8_t>(value);
}
uint16_t Get16(const Bytes &bytes, size_t offset) {
  return static_cast<uint16_t>(bytes.at(offset) << 8 | bytes.at(offset + 1));
}

// A test that misspells an address is a broken test.
Bytes ParseWire(std::string_view text) {
  const std::string copy(text);
  Bytes wire(16);
  if (inet_pton(AF_INET6, copy.c_str(), wire.data()) == 1) return wire;
  wire.resize(4);
  if (inet_pton(AF_INET, copy.c_str(), wire.data()) == 1) return wire;
  fprintf(stderr, "packet test: \"%s\" is no address\n", copy.c_str());
  abort();
}

std::string FormatWire(std::span<const uint8_t> wire) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(wire.size() == 4 ? AF_INET : AF_INET6, wire.data(), text, sizeof(text));
  return text;
}

size_t ChecksumOffset(uint8_t protocol) {
  switch (protocol) {
    case IPPROTO_UDP: return 6;
    case IPPROTO_TCP: return 16;
    default: return 2;
  }
}

}  // namespace

PacketBuilder::PacketBuilder(std::string_view source, std::string_view destination)
    : source_(ParseWire(source)), destination_(ParseWire(destination)) {
  if (source_.size() != destination_.size()) abort();
}

PacketBuilder &PacketBuilder::Udp(uint16_t source_port, uint16_t destination_port, Bytes payload) {
  protocol_ = IPPROTO_UDP;
  l4_.clear();
  Put16(l4_, source_port);
  Put16(l4_, destination_port);
  Put16(l4_, static_cast<uint16_t>(8 + payload.size()));
  Put16(l4_, 0);
  PutAll(l4_, payload);
  return *this;
}

PacketBuilder &PacketBuilder::Tcp(uint16_t source_port, uint16_t destination_port, uint8_t flags, Bytes payload,
                                  uint32_t number) {
  protocol_ = IPPROTO_TCP;
  l4_.clear();
  Put16(l4_, source_port);
  Put16(l4_, destination_port);
  Put32(l4_, number);
  Put32(l4_, (flags & kTcpAck) ? number + 1 : 0);
  Put8(l4_, 5 << 4);
  Put8(l4_, flags);
  Put16(l4_, 64000);
  Put32(l4_, 0);  // checksum, urgent pointer
  PutAll(l4_, payload);
  return *this;
}

uint8_t PacketBuilder::IcmpProtocol() const {
  return static_cast<uint8_t>(ipv6() ? int{IPPROTO_ICMPV6} : int{IPPROTO_ICMP});
}

PacketBuilder &PacketBuilder::Echo(bool reply, uint16_t id, Bytes payload) {
  protocol_ = IcmpProtocol();
  l4_.clear();
  if (ipv6())
    Put8(l4_, reply ? 129 : 128);
  else
    Put8(l4_, reply ? 0 : 8);
  Put8(l4_, 0);
  Put16(l4_, 0);
  Put16(l4_, id);
  Put16(l4_, 1);
  PutAll(l4_, payload);
  return *this;
}

PacketBuilder &PacketBuilder::IcmpError(uint8_t type, uint8_t code, Bytes quoted, uint32_t rest) {
  protocol_ = IcmpProtocol();
  l4_.clear();
  Put8(l4_, type);
  Put8(l4_, code);
  Put16(l4_, 0);
  Put32(l4_, rest);
  PutAll(l4_, quoted);
  return *this;
}

PacketBuilder &PacketBuilder::Ttl(uint8_t ttl) {
  ttl_ = ttl;
  return *this;
}
PacketBuilder &PacketBuilder::Id(uint16_t id) {
  id_ = id;
  return *this;
}
PacketBuilder &PacketBuilder::Ipv4Options(Bytes options) {
  while (options.size() % 4) options.push_back(0);
  options_ = std::move(options);
  return *this;
}
PacketBuilder &PacketBuilder::With(Checksum checksum) {
  checksum_ = checksum;
  return *this;
}
PacketBuilder &PacketBuilder::UdpLength(uint16_t bytes) {
  Set16(l4_, 4, bytes);
  return *this;
}
PacketBuilder &PacketBuilder::TrailingBytes(Bytes bytes) {
  trailing_ = std::move(bytes);
  return *this;
}
PacketBuilder &PacketBuilder::AtomicFragment(uint32_t id) {
  atomic_ = true;
  atomic_id_ = id;
  return *this;
}

Bytes PacketBuilder::L4() const {
  Bytes l4 = l4_;
  const size_t offset = ChecksumOffset(protocol_);
  const uint32_t pseudo = protocol_ == IPPROTO_ICMP ? 0 : PseudoHeaderSum(source_, destination_, l4.size(), protocol_);
  if (checksum_ == Checksum::kPartial) {
    Set16(l4, offset, FoldedSum({}, pseudo));
  } else if (checksum_ == Checksum::kRight) {
    const auto check = static_cast<uint16_t>(~FoldedSum(l4, pseudo));
    Set16(l4, offset, check == 0 && protocol_ == IPPROTO_UDP ? 0xffff : check);
  }
  PutAll(l4, trailing_);
  return l4;
}

Bytes PacketBuilder::Frame(const Bytes &l4, bool fragment, size_t offset_bytes, bool more, uint32_t id) const {
  Bytes frame;
  PutAll(frame, kPeerMac);
  PutAll(frame, kClientMac);
  Put16(frame, ipv6() ? 0x86dd : 0x0800);
  if (ipv6()) {
    Put32(frame, 0x60000000);
    Put16(frame, static_cast<uint16_t>(l4.size() + (fragment ? 8 : 0)));
    Put8(frame, fragment ? static_cast<uint8_t>(IPPROTO_FRAGMENT) : protocol_);
    Put8(frame, ttl_);
    PutAll(frame, source_);
    PutAll(frame, destination_);
    if (fragment) {
      Put8(frame, protocol_);
      Put8(frame, 0);
      Put16(frame, static_cast<uint16_t>(offset_bytes | (more ? 1 : 0)));
      Put32(frame, id);
    }
  } else {
    const size_t header_bytes = 20 + options_.size();
    Bytes header;
    Put8(header, static_cast<uint8_t>(0x40 | header_bytes / 4));
    Put8(header, 0);
    Put16(header, static_cast<uint16_t>(header_bytes + l4.size()));
    Put16(header, fragment ? static_cast<uint16_t>(id) : id_);
    Put16(header, fragment ? static_cast<uint16_t>(offset_bytes / 8 | (more ? 0x2000 : 0)) : 0x4000);
    Put8(header, ttl_);
    Put8(header, protocol_);
    Put16(header, 0);
    PutAll(header, source_);
    PutAll(header, destination_);
    PutAll(header, options_);
    Set16(header, 10, static_cast<uint16_t>(~FoldedSum(header)));
    PutAll(frame, header);
  }
  PutAll(frame, l4);
  return frame;
}

Bytes PacketBuilder::Build() const { return Frame(L4(), atomic_, 0, false, atomic_id_); }

std::vector<Bytes> PacketBuilder::BuildFragments(size_t l4_bytes, uint32_t id) const {
  const Bytes l4 = L4();
  std::vector<Bytes> fragments;
  for (size_t at = 0; at < l4.size(); at += l4_bytes) {
    const size_t end = std::min(at + l4_bytes, l4.size());
    fragments.push_back(Frame(Bytes(l4.begin() + static_cast<ptrdiff_t>(at), l4.begin() + static_cast<ptrdiff_t>(end)),
                              true, at, end < l4.size(), id));
  }
  return fragments;
}

PacketView Read(const Bytes &frame) {
  PacketView view;
  const std::span<const uint8_t> all(frame);
  if (frame.size() < kEthernetBytes + 20) return view;
  std::copy_n(frame.begin(), 6, view.destination_mac.begin());
  const auto packet = all.subspan(kEthernetBytes);
  size_t l4 = 0;
  size_t end = 0;
  if (packet[0] >> 4 == 4) {
    view.protocol = packet[9];
    view.ttl = packet[8];
    view.source = FormatWire(packet.subspan(12, 4));
    view.destination = FormatWire(packet.subspan(16, 4));
    l4 = static_cast<size_t>(packet[0] & 0xf) * 4;
    end = Get16(frame, kEthernetBytes + 2);
  } else if (packet.size() >= 40) {
    view.protocol = packet[6];
    view.ttl = packet[7];
    view.source = FormatWire(packet.subspan(8, 16));
    view.destination = FormatWire(packet.subspan(24, 16));
    l4 = 40;
    end = size_t{40} + Get16(frame, kEthernetBytes + 4);
  }
  end = std::min(end, packet.size());
  if (l4 == 0 || end < l4 + 8) return view;
  const size_t at = kEthernetBytes + l4;
  if (view.protocol == IPPROTO_UDP || view.protocol == IPPROTO_TCP) {
    view.source_port = Get16(frame, at);
    view.destination_port = Get16(frame, at + 2);
  } else {
    view.icmp_type = frame[at];
    view.icmp_code = frame[at + 1];
  }
  if (view.protocol == IPPROTO_UDP) view.udp_checksum = Get16(frame, at + 6);
  const auto rest = packet.subspan(l4 + 8, end - l4 - 8);
  view.payload.assign(rest.begin(), rest.end());
  return view;
}

Bytes Layer3(const Bytes &frame) {
  return frame.size() < kEthernetBytes ? Bytes() : Bytes(frame.begin() + kEthernetBytes, frame.end());
}

Bytes CutTo(const Bytes &frame, size_t bytes) {
  return Bytes(frame.begin(), frame.begin() + static_cast<ptrdiff_t>(std::min(bytes, frame.size())));
}

Bytes Text(std::string_view text) { return Bytes(text.begin(), text.end()); }

Bytes Pattern(size_t count, uint32_t seed) {
  Bytes bytes(count);
  uint32_t state = seed * 2654435761u + 1;
  for (uint8_t &byte : bytes) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<uint8_t>(state >> 24);
  }
  return bytes;
}

Bytes DnsQuery(uint16_t id, std::string_view name, uint16_t flags) {
  Bytes message;
  Put16(message, id);
  Put16(message, flags);
  Put16(message, 1);  // QDCOUNT
  Put16(message, 0);
  Put32(message, 0);
  while (!name.empty()) {
    const size_t dot = std::min(name.find('.'), name.size());
    Put8(message, static_cast<uint8_t>(dot));
    PutAll(message, Text(name.substr(0, dot)));
    name.remove_prefix(std::min(dot + 1, name.size()));
  }
  Put8(message, 0);
  Put16(message, 1);  // A
  Put16(message, 1);  // IN
  return message;
}

Bytes DnsAnswer(const Bytes &query, uint8_t rcode, uint8_t last_octet) {
  Bytes message = query;
  Set16(message, 2, static_cast<uint16_t>(0x8180 | rcode));
  if (rcode != 0) return message;
  Set16(message, 6, 1);    // ANCOUNT
  Put16(message, 0xc00c);  // the question's name
  Put16(message, 1);
  Put16(message, 1);
  Put32(message, 60);
  Put16(message, 4);
  const uint8_t address[4] = {192, 0, 2, last_octet};
  PutAll(message, address);
  return message;
}

}  // namespace hedgerow::packets
