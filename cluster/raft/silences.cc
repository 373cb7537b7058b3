// SPDX-License-Identifier: Apache-2.0
#include "cluster/raft/silences.h"

#include <utility>

namespace hedgerow::raft {

void Silences::ListenTo(const Listening& listening) {
  if (listening == listening_) return;
  listening_ = listening;
  silent_ns_ = 0;
}

void Silences::Heard(uint64_t now_ns, uint64_t heard_ns, uint64_t most_ns) {
  if (heard_ns == heard_ns_) return;
  heard_ns_ = heard_ns;
  const uint64_t silent_ns = std::min(std::exchange(silent_ns_, 0), most_ns);
  if (silent_ns <= Longest_ns(now_ns)) return;
  longest_ns_ = silent_ns;
  longest_at_ns_ = now_ns;
}

void Silences::Look(uint64_t now_ns) {
  if (now_ns > heard_ns_) AtLeast(now_ns - heard_ns_);
}

uint64_t Silences::Longest_ns(uint64_t now_ns) const {
  const uint64_t age_ns = now_ns - longest_at_ns_;
  if (age_ns >= kFade_ns) return 0;
  return longest_ns_ - static_cast<uint64_t>(static_cast<double>(longest_ns_) * static_cast<double>(age_ns) /
                                             static_cast<double>(kFade_ns));
}

}  // namespace hedgerow::raft
