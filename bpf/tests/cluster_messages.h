// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The datagrams that a cluster's clients and nodes send past the proxy, for the packet tests: hkv requests and
// answers (docs/WIRE_FORMAT.md), and announcements, sealed with a key. Pure bytes, no kernel.
#pragma once

#include <cstdint>

#include "bpf/abi/announce_abi.h"
#include "bpf/abi/siphash_abi.h"
#include "bpf/tests/packet.h"

namespace hedgerow::packets {

enum HkvKind : uint8_t { kHkvOpen = 1, kHkvWrite = 2, kHkvGet = 3, kHkvCancel = 4 };
inline constexpr uint8_t kHkvOverloaded = 6;
inline constexpr uint8_t kHkvNotLeader = 7;
// What stands in place of the node id in answers that name no leader.
inline constexpr uint32_t kHkvNeverHedge = 0xffffffff;

Bytes HkvRequest(uint8_t kind, uint64_t client_id, uint64_t seq, const Bytes &body = {});
// The answer to a request; `hint` is a node id.
Bytes HkvAnswer(const Bytes &request, uint8_t status = 0, uint32_t hint = 0);
// Bytes 8 to 23: what the proxy knows a request by.
Bytes HkvCorrelation(uint64_t client_id, uint64_t seq);

// An announcement that leaves nothing to be desired but its tag.
hr_announcement Leading(uint64_t cluster_id, const char *address, uint16_t port, uint64_t term, uint64_t sequence);
Bytes Seal(hr_announcement announcement, const hr_siphash_key &key);

}  // namespace hedgerow::packets
