// SPDX-License-Identifier: Apache-2.0
//
// An entry that the kernel could not resolve is listed until a host answers for the address, and the kernel probes it
// again when it is asked to.
#include "net/netlink/neighbour.h"

#include "net/namespace_test.h"
#include "net/netlink/link.h"

namespace hedgerow::net {
namespace {

class NeighbourTest : public NamespaceTest {};

TEST_F(NeighbourTest, AFailedEntryIsListedUntilAHostAnswers) {
  InNamespace([&] {
    for (const char* command :
         {"ip link add eth0 type veth peer name eth0p", "ip link set eth0 up", "ip link set eth0p up",
          "ip addr add 10.77.0.1/24 dev eth0", "ip addr add fd77::1/64 dev eth0 nodad",
          "ip neigh add 10.77.0.9 dev eth0 lladdr 02:00:00:00:00:09", "ip neigh add 10.77.0.11 dev eth0 nud failed",
          "ip neigh add fd77::b dev eth0 nud failed"}) {
      ASSERT_EQ(Shell(command), 0) << command;
    }
    const int eth0 = FindLink("eth0")->ifindex;
    const Neighbour four(eth0, IpAddress::Parse("10.77.0.11").value()), six(eth0, IpAddress::Parse("fd77::b").value());
    auto listed = ListUnresolvedNeighbours();
    ASSERT_THAT(listed.status(), IsOk());
    EXPECT_THAT(listed->failed, ::testing::ElementsAre(four, six));
    for (const Neighbour& each : {four, six}) ASSERT_THAT(ResolveNeighbour(each), IsOk());
    listed = ListUnresolvedNeighbours();
    ASSERT_THAT(listed.status(), IsOk());
    EXPECT_THAT(listed->failed, ::testing::IsEmpty());
    EXPECT_THAT(listed->asked, ::testing::ElementsAre(four, six)) << "the kernel's probes are under way";
    ASSERT_EQ(Shell("ip neigh replace 10.77.0.11 dev eth0 lladdr 02:00:00:00:00:0b"), 0);
    EXPECT_THAT(ListUnresolvedNeighbours()->asked, ::testing::ElementsAre(six));
  });
}

}  // namespace
}  // namespace hedgerow::net
