// SPDX-License-Identifier: Apache-2.0
//
// What the leader tells a proxy: "I lead, here". One datagram, bpf/abi/announce_abi.h, tagged with the proxy's
// own key. The node's loop seals one per proxy with each heartbeat round; the proxy's kernel program checks
// them, so the parser here is for tests and tools. All functions are pure.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "bpf/abi/announce_abi.h"
#include "cluster/raft/types.h"
#include "cluster/wire/key.h"

namespace hedgerow::wire {

enum class AnnouncementState : uint8_t {
  kLeading = HR_ANNOUNCEMENT_LEADING,
  kResigning = HR_ANNOUNCEMENT_RESIGNING,
};

struct Announcement {
  AnnouncementState state = AnnouncementState::kLeading;
  uint64_t cluster_id = 0;
  uint64_t cluster_epoch = 0;
  raft::Term term{};
  uint64_t sequence = 0;                     // one counter of the node's, from 1 in each incarnation
  std::array<uint8_t, 16> leader_address{};  // IPv6, or IPv4 mapped into ::ffff:0:0/96; network order
  uint16_t leader_port = 0;                  // host order
  uint32_t holds_ms = 0;                     // what it was sent before so long it does not hold; 0: not said

  bool operator==(const Announcement&) const = default;
};

// HR_ANNOUNCEMENT_BYTES bytes.
std::string SealAnnouncement(const Announcement& announcement, const Key& proxy_key);

// Nothing if it is none, or was made with another key.
std::optional<Announcement> OpenAnnouncement(std::string_view datagram, const Key& proxy_key);

// The key of the proxy with this name. It tells nothing of `announce_key` or another proxy's key.
Key DeriveProxyKey(const Key& announce_key, std::string_view proxy_name);

}  // namespace hedgerow::wire
