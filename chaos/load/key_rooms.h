// SPDX-License-Identifier: Apache-2.0
//
// Keeps what is outstanding on a key to what a checker of histories can try: the time of a general one
// (chaos/porcupine) may grow with the power of that number, and in an outage of a second the loads send a
// hundred operations to each key. A key that is full is passed over for the next of its row; a write without an
// answer is outstanding for ever, so a key with too many of them is not used again. Used by the loads of all
// systems.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "chaos/load/history_file.h"
#include "chaos/load/operation_mix.h"

namespace hedgerow::chaos {

// Not thread-safe.
class KeyRooms {
 public:
  // With the read in the end, which may find as many writes open, one more: what chaos/porcupine/judge.go still
  // tries.
  static constexpr uint32_t kOutstandingMax = 7;

  explicit KeyRooms(const MixOptions& mix) : counters_(mix.counters), registers_(mix.registers) {}

  // Where an operation of the mix on key `drawn` goes: that key, or the first with room of drawn + n, drawn +
  // 2n..., where n is how many keys the mix draws from.
  uint32_t Take(Kind kind, uint32_t drawn);

  // When an operation that has a place has ended: gives it back, unless the operation may still take effect.
  void Ended(const Record& record);
  void GiveBack(Kind kind, uint32_t key);

 private:
  struct Row {
    std::vector<uint32_t> outstanding;  // by turn; the turns before `first` are full
    size_t first = 0;
  };

  std::vector<Row>& RowsOf(Kind kind) { return IsCounter(kind) ? counters_ : registers_; }

  std::vector<Row> counters_;
  std::vector<Row> registers_;
};

}  // namespace hedgerow::chaos
