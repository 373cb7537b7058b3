// SPDX-License-Identifier: Apache-2.0
//
// Which requests the echo server stalls. `mod` is the published rule (id % 100 < 2); it is
// periodic, so at an open-loop rate it would stall in lockstep with the clock. `hash` stalls a seeded
// pseudo-random fraction. Either way every run and every competitor meets the same stalls.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hedgerow::bench {

class StallRule {
 public:
  // `kind` is "mod" or "hash"; `fraction` (0 to 1) and `seed` are used by "hash", `mod` stalls `fraction` * 100
  // of every 100 ids.
  static absl::StatusOr<StallRule> Make(absl::string_view kind, double fraction, uint64_t seed);

  bool Stalls(uint32_t id) const;

 private:
  enum class Kind { kMod, kHash };
  StallRule(Kind kind, double fraction, uint64_t seed);

  Kind kind_;
  uint32_t below_percent_;
  uint64_t below_hash_;
  uint64_t seed_;
};

}  // namespace hedgerow::bench
