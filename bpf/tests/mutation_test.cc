// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Clients and servers that lie: true packets with bytes exchanged, cut off and put on, at every hook, in any order.
// Each request is accounted for, and once time has passed nothing is held. HR_MUTATIONS says how many (`./dev test
// --long`: 384,000), HR_MUTATION_SEED repeats a run.
#include <cstdlib>
#include <random>

#include "bpf/tests/kernel_fixture.h"
#include "bpf/tests/test_links.h"
#include "net/netlink/link.h"
#include "proxy.skel.h"

namespace hedgerow::packets {
namespace {

unsigned FromEnvironment(const char *name, unsigned otherwise) {
  const char *text = std::getenv(name);
  return text == nullptr ? otherwise : static_cast<unsigned>(std::strtoul(text, nullptr, 10));
}

// BPF_PROG_TEST_RUN takes no frame without a whole IPv6 header.
constexpr size_t kShortest = kEthernetBytes + 40;

class MutationTest : public PacketTest {
 protected:
  unsigned Draw(size_t below) { return static_cast<unsigned>(random_() % below); }
  template <typename T>
  const T &Of(const std::vector<T> &from) {
    return from[Draw(from.size())];
  }
  Bytes Mutated(Bytes packet) {
    packet.resize(std::max(packet.size(), kShortest));
    for (unsigned i = 1 + Draw(4); i > 0; --i) {
      const size_t header = std::min<size_t>(packet.size(), Draw(4) == 0 ? 120 : 62);
      switch (Draw(6)) {
        case 0: packet.resize(std::max<size_t>(kShortest, Draw(packet.size()))); break;
        case 1: packet.resize(packet.size() + 1 + Draw(64), static_cast<uint8_t>(Draw(256))); break;
        case 2: packet[12 + Draw(header - 12)] = Of<uint8_t>({0, 1, 0x7f, 0x80, 0xff}); break;
        default: packet[12 + Draw(header - 12)] ^= static_cast<uint8_t>(1u << Draw(8));
      }
    }
    return packet;
  }
  // What a client, a backend, a router or another host sends.
  Bytes Request(uint16_t id) {
    switch (Draw(4)) {
      case 0: return PacketBuilder(kClient6, kDns6).Udp(kClientPort, kDnsPort, DnsQuery(id, "www.example.org")).Build();
      case 1: return PacketBuilder(kClient4, kRaw4).Udp(kClientPort, kRawPort, Pattern(4 + Draw(80), id)).Build();
      case 2: return HkvRequest4(id);
      default: return DnsRequest4(id);
    }
  }
  Bytes Answer(uint16_t id) {
    const char *from = Of<const char *>({kA4, kB4, kDns4});
    switch (Draw(6)) {
      case 0:
        return PacketBuilder(kA6, kClient6)
            .Udp(kBackendDnsPort6, kClientPort, DnsAnswer(DnsQuery(id, "www.example.org")))
            .Build();
      case 1: return PacketBuilder(from, kClient4).Udp(kRawPort, kClientPort, Pattern(4 + Draw(80), id)).Build();
      case 2: return HkvReply4(id, from, static_cast<uint8_t>(Draw(5)));
      case 3:
        return PacketBuilder(from, kClient4)
            .IcmpError(Of<uint8_t>({3, 5, 11, 12}), static_cast<uint8_t>(Draw(5)), Layer3(DnsRequest4(id)))
            .Build();
      case 4: return PacketBuilder(from, kClient4).Tcp(53, kClientPort, Of<uint8_t>({kTcpAck, kTcpSynAck})).Build();
      default: return DnsReply4(id, from, static_cast<uint8_t>(Draw(6)));
    }
  }

  std::mt19937 random_{FromEnvironment("HR_MUTATION_SEED", 20261129)};
};

TEST_F(MutationTest, WhateverClientsAndServersSendEveryRequestIsAccountedForAndNothingIsHeld) {
  const auto &programs = skeleton()->progs;
  const RunContext out = {.ifindex = TestLinks::Get().proxy.ifindex}, in = {.ifindex = TestLinks::Get().uplink.ifindex};
  const RunContext other = {.ifindex = in.ifindex, .ingress_ifindex = in.ifindex};
  const unsigned count = FromEnvironment("HR_MUTATIONS", 12'000);
  for (unsigned i = 0; i < count; ++i) {
    const auto id = static_cast<uint16_t>(1 + Draw(60));
    const Bytes request = Request(id), answer = Answer(id);
    RunUncounted(programs.hr_splitter, Draw(2) == 0 ? request : Mutated(request), out);
    RunUncounted(programs.hr_reply, Draw(4) == 0 ? answer : Mutated(answer),
                 Draw(8) == 0 ? RunContext{.ifindex = net::kLoopbackIfindex} : in);
    if (Draw(4) == 0) RunUncounted(programs.hr_guard, Mutated(answer), other);
    if (Draw(4) == 0)
      RunUncounted(programs.hr_sink, Mutated(request), {.ifindex = TestLinks::Get().proxy_peer.ifindex});
    if (Draw(200) == 0) {
      Advance(Of<uint64_t>({kMillisecond, kSecond, 20 * kSecond}));
      VisitAll();
    }
    if (i % 1000 == 0) ASSERT_THAT(BrokenInvariants(View()), IsEmpty()) << i;
  }
  for (int i = 0; i < 4; ++i) {
    Advance(100 * kSecond);
    VisitAll();
  }
  EXPECT_EQ(RequestsInUse(), 0u);
  EXPECT_EQ(CopiesInUse(), 0u);
}

}  // namespace
}  // namespace hedgerow::packets
