// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What the tests of a node's kernel programs stand on: the real BpfKernel for a node on IPv4 or IPv6, one call
// that runs the XDP program on a frame through BPF_PROG_TEST_RUN, and what came of it. State is set by plain
// updates, as only a test may do. Every case begins with FollowerShared, the incarnations of all peers known, and
// an empty ring.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>

#include <map>
#include <memory>
#include <vector>

#include "bpf/tests/node/node_messages.h"
#include "cluster/offload/bpf_kernel.h"

namespace hedgerow::packets {

uint64_t MonotonicNs();

// A loaded object, and its memory set and read directly.
class LoadedNode {
 public:
  static std::unique_ptr<LoadedNode> Load(bool ipv6);
  static std::unique_ptr<LoadedNode> Of(std::unique_ptr<offload::BpfKernel> kernel);

  offload::BpfKernel &kernel() { return *kernel_; }
  void SetShared(const hr_node_shared &shared);
  hr_node_shared Shared();
  void SetWindow(uint32_t slot, const hr_node_window &window);
  hr_node_window Window(uint32_t slot);
  void SetHook(const hr_node_hook &hook);
  void SetNumbers(uint64_t packet_number);
  uint64_t PacketNumber();

  struct Result {
    int action = -1;
    Bytes frame{};
  };
  Result Xdp(const Bytes &frame);
  std::vector<offload::RingRecord> TakeAll();

 private:
  std::unique_ptr<offload::BpfKernel> kernel_;
};

class NodeTest : public ::testing::TestWithParam<bool> {
 protected:
  struct Outcome {
    int action = -1;
    Bytes frame{};                    // the answer, or as it came
    hr_peer_header header{};          // XDP_TX: of the answer
    union hr_node_reply body {};      // XDP_TX
    std::map<int, int64_t> events{};  // what was counted
  };

  void SetUp() override;
  void Reset();
  bool ipv6() const { return GetParam(); }
  LoadedNode &node() { return *node_; }
  offload::BpfKernel &kernel() { return node_->kernel(); }

  // The frame, run. An answer is checked for what every answer must have: whole checksums, addresses swapped,
  // tag, number.
  Outcome Run(const Bytes &frame);
  Outcome Send(uint32_t from, const Bytes &datagram) { return Run(PeerFrame(from, datagram, ipv6())); }
  template <typename Body>
  Outcome Send(hr_peer_kind kind, uint32_t from, const Body &body, uint64_t term = kTerm) {
    return Send(from, SealPeer(PeerHead(kind, from, ++number_, term), BodyBytes(body)));
  }
  Outcome SendAppend(const Bytes &body, uint64_t term = kTerm, uint32_t from = kLeader) {
    return Send(from, SealPeer(PeerHead(HR_PEER_APPEND, from, ++number_, term), body));
  }
  // Changes the state that the next frame meets.
  template <typename Change>
  void Change1(Change change) {
    hr_node_shared shared = node_->Shared();
    change(shared);
    node_->SetShared(shared);
  }
  // Passed to the process for this reason, with nothing changed and nothing in the ring.
  void ExpectPassed(const Outcome &outcome, hr_node_event why);
  hr_node_control Control(hr_node_operation operation, const hr_node_shared *shared = nullptr,
                          uint64_t incarnation = kOwnIncarnation);

  uint64_t number_ = 0;
  LoadedNode *node_ = nullptr;
  hr_node_shared before_{};
};

}  // namespace hedgerow::packets
