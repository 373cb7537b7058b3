// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What is believed: frames that are none of the program's business, and peer datagrams that are cut, forged,
// replayed, too long, or of another cluster, node, incarnation, epoch or place. Nothing of it may change the
// state.
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>

#include <cstring>
#include <span>

#include "bpf/tests/checksum.h"
#include "bpf/tests/node/node_fixture.h"

namespace hedgerow::packets {
namespace {

class NodeAdmitTest : public NodeTest {
 protected:
  Bytes Heartbeat(uint64_t number, uint32_t from = kLeader) {
    const hr_peer_heartbeat body{.round = 7, .commit = 4, .election_timeout_ns = 20'000'000};
    return SealPeer(PeerHead(HR_PEER_HEARTBEAT, from, number), BodyBytes(body));
  }
  template <typename Change>
  Outcome SendChanged(Change change) {
    const hr_peer_heartbeat body{.round = 7, .commit = 4, .election_timeout_ns = 20'000'000};
    hr_peer_header header = PeerHead(HR_PEER_HEARTBEAT, kLeader, ++number_);
    change(header);
    return Send(kLeader, SealPeer(header, BodyBytes(body)));
  }
  void ExpectNotOurs(const Bytes &frame) {
    const Outcome outcome = Run(frame);
    EXPECT_EQ(outcome.action, XDP_PASS);
    EXPECT_TRUE(outcome.events.empty());
    EXPECT_EQ(node().Window(SlotOf(kLeader)).highest, 0u);
  }
  void ExpectDropped(const Outcome &outcome, hr_node_event why) {
    EXPECT_EQ(outcome.action, XDP_DROP);
    EXPECT_EQ(outcome.events, (std::map<int, int64_t>{{why, 1}}));
    const hr_node_shared after = node().Shared();
    EXPECT_EQ(std::memcmp(&before_, &after, sizeof(after)), 0);
  }
};

TEST_P(NodeAdmitTest, OtherTrafficPassesUncounted) {
  const std::string peer = AddressOf(kLeader, ipv6()), self = AddressOf(kSelf, ipv6());
  const Bytes datagram = Heartbeat(1);
  ExpectNotOurs(PacketBuilder(peer, self).Udp(kPeerPort, 53, datagram).Build());
  ExpectNotOurs(PacketBuilder(peer, AddressOf(kPeer, ipv6())).Udp(kPeerPort, kPeerPort, datagram).Build());
  ExpectNotOurs(PacketBuilder(peer, self).Tcp(kPeerPort, kPeerPort, kTcpSyn).Build());
  ExpectNotOurs(PacketBuilder(peer, self).Udp(kPeerPort, kPeerPort, datagram).UdpLength(20).Build());
  ExpectNotOurs(PacketBuilder(peer, self).Udp(kPeerPort, kPeerPort, datagram).TrailingBytes({1, 2, 3}).Build());
  const Bytes whole = PeerFrame(kLeader, datagram, ipv6());
  for (size_t bytes = 14; bytes < whole.size(); ++bytes) ExpectNotOurs(CutTo(whole, bytes));
  if (ipv6()) {
    ExpectNotOurs(PacketBuilder(peer, self).Udp(kPeerPort, kPeerPort, datagram).AtomicFragment(9).Build());
  } else {
    ExpectNotOurs(PacketBuilder(peer, self).Udp(kPeerPort, kPeerPort, datagram).Ipv4Options({1, 1, 1, 1}).Build());
    for (const Bytes &fragment : PacketBuilder(peer, self).Udp(kPeerPort, kPeerPort, datagram).BuildFragments(48, 5))
      ExpectNotOurs(fragment);
  }
}

// What a device does with a packet that says CHECKSUM_PARTIAL: it sums all of UDP, with what stands in the field.
Bytes CompletedByTheDevice(Bytes frame, bool ipv6) {
  const size_t udp = ETH_HLEN + (ipv6 ? sizeof(ip6_hdr) : sizeof(iphdr));
  const uint16_t check = htons(static_cast<uint16_t>(~FoldedSum(std::span(frame).subspan(udp))));
  std::memcpy(frame.data() + udp + 6, &check, sizeof(check));
  return frame;
}

// A frame as it is before a device has completed it.
Bytes Uncompleted(Bytes frame, bool ipv6) {
  const size_t addresses = ETH_HLEN + (ipv6 ? 8 : 12), bytes = ipv6 ? 16 : 4;
  const size_t udp = ETH_HLEN + (ipv6 ? sizeof(ip6_hdr) : sizeof(iphdr));
  const auto all = std::span(frame);
  const uint32_t sum = PseudoHeaderSum(all.subspan(addresses, bytes), all.subspan(addresses + bytes, bytes),
                                       frame.size() - udp, IPPROTO_UDP);
  const uint16_t check = htons(FoldedSum({}, sum));
  std::memcpy(frame.data() + udp + 6, &check, sizeof(check));
  return frame;
}

TEST_P(NodeAdmitTest, AnAnswerInAPacketThatADeviceCompletesHasThePseudoHeadersSum) {
  const Bytes whole = PeerFrame(kLeader, Heartbeat(1), ipv6());
  const Bytes partial = Uncompleted(PeerFrame(kLeader, Heartbeat(2), ipv6()), ipv6());
  ASSERT_EQ(ChecksumFault(CompletedByTheDevice(partial, ipv6())), "");
  node().SetHook({.generic = 1});
  Run(whole);  // with a whole checksum, as from any other device
  const LoadedNode::Result answer = node().Xdp(partial);
  ASSERT_EQ(answer.action, XDP_TX);
  EXPECT_EQ(ChecksumFault(CompletedByTheDevice(answer.frame, ipv6())), "");
  EXPECT_NE(ChecksumFault(answer.frame), "");
}

TEST_P(NodeAdmitTest, AnAnswerThatTheDriverSendsIsWholeWhateverTheDatagramsWas) {
  Run(Uncompleted(PeerFrame(kLeader, Heartbeat(1), ipv6()), ipv6()));
}

TEST_P(NodeAdmitTest, PaddingOfAShortFrameDoesNoHarm) {
  Bytes frame = PeerFrame(kLeader, Heartbeat(1), ipv6());
  frame.resize(frame.size() + 7, 0xee);
  EXPECT_EQ(Run(frame).action, XDP_TX);
}

TEST_P(NodeAdmitTest, WhatTheHeaderSaysMustFit) {
  ExpectPassed(SendChanged([](auto &header) { header.magic ^= 1; }), HR_NODE_EVENT_PASSED_MALFORMED);
  ExpectPassed(SendChanged([](auto &header) { header.version = 1; }), HR_NODE_EVENT_PASSED_MALFORMED);
  ExpectPassed(SendChanged([](auto &header) { header.cluster_id += 1; }), HR_NODE_EVENT_PASSED_MALFORMED);
  ExpectPassed(SendChanged([](auto &header) { header.to = kPeer; }), HR_NODE_EVENT_PASSED_MALFORMED);
  ExpectPassed(SendChanged([](auto &header) { header.from = kSelf; }), HR_NODE_EVENT_PASSED_MALFORMED);
  ExpectPassed(SendChanged([](auto &header) { header.from = 99; }), HR_NODE_EVENT_PASSED_MALFORMED);
  ExpectPassed(SendChanged([](auto &header) { header.from = 0; }), HR_NODE_EVENT_PASSED_MALFORMED);
  ExpectPassed(SendChanged([](auto &header) { header.kind = 0; }), HR_NODE_EVENT_PASSED_MALFORMED);
  ExpectPassed(SendChanged([](auto &header) { header.kind = HR_PEER_KINDS; }), HR_NODE_EVENT_PASSED_MALFORMED);
  ExpectPassed(SendChanged([](auto &header) { header.key_id = 0; }), HR_NODE_EVENT_PASSED_MALFORMED);
  ExpectPassed(SendChanged([](auto &header) { header.packet_number = 0; }), HR_NODE_EVENT_PASSED_MALFORMED);
  ExpectPassed(SendChanged([](auto &header) { header.from_incarnation = 0; }), HR_NODE_EVENT_PASSED_MALFORMED);
  EXPECT_EQ(SendChanged([](auto &header) { header.to = 0; }).action, XDP_TX) << "to the whole cluster";
}

TEST_P(NodeAdmitTest, ADatagramOfAnotherConfigurationIsTheProcesss) {
  ExpectPassed(SendChanged([](auto &header) { header.config_epoch += 1; }), HR_NODE_EVENT_PASSED_EPOCH);
}

TEST_P(NodeAdmitTest, ALengthThatIsNotTheHeadersIsTheProcesss) {
  Bytes datagram = Heartbeat(1);
  datagram.push_back(0);
  Reseal(datagram);
  ExpectPassed(Send(kLeader, datagram), HR_NODE_EVENT_PASSED_MALFORMED);
  datagram.resize(HR_PEER_HEADER_BYTES - 1);
  ExpectPassed(Send(kLeader, datagram), HR_NODE_EVENT_PASSED_MALFORMED);
  ExpectPassed(Send(kLeader, {}), HR_NODE_EVENT_PASSED_MALFORMED);
}

TEST_P(NodeAdmitTest, ATruncatedBodyIsTheProcesssAndItsNumberIsTaken) {
  hr_peer_header header = PeerHead(HR_PEER_HEARTBEAT, kLeader, 5);
  const Bytes datagram = SealPeer(header, Bytes(16));
  ExpectPassed(Send(kLeader, datagram), HR_NODE_EVENT_PASSED_MALFORMED);
  EXPECT_EQ(node().Window(SlotOf(kLeader)).highest, 5u);
  ExpectDropped(Send(kLeader, datagram), HR_NODE_EVENT_DROPPED_REPLAYED);
}

TEST_P(NodeAdmitTest, WhatIsLongerThanTheBoundIsTheProcesss) {
  const auto of_bytes = [&](size_t bytes) {
    return SealPeer(PeerHead(HR_PEER_FORWARD, kLeader, ++number_), Bytes(bytes - HR_PEER_HEADER_BYTES));
  };
  ExpectPassed(Send(kLeader, of_bytes(HR_NODE_DATAGRAM_MAX_BYTES)), HR_NODE_EVENT_PASSED_KIND);
  EXPECT_EQ(node().Window(SlotOf(kLeader)).highest, 1u);
  ExpectPassed(Send(kLeader, of_bytes(HR_NODE_DATAGRAM_MAX_BYTES + 1)), HR_NODE_EVENT_PASSED_SIZE);
  ExpectPassed(Send(kLeader, of_bytes(3000)), HR_NODE_EVENT_PASSED_SIZE);
  EXPECT_EQ(node().Window(SlotOf(kLeader)).highest, 1u) << "the number of a long one is not taken";
}

TEST_P(NodeAdmitTest, ADatagramFromElsewhereIsTheProcesss) {
  const std::string self = AddressOf(kSelf, ipv6());
  const Bytes datagram = Heartbeat(1);
  ExpectPassed(Run(PacketBuilder(AddressOf(kPeer, ipv6()), self).Udp(kPeerPort, kPeerPort, datagram).Build()),
               HR_NODE_EVENT_PASSED_SOURCE);
  ExpectPassed(Run(PacketBuilder(AddressOf(kLeader, ipv6()), self).Udp(9, kPeerPort, datagram).Build()),
               HR_NODE_EVENT_PASSED_SOURCE);
  EXPECT_EQ(Send(kLeader, datagram).action, XDP_TX) << "its number was not taken";
}

TEST_P(NodeAdmitTest, AForgedDatagramIsDroppedWhereverItClaimsToBeFrom) {
  const std::string self = AddressOf(kSelf, ipv6());
  Bytes forged = Heartbeat(1);
  forged.back() ^= 1;
  const Outcome moved = Run(PacketBuilder(AddressOf(kLeader, ipv6()), self).Udp(9, kPeerPort, forged).Build());
  EXPECT_EQ(moved.action, XDP_DROP);
  Bytes unknown = SealPeer(PeerHead(HR_PEER_FORWARD, 99, 1), Bytes(8));
  ExpectPassed(Send(kLeader, unknown), HR_NODE_EVENT_PASSED_MALFORMED);
  unknown.back() ^= 1;
  EXPECT_EQ(Send(kLeader, unknown).action, XDP_DROP);
}

// Every single bit: of the key there is one, and nothing else may pass.
TEST_P(NodeAdmitTest, OneWrongBitAnywhereIsDroppedOrTheProcesss) {
  const Bytes right = Heartbeat(1);
  for (size_t bit = 0; bit < right.size() * 8; ++bit) {
    Bytes datagram = right;
    datagram[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
    const Outcome outcome = Send(kLeader, datagram);
    ASSERT_NE(outcome.action, XDP_TX) << "bit " << bit;
    if (bit / 8 < HR_PEER_HEADER_BYTES) continue;
    ASSERT_EQ(outcome.events.count(HR_NODE_EVENT_DROPPED_TAG), 1u) << "bit " << bit;
  }
  EXPECT_EQ(Send(kLeader, right).action, XDP_TX);
}

TEST_P(NodeAdmitTest, AForgedDatagramIsDroppedAndTakesNoNumber) {
  const hr_peer_heartbeat body{.round = 7, .commit = 4, .election_timeout_ns = 1};
  const hr_siphash_key other = {.k0 = kNodeKey.k0, .k1 = kNodeKey.k1 ^ 1};
  ExpectDropped(Send(kLeader, SealPeer(PeerHead(HR_PEER_HEARTBEAT, kLeader, 9), BodyBytes(body), other)),
                HR_NODE_EVENT_DROPPED_TAG);
  EXPECT_EQ(node().Window(SlotOf(kLeader)).highest, 0u);
}

Bytes SealedWith(const hr_siphash_key &key, uint64_t number) {
  hr_peer_header header = PeerHead(HR_PEER_HEARTBEAT, kLeader, number);
  header.key_id = NodeKey(key).id;
  return SealPeer(header, BodyBytes(hr_peer_heartbeat{.round = 7, .commit = 4, .election_timeout_ns = 1}), key);
}

TEST_P(NodeAdmitTest, AKeyThatThisNodeDoesNotHaveIsDroppedBeforeItCostsATag) {
  ExpectDropped(Send(kLeader, SealedWith(kNextNodeKey, 1)), HR_NODE_EVENT_DROPPED_KEY);
  EXPECT_EQ(node().Window(SlotOf(kLeader)).highest, 0u);
}

TEST_P(NodeAdmitTest, WhileTheKeyIsChangedBothOpenAndTheFirstSeals) {
  const auto seals = [&](const Bytes &asked) {
    const Outcome outcome = Send(kLeader, asked);
    EXPECT_EQ(outcome.action, XDP_TX);
    return outcome.header.key_id;
  };
  ASSERT_TRUE(kernel().SetKeys({NodeKey(), NodeKey(kNextNodeKey)}).ok());
  EXPECT_EQ(seals(SealedWith(kNodeKey, 1)), NodeKey().id);
  EXPECT_EQ(seals(SealedWith(kNextNodeKey, 2)), NodeKey().id);
  ASSERT_TRUE(kernel().SetKeys({NodeKey(kNextNodeKey), NodeKey()}).ok());
  EXPECT_EQ(seals(SealedWith(kNodeKey, 3)), NodeKey(kNextNodeKey).id);
  // Of whatever key, a number counts once.
  ExpectDropped(Send(kLeader, SealedWith(kNextNodeKey, 3)), HR_NODE_EVENT_DROPPED_REPLAYED);
  ASSERT_TRUE(kernel().SetKeys({NodeKey(kNextNodeKey)}).ok());
  ExpectDropped(Send(kLeader, SealedWith(kNodeKey, 4)), HR_NODE_EVENT_DROPPED_KEY);
  EXPECT_EQ(seals(SealedWith(kNextNodeKey, 5)), NodeKey(kNextNodeKey).id);
  ASSERT_TRUE(kernel().SetKeys({NodeKey()}).ok()) << "other tests share the programs";
}

TEST_P(NodeAdmitTest, AReplayedNumberIsDropped) {
  const Bytes frame = PeerFrame(kLeader, Heartbeat(70), ipv6());
  EXPECT_EQ(Run(frame).action, XDP_TX);
  ExpectDropped(Run(frame), HR_NODE_EVENT_DROPPED_REPLAYED);
  EXPECT_EQ(Send(kLeader, Heartbeat(69)).action, XDP_TX) << "the order does not matter";
  EXPECT_EQ(Send(kLeader, Heartbeat(5000)).action, XDP_TX);
  ExpectDropped(Send(kLeader, Heartbeat(70)), HR_NODE_EVENT_DROPPED_TOO_OLD);
  kernel().SetIncarnation(SlotOf(kLeader), IncarnationOf(kLeader), 6000);
  ExpectDropped(Send(kLeader, Heartbeat(6000)), HR_NODE_EVENT_DROPPED_TOO_OLD);
  EXPECT_EQ(Send(kLeader, Heartbeat(6001)).action, XDP_TX);
}

TEST_P(NodeAdmitTest, AnIncarnationThatIsNotKnownIsTheProcesss) {
  kernel().SetIncarnation(SlotOf(kLeader), 0, 0);
  ExpectPassed(Send(kLeader, Heartbeat(1)), HR_NODE_EVENT_PASSED_INCARNATION);
  kernel().SetIncarnation(SlotOf(kLeader), IncarnationOf(kLeader) + 1, 0);
  ExpectPassed(Send(kLeader, Heartbeat(1)), HR_NODE_EVENT_PASSED_INCARNATION);
  kernel().SetIncarnation(SlotOf(kLeader), IncarnationOf(kLeader), 0);
  EXPECT_EQ(Send(kLeader, Heartbeat(1)).action, XDP_TX);
}

// Else a flood of them would cost the process a look at each.
TEST_P(NodeAdmitTest, AForgedDatagramOfAnIncarnationThatIsNotKnownEndsHere) {
  kernel().SetIncarnation(SlotOf(kLeader), IncarnationOf(kLeader) + 1, 0);
  Bytes forged = Heartbeat(1);
  forged.back() ^= 1;
  ExpectDropped(Send(kLeader, forged), HR_NODE_EVENT_DROPPED_TAG);
}

TEST_P(NodeAdmitTest, EachMemberHasItsOwnWindow) {
  EXPECT_EQ(Send(kLeader, Heartbeat(1)).action, XDP_TX);
  ExpectPassed(Send(kPeer, Heartbeat(1, kPeer)), HR_NODE_EVENT_PASSED_TERM);
  ExpectDropped(Send(kPeer, Heartbeat(1, kPeer)), HR_NODE_EVENT_DROPPED_REPLAYED);
}

TEST_P(NodeAdmitTest, WhatTheKernelDoesNotSpeakIsTheProcesss) {
  for (const hr_peer_kind kind :
       {HR_PEER_HELLO, HR_PEER_HELLO_ACK, HR_PEER_READ_INDEX, HR_PEER_READ_INDEX_REPLY, HR_PEER_TIMEOUT_NOW,
        HR_PEER_FORWARD, HR_PEER_FORWARD_ANSWER, HR_PEER_RESIGN, HR_PEER_PIECE, HR_PEER_LAST_ENTRY})
    ExpectPassed(Send(kLeader, SealPeer(PeerHead(kind, kLeader, ++number_), Bytes(33))), HR_NODE_EVENT_PASSED_KIND);
}

INSTANTIATE_TEST_SUITE_P(Ip, NodeAdmitTest, ::testing::Bool(),
                         [](const auto &info) { return info.param ? "v6" : "v4"; });

}  // namespace
}  // namespace hedgerow::packets
