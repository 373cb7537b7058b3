// SPDX-License-Identifier: Apache-2.0
//
// Whether what the clients of a run saw could have come from one store that does one thing at a time, and if
// not, in numbers: acknowledged writes that are gone, and increments that were applied twice. The checks are
// exact and those of the simulator (cluster/sim/history); an operation without an answer stays open for ever.
// Pure.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "chaos/load/history_file.h"

namespace hedgerow::chaos {

struct Verdict {
  uint64_t operations = 0;
  uint64_t answered = 0;
  uint64_t unknown = 0;  // writes without an answer, or with an error: done or not
  uint64_t keys = 0;
  uint64_t acked_lost = 0;
  uint64_t double_applied = 0;
  bool linearizable = true;
  std::vector<std::string> violations{};  // one for each key that has one
};

// `final_reads` were made after the last operation ended. InvalidArgument: a key that was used is missing from
// them, or an operation has not ended: such a history says nothing.
absl::StatusOr<Verdict> Judge(const std::vector<Record>& history, const std::vector<Record>& final_reads);

std::string ToJson(const Verdict& verdict);

}  // namespace hedgerow::chaos
