// SPDX-License-Identifier: Apache-2.0
//
// "Has any replica seen this id within the last second?" A stall happens on the first sight of an id only; the
// hedge that meets another replica must find it fast. Replicas run as processes of their own in different
// network namespaces, so the table is a file they all map. Lock-free: one 64-bit word per slot holds id and
// time.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "bench/load/mapped_words.h"

namespace hedgerow::bench {

class SeenTable {
 public:
  // Ids are slotted by their low bits: two ids that are a multiple of 2^20 apart push each other out, which
  // cannot happen within the life time at any rate below a million requests per second.
  static constexpr uint32_t kSlots = 1 << 20;

  // Maps `path`, made on first use; an empty path makes a table private to this process.
  static absl::StatusOr<SeenTable> Open(const std::string& path, int64_t ttl_ns);

  // True for exactly one caller per id and life time, counted from that first sight.
  bool IsFirstSight(uint32_t id, int64_t now_ns);

 private:
  SeenTable(MappedWords slots, int64_t ttl_ns) : slots_(std::move(slots)), ttl_ms_(ttl_ns / 1'000'000) {}

  MappedWords slots_;
  int64_t ttl_ms_;
};

}  // namespace hedgerow::bench
