// SPDX-License-Identifier: Apache-2.0
//
// The watch as its process sees it: what it shares, what it refuses and why, and that nothing is left of it.
// watch_live_test has what happens when the process dies.
#include "cluster/offload/watch.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <memory>

#include "bpf/node/raft/node_maps_abi.h"
#include "net/bpf_log.h"
#include "net/netlink/link.h"
#include "net/namespace_test.h"
#include "node.skel.h"

namespace hedgerow::offload {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Endpoint At(const char* address, uint16_t port) { return {net::IpAddress::Parse(address).value(), port}; }

WatchSpec Spec() {
  WatchSpec spec;
  spec.instance = "node-1-of-42";
  spec.incarnation = 99;
  spec.self = raft::NodeId(1);
  spec.peer_address = At("10.78.0.1", 5001);
  spec.serve = At("10.78.0.1", 7000);
  spec.peers = {At("10.78.0.2", 5001)};
  return spec;
}

uint32_t MapId(int fd) {
  bpf_map_info info{};
  uint32_t bytes = sizeof(info);
  return bpf_obj_get_info_by_fd(fd, &info, &bytes) == 0 ? info.id : 0;
}

class WatchTest : public net::NamespaceTest {
 protected:
  static void AddLink() {
    ASSERT_EQ(Shell("ip link add up0 type veth peer name up1 && ip link set up1 up"
                    " && ip addr add 10.78.0.1/24 dev up0 && ip link set up0 up"),
              0);
  }
};

TEST_F(WatchTest, KnowsItsProcessAndProvesItsClock) {
  InNamespace([] {
    const auto watch = Watch::Start(Spec());
    ASSERT_THAT(watch.status(), net::IsOk());
    EXPECT_EQ((*watch)->watched().incarnation, 99u);
    EXPECT_NE((*watch)->watched().tgid, 0u);
    EXPECT_EQ((*watch)->watched().dead_ns, 0u);
    EXPECT_EQ((*watch)->clock().laps, 1u) << "the proof, and then rest";
    EXPECT_EQ((*watch)->clock().running, 0u);
  });
}

TEST_F(WatchTest, SharesTheNodesMaps) {
  InNamespace([] {
    net::KeepBpfLog();
    const std::unique_ptr<node_bpf, void (*)(node_bpf*)> node(node_bpf__open(), node_bpf__destroy);
    ASSERT_NE(node, nullptr);
    hr_node_config& config = node->rodata->node_config;
    config.self = 1;
    config.cluster_id = 1;
    config.port_be = htons(5001);
    config.address.words[2] = htonl(0xffff);
    config.address.words[3] = htonl(0x0a4e0001);
    const int refused = node_bpf__load(node.get());
    ASSERT_EQ(refused, 0) << net::BpfLoadError(-refused);
    WatchSpec spec = Spec();
    spec.state_map = bpf_map__fd(node->maps.node);
    spec.numbers_map = bpf_map__fd(node->maps.numbers);
    const auto watch = Watch::Start(spec);
    ASSERT_THAT(watch.status(), net::IsOk());
    EXPECT_EQ(MapId((*watch)->maps().state), MapId(spec.state_map));
    EXPECT_EQ(MapId((*watch)->maps().numbers), MapId(spec.numbers_map));
  });
}

TEST_F(WatchTest, NamesTheNodesThatCannotBeNotifiedAndWhy) {
  InNamespace([] {
    AddLink();
    WatchSpec spec = Spec();
    spec.peers.push_back(At("127.0.0.2", 5001));
    spec.peers.push_back(At("192.0.2.1", 5001));
    const auto watch = Watch::Start(spec);
    ASSERT_THAT(watch.status(), net::IsOk());
    EXPECT_THAT((*watch)->FindRoutes(),
                ElementsAre("peer 127.0.0.2:5001: it is on this host", HasSubstr("peer 192.0.2.1:5001: ")));
    ASSERT_EQ(Shell("ip route add 192.0.2.0/24 dev up0"), 0);
    EXPECT_THAT((*watch)->FindRoutes(), ElementsAre(HasSubstr("127.0.0.2")));
  });
}

TEST_F(WatchTest, LeavesNothing) {
  InNamespace([] {
    { ASSERT_THAT(Watch::Start(Spec()).status(), net::IsOk()); }
    EXPECT_EQ(net::ListLinks()->size(), 1u) << "only the loopback";
  });
}

TEST_F(WatchTest, RefusesWhatItCannotServe) {
  InNamespace([] {
    WatchSpec spec = Spec();
    spec.incarnation = 0;
    EXPECT_THAT(Watch::Start(spec).status(), net::FailsWith(absl::StatusCode::kInvalidArgument, "incarnation"));
    spec = Spec();
    spec.peers.resize(HR_WATCH_PEERS + 1);
    EXPECT_THAT(Watch::Start(spec).status(),
                net::FailsWith(absl::StatusCode::kInvalidArgument, "at most 8 peers, not 9"));
    // A map that is not the state.
    spec = Spec();
    const net::UniqueFd other(bpf_map_create(BPF_MAP_TYPE_ARRAY, "other", 4, 8, 1, nullptr));
    spec.state_map = other.get();
    EXPECT_FALSE(Watch::Start(spec).ok());
    EXPECT_EQ(net::ListLinks()->size(), 1u) << "a start that fails leaves nothing";
  });
}

TEST_F(WatchTest, DoesNotTouchAForeignLinkOfItsName) {
  InNamespace([] {
    // The name that the watch has used, in foreign hands.
    std::string name;
    {
      const auto watch = Watch::Start(Spec());
      ASSERT_THAT(watch.status(), net::IsOk());
      const auto links = net::ListLinks();
      for (const net::LinkInfo& link : *links)
        if (link.name.ends_with("c0")) name = link.name;
    }
    ASSERT_EQ(Shell("ip link add " + name + " type veth peer name foreign"), 0);
    EXPECT_THAT(Watch::Start(Spec()).status(), net::FailsWith(absl::StatusCode::kFailedPrecondition, name.c_str()));
    EXPECT_TRUE(net::FindLink(name).ok());
  });
}

}  // namespace
}  // namespace hedgerow::offload
