// SPDX-License-Identifier: Apache-2.0
#include "chaos/load/app_hedging.h"

namespace hedgerow::chaos {

size_t AppHedging::First(uint64_t now_ns, Attempts& attempts) const {
  attempts = {.first_sent_ns = now_ns, .wait_ns = options_.delay_ns, .by_time = 1, .last_server = leader_};
  if (options_.attempts_max > 1) attempts.next_ns = now_ns + options_.delay_ns;
  return leader_;
}

size_t AppHedging::Next(Attempts& attempts) const {
  ++attempts.by_time;
  attempts.wait_ns *= 2;
  attempts.next_ns = attempts.by_time < options_.attempts_max ? attempts.next_ns + attempts.wait_ns : UINT64_MAX;
  attempts.last_server = (attempts.last_server + 1) % heard_ns_.size();
  return attempts.last_server;
}

std::optional<size_t> AppHedging::NotLeader(size_t from, std::optional<size_t> hint, Attempts& attempts) {
  if (!hint.has_value() || *hint >= heard_ns_.size() || *hint == from) {
    if (leader_ == from) leader_ = (from + 1) % heard_ns_.size();
    return std::nullopt;
  }
  leader_ = *hint;
  if (attempts.followed >= options_.follow_max) return std::nullopt;
  ++attempts.followed;
  attempts.last_server = *hint;
  return hint;
}

void AppHedging::Answered(size_t from, const Attempts& attempts) {
  if (from != leader_ && heard_ns_[leader_] < attempts.first_sent_ns) leader_ = from;
}

}  // namespace hedgerow::chaos
