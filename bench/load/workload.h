// SPDX-License-Identifier: Apache-2.0
//
// What a request looks like on the wire and what counts as its answer: `raw` (the published workload: a 4-byte
// little-endian id, optionally padded, echoed back), `dns` (A queries for the names of a list; QR bit, id, question and
// answer checked), and `heartbeat` (of a store's leader). The load engine numbers requests 0, 1, 2, ..; a workload
// turns such a number into bytes and an answer back into the number it belongs to, without a table that would have to
// be kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hedgerow::bench {

inline constexpr size_t kMaxRequestBytes = 1472;

enum class DecodeResult {
  kAnswer,  // A correct answer to `seq`.
  kWrong,   // Belongs to `seq` by its id, but says something else than it should.
  kStray,   // No answer to anything that was asked.
};

struct Decoded {
  DecodeResult result = DecodeResult::kStray;
  uint64_t seq = 0;
  std::optional<uint8_t> load = std::nullopt;  // What the server says of itself; 255: full.
  std::string reply{};                         // What the server asks to be sent before it answers anything.
};

class Workload {
 public:
  virtual ~Workload() = default;

  // Writes request `seq` and returns its length, at most kMaxRequestBytes.
  virtual size_t Encode(uint64_t seq, std::span<uint8_t, kMaxRequestBytes> out) = 0;

  // Reads a datagram that arrived on socket `flow`. Request `seq` leaves through socket seq % flows, and
  // requests below `next_seq` have been sent.
  virtual Decoded Decode(std::span<const uint8_t> datagram, uint64_t flow, uint64_t next_seq) = 0;

  // How many requests may be pending per socket before two of them share an id.
  virtual uint64_t IdsPerFlow() const = 0;
};

// Request ids are `first_id + seq`; `request_bytes` (4 to 1,472) includes the id, the rest is a fixed pattern.
// In answers the byte at `load_offset`, behind the id, is the server's load.
absl::StatusOr<std::unique_ptr<Workload>> MakeRawWorkload(uint32_t first_id, size_t request_bytes,
                                                          std::optional<size_t> load_offset = std::nullopt);

// Names in turn; an id is the number of the request on its socket, modulo 2^16. `flows` is the number of
// sockets.
absl::StatusOr<std::unique_ptr<Workload>> MakeDnsWorkload(const std::vector<std::string>& names, uint64_t flows);

// Heartbeats to node 1 of a cluster of two, which takes the sender for member 2 and for its leader. It must come from
// that member's address. The key is in hexadecimal.
absl::StatusOr<std::unique_ptr<Workload>> MakeHeartbeatWorkload(uint64_t cluster_id, const std::string& cluster_key);

}  // namespace hedgerow::bench
