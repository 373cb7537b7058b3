// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/stall_rule.h"

#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/serve/mix.h"

namespace hedgerow::bench {

absl::StatusOr<StallRule> StallRule::Make(absl::string_view kind, double fraction, uint64_t seed) {
  if (!(fraction >= 0 && fraction <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("the stalled fraction is 0 to 1, not ", fraction));
  }
  if (kind == "mod") return StallRule(Kind::kMod, fraction, seed);
  if (kind == "hash") return StallRule(Kind::kHash, fraction, seed);
  return absl::InvalidArgumentError(absl::StrCat("the stall rule is mod or hash, not '", kind, "'"));
}

// 2^63 instead of 2^64 in the comparison, so that a fraction of 1 does not overflow.
StallRule::StallRule(Kind kind, double fraction, uint64_t seed)
    : kind_(kind),
      below_percent_(static_cast<uint32_t>(std::lround(fraction * 100))),
      below_hash_(static_cast<uint64_t>(std::ldexp(fraction, 63))),
      seed_(Mix(seed)) {}

bool StallRule::Stalls(uint32_t id) const {
  if (kind_ == Kind::kMod) return id % 100 < below_percent_;
  return (Mix(seed_ ^ id) >> 1) < below_hash_;
}

}  // namespace hedgerow::bench
