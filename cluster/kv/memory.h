// SPDX-License-Identifier: Apache-2.0
//
// What the replicated state is charged for the memory that it takes, and the room that a command has (ADR 40). The
// charge counts bytes of keys, values and answers, and a fixed overhead for each of them: a function of the state
// alone, so every replica refuses the same commands, whatever its allocator does. memory_test.cc compares the overheads
// with what glibc's malloc takes. Used by the tables and the state machine, on a node's loop.

#pragma once

#include <cstddef>
#include <cstdint>

#include "cluster/kv/command.h"

namespace hedgerow::kv {

// Nodes of the containers, the share of a table of buckets, and what malloc rounds up for up to two texts.
constexpr size_t kValueOverhead_bytes = 160;
constexpr size_t kItemOverhead_bytes = 288;
constexpr size_t kSessionOverhead_bytes = 512;
constexpr size_t kAnswerOverhead_bytes = 112;
constexpr size_t kRequestOverhead_bytes = 352;  // of a window
constexpr size_t kResultValueOverhead_bytes = 40;

// A refusal, which has no value, as much as what it refuses: in a full store it takes the place of other answers.
inline size_t ChargeOf(const Result& result) {
  size_t bytes = result.values.empty() ? kResultValueOverhead_bytes : 0;
  for (const std::string& value : result.values) bytes += value.size() + kResultValueOverhead_bytes;
  return bytes;
}
inline size_t ChargeOfAnswer(const Result& result) { return kAnswerOverhead_bytes + ChargeOf(result); }
inline size_t ChargeOfRequest(const Result& result) { return kRequestOverhead_bytes + ChargeOf(result); }

// In bytes.
struct MemoryUse {
  uint64_t values = 0;  // hkv's keys with their values
  uint64_t sessions = 0;
  uint64_t answers = 0;   // of sessions
  uint64_t items = 0;     // memcached's
  uint64_t requests = 0;  // without a session, memcached's among them, with their answers

  uint64_t total() const { return values + sessions + answers + items + requests; }
  bool operator==(const MemoryUse&) const = default;
};

// The limit holds for what is stored. Beyond it there is a reserve for what is remembered of commands that store
// nothing more, so that deletes can be done in a full store, and new sessions opened for them: half of it for sessions,
// their answers and writes without one; the rest for memcached's requests alone, which time forgets.
constexpr uint64_t ReserveOf(uint64_t limit_bytes) { return limit_bytes / 8; }
constexpr uint64_t WithHalfReserve(uint64_t limit_bytes) { return limit_bytes + ReserveOf(limit_bytes) / 2; }
constexpr uint64_t WithReserve(uint64_t limit_bytes) { return limit_bytes + ReserveOf(limit_bytes); }

// Charged so much: what has no room is refused, or soon will be.
constexpr bool IsNearlyFull(uint64_t used_bytes, uint64_t limit_bytes) {
  return used_bytes >= limit_bytes - limit_bytes / 64;
}

}  // namespace hedgerow::kv
