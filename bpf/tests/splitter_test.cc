// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// SPLITTER, what it does with what it hedges: the packet that leaves, the flow, the scoreboard entry, the parked bytes
// and the wheel. Why it does not hedge is in splitter_reasons_test.cc; TCP, pings and fragments in splitter_other_test.cc.
#include <netinet/in.h>

#include "bpf/tests/checksum.h"
#include "bpf/tests/kernel_fixture.h"

namespace hedgerow::packets {
namespace {

class SplitterTest : public PacketTest {
 protected:
  static PacketBuilder Query(uint16_t id = 0x1234) {
    return PacketBuilder(kClient4, kDns4).Udp(kClientPort, kDnsPort, DnsQuery(id, "www.example.org"));
  }
  static PacketBuilder Query6(uint16_t id = 0x1234) {
    return PacketBuilder(kClient6, kDns6).Udp(kClientPort, kDnsPort, DnsQuery(id, "www.example.org"));
  }
};

TEST_F(SplitterTest, AnIpv4RequestGoesToTheLeaderAndIsTracked) {
  const RunResult run = Split(Query().Build());
  EXPECT_EQ(run.verdict, kRedirected);
  EXPECT_EQ(Layer3(run.packet),
            Layer3(PacketBuilder(kClient4, kA4).Udp(kClientPort, 53, DnsQuery(0x1234, "www.example.org")).Build()));
  EXPECT_EQ(ChecksumFault(run.packet), "");
  EXPECT_THAT(run.changes, UnorderedElementsAre(std::pair("dns4.requests", 1)));
  EXPECT_EQ(ServiceState(kDns4Service).budget_micros, 1'000'000);
}

}  // namespace
}  // namespace hedgerow::packets
