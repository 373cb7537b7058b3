// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What a node's XDP program is to do with a frame, natively: frames and answers are taken apart and built by
// code of the tests' own, the decisions are those of bpf/node/raft, compiled by the other compiler. The differential
// fuzz holds the kernel's program against it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "bpf/node/raft/datagram.h"
#include "bpf/node/raft/window.h"
#include "bpf/tests/packet.h"

namespace hedgerow::packets {

// Everything that the program reads and changes.
struct NodeState {
  hr_node_config config{};
  std::array<hr_node_peer, HR_NODE_MEMBERS> members{};
  hr_node_shared shared{};
  std::array<hr_node_window, HR_NODE_MEMBERS> windows{};
  uint64_t packet_number = 0;
  uint64_t sent_index = 0;
  uint64_t sent_round = 0;
};

struct ModelRecord {
  hr_node_record head{};
  Bytes datagram{};
};

struct ModelResult {
  int action = 0;                        // XDP_...
  std::optional<uint32_t> event{};       // none: it was no peer datagram
  Bytes frame{};                         // XDP_TX: the answer; otherwise as it came
  std::optional<ModelRecord> record{};   // submitted
  std::optional<uint32_t> taken_from{};  // the slot whose window took a number, or refused it
};

// Changes `state`. Ring space is always there.
ModelResult RunModel(NodeState &state, const Bytes &frame, uint64_t now_ns);

}  // namespace hedgerow::packets
