// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "bpf/tests/node/node_fixture.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include <cstring>
#include <ctime>

#include "bpf/tests/checksum.h"
#include "node.skel.h"

namespace hedgerow::packets {
namespace {

constexpr uint32_t kZero = 0;

template <typename Value>
struct Locked {  // a map's value that begins with a lock
  uint32_t lock = 0;
  uint32_t pad = 0;
  Value value{};
};

template <typename Value>
void Set(bpf_map *map, uint32_t key, const Value &value) {
  const Locked<Value> slot{.value = value};
  ASSERT_EQ(bpf_map_update_elem(bpf_map__fd(map), &key, &slot, BPF_ANY), 0);
}

template <typename Value>
Value Get(bpf_map *map, uint32_t key) {
  Locked<Value> slot{};
  EXPECT_EQ(bpf_map_lookup_elem(bpf_map__fd(map), &key, &slot), 0);
  return slot.value;
}

}  // namespace

uint64_t MonotonicNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

std::unique_ptr<LoadedNode> LoadedNode::Load(bool ipv6) {
  const hr_node_config config = NodeConfig(ipv6);
  auto kernel = offload::BpfKernel::Open({.cluster_id = config.cluster_id,
                                          .keys = {NodeKey()},
                                          .self = config.self,
                                          .address = config.address,
                                          .port = kPeerPort,
                                          .instance = "packets"});
  EXPECT_TRUE(kernel.ok()) << kernel.status();
  if (!kernel.ok()) return nullptr;
  auto loaded = std::make_unique<LoadedNode>();
  loaded->kernel_ = *std::move(kernel);
  for (uint32_t node = 1; node <= kNodes; ++node) loaded->kernel_->SetMember(SlotOf(node), MemberOf(node, ipv6));
  return loaded;
}

std::unique_ptr<LoadedNode> LoadedNode::Of(std::unique_ptr<offload::BpfKernel> kernel) {
  auto loaded = std::make_unique<LoadedNode>();
  loaded->kernel_ = std::move(kernel);
  return loaded;
}

void LoadedNode::SetShared(const hr_node_shared &shared) { Set(kernel_->skeleton()->maps.node, 0, shared); }
hr_node_shared LoadedNode::Shared() { return Get<hr_node_shared>(kernel_->skeleton()->maps.node, 0); }
void LoadedNode::SetWindow(uint32_t slot, const hr_node_window &window) {
  Set(kernel_->skeleton()->maps.windows, slot, window);
}
hr_node_window LoadedNode::Window(uint32_t slot) {
  return Get<hr_node_window>(kernel_->skeleton()->maps.windows, slot);
}
void LoadedNode::SetHook(const hr_node_hook &hook) {
  ASSERT_EQ(bpf_map_update_elem(bpf_map__fd(kernel_->skeleton()->maps.xdp_hook), &kZero, &hook, BPF_ANY), 0);
}
void LoadedNode::SetNumbers(uint64_t packet_number) {
  const hr_node_numbers numbers{.packet_number = packet_number, .announce_sequence = 0};
  ASSERT_EQ(bpf_map_update_elem(kernel_->numbers_map(), &kZero, &numbers, BPF_ANY), 0);
}
uint64_t LoadedNode::PacketNumber() {
  hr_node_numbers numbers{};
  EXPECT_EQ(bpf_map_lookup_elem(kernel_->numbers_map(), &kZero, &numbers), 0);
  return numbers.packet_number;
}

LoadedNode::Result LoadedNode::Xdp(const Bytes &frame) {
  Result result;
  result.frame.resize(frame.size() + 256);
  LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame.data(), .data_out = result.frame.data(),
              .data_size_in = static_cast<uint32_t>(frame.size()),
              .data_size_out = static_cast<uint32_t>(result.frame.size()));
  const int error = bpf_prog_test_run_opts(bpf_program__fd(kernel_->skeleton()->progs.hr_node_xdp), &options);
  EXPECT_EQ(error, 0) << "BPF_PROG_TEST_RUN: " << strerror(-error);
  result.action = static_cast<int>(options.retval);
  result.frame.resize(options.data_size_out);
  return result;
}

std::vector<offload::RingRecord> LoadedNode::TakeAll() {
  std::vector<offload::RingRecord> records;
  const uint64_t end = kernel_->ProducerPosition();
  EXPECT_EQ(kernel_->Take(end, true, records), end);
  return records;
}

void NodeTest::SetUp() {
  static auto *loaded = new std::map<bool, std::unique_ptr<LoadedNode>>();
  if (geteuid() != 0) GTEST_SKIP() << "needs root (CAP_BPF, CAP_NET_ADMIN)";
  std::unique_ptr<LoadedNode> &mine = (*loaded)[ipv6()];
  if (mine == nullptr) mine = LoadedNode::Load(ipv6());
  ASSERT_NE(mine, nullptr);
  node_ = mine.get();
  Reset();
}

void NodeTest::Reset() {
  node_->SetShared(FollowerShared(MonotonicNs()));
  node_->SetHook({.generic = 0});
  for (uint32_t node = 1; node <= kNodes; ++node) {
    kernel().SetIncarnation(SlotOf(node), 0, 0);  // else what was seen of this incarnation stays seen
    kernel().SetIncarnation(SlotOf(node), IncarnationOf(node), 0);
  }
  node_->TakeAll();
  kernel().Release(kernel().ProducerPosition());
  kernel().SetAwake(false);
  kernel().SetSent(kSentIndex, kSentRound);
  number_ = 0;
}

NodeTest::Outcome NodeTest::Run(const Bytes &frame) {
  before_ = node_->Shared();
  const hr_node_stats counted = kernel().Counters();
  const uint64_t numbered = node_->PacketNumber();
  LoadedNode::Result result = node_->Xdp(frame);
  Outcome outcome{.action = result.action, .frame = std::move(result.frame)};
  const hr_node_stats now = kernel().Counters();
  for (int i = 0; i < HR_NODE_EVENT_COUNT; ++i)
    if (now.events[i] != counted.events[i]) outcome.events[i] = static_cast<int64_t>(now.events[i] - counted.events[i]);
  EXPECT_EQ(node_->PacketNumber() - numbered, outcome.action == XDP_TX ? 1u : 0u);
  if (outcome.action != XDP_TX) {
    EXPECT_EQ(outcome.frame, frame);
    return outcome;
  }
  EXPECT_EQ(ChecksumFault(outcome.frame), "");
  const PacketView asked = Read(frame), answer = Read(outcome.frame);
  EXPECT_EQ(answer.source, asked.destination);
  EXPECT_EQ(answer.destination, asked.source);
  EXPECT_EQ(answer.source_port, asked.destination_port);
  EXPECT_EQ(answer.destination_port, asked.source_port);
  EXPECT_TRUE(std::equal(frame.begin() + 6, frame.begin() + 12, outcome.frame.begin()));
  EXPECT_TRUE(std::equal(frame.begin(), frame.begin() + 6, outcome.frame.begin() + 6));
  EXPECT_GE(answer.payload.size(), sizeof(outcome.header));
  std::memcpy(&outcome.header, answer.payload.data(), sizeof(outcome.header));
  std::memcpy(&outcome.body, answer.payload.data() + sizeof(outcome.header),
              std::min(sizeof(outcome.body), answer.payload.size() - sizeof(outcome.header)));
  hr_peer_header asked_header{};
  std::memcpy(&asked_header, asked.payload.data(), sizeof(asked_header));
  EXPECT_EQ(outcome.header.tag, hr_siphash_sealed(outcome.header.key_id == NodeKey().id ? &kNodeKey : &kNextNodeKey,
                                                  answer.payload.data(), answer.payload.size()));
  EXPECT_EQ(outcome.header.bytes, answer.payload.size());
  EXPECT_EQ(outcome.header.packet_number, numbered + 1);
  EXPECT_EQ(outcome.header.from_incarnation, kOwnIncarnation);
  EXPECT_EQ(outcome.header.from, kSelf);
  EXPECT_EQ(outcome.header.to, asked_header.from);
  EXPECT_EQ(outcome.header.cluster_id, kNodeCluster);
  EXPECT_EQ(outcome.header.config_epoch, kEpoch);
  return outcome;
}

void NodeTest::ExpectPassed(const Outcome &outcome, hr_node_event why) {
  EXPECT_EQ(outcome.action, XDP_PASS);
  EXPECT_EQ(outcome.events, (std::map<int, int64_t>{{why, 1}}));
  const hr_node_shared after = node_->Shared();
  EXPECT_EQ(std::memcmp(&before_, &after, sizeof(after)), 0);
  EXPECT_TRUE(node_->TakeAll().empty());
}

hr_node_control NodeTest::Control(hr_node_operation operation, const hr_node_shared *shared, uint64_t incarnation) {
  hr_node_control request{};
  request.operation = operation;
  request.incarnation = incarnation;
  if (shared != nullptr) request.shared = *shared;
  kernel().Control(request);
  return request;
}

}  // namespace hedgerow::packets
