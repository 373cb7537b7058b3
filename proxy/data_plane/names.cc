// SPDX-License-Identifier: Apache-2.0
//
// One table each for counters and reasons: number, name, family. See bpf/abi/stats_abi.h for what they mean.
#include "proxy/data_plane/names.h"

#include <array>

namespace hedgerow {
namespace {

struct Reason {
  absl::string_view name;
  absl::string_view kind;
};

constexpr std::array<absl::string_view, HR_COUNTER_COUNT> kCounters = [] {
  std::array<absl::string_view, HR_COUNTER_COUNT> names{};
  names[HR_REQUESTS] = "requests";
  names[HR_WON_BY_FIRST] = "won_by_first";
  names[HR_WON_BY_RESCUE] = "won_by_rescue";
  names[HR_WON_BY_FAILOVER] = "won_by_failover";
  names[HR_NACKED] = "nacked";
  names[HR_UNANSWERED] = "unanswered";
  names[HR_SUPERSEDED] = "superseded";
  names[HR_EVICTED] = "evicted";
  names[HR_PASSED_THROUGH] = "passed_through";
  names[HR_HEDGES] = "hedges";
  names[HR_FAILOVER_SENDS] = "failover_sends";
  names[HR_PROBES] = "probes";
  names[HR_LOSERS_DROPPED] = "losers_dropped";
  names[HR_NACKS_SWALLOWED] = "nacks_swallowed";
  names[HR_STALE_DROPPED] = "stale_dropped";
  names[HR_REPLIES] = "replies";
  names[HR_REPLIES_UNTRACKED] = "replies_untracked";
  names[HR_SUSPECTED] = "suspected";
  names[HR_TCP_PACKETS] = "tcp_packets";
  names[HR_LATER_FRAGMENTS] = "later_fragments";
  names[HR_PINGS] = "pings";
  names[HR_ICMP_TRANSLATED] = "icmp_translated";
  names[HR_LATE_ANSWERS] = "late_answers";
  names[HR_HANDED_OVER] = "handed_over";
  names[HR_LEADER_CHANGES] = "leader_changes";
  names[HR_HINTED] = "hinted";
  names[HR_WOULD_HEDGE] = "would_hedge";
  names[HR_WOULD_FAIL_OVER] = "would_fail_over";
  names[HR_PUSHBACKS] = "pushbacks";
  names[HR_EXTRA_SENDS] = "extra_sends";
  return names;
}();

constexpr std::array<Reason, HR_REASON_COUNT> kReasons = [] {
  std::array<Reason, HR_REASON_COUNT> reasons{};
  reasons[HR_REASON_BYPASS] = {"bypass", "forwarded"};
  reasons[HR_REASON_NOT_HEDGED] = {"not_hedged", "forwarded"};
  reasons[HR_REASON_FRAGMENT] = {"fragment", "forwarded"};
  reasons[HR_REASON_GSO] = {"gso", "forwarded"};
  reasons[HR_REASON_TOO_BIG] = {"too_big", "forwarded"};
  reasons[HR_REASON_UNKNOWN_OPERATION] = {"unknown_operation", "forwarded"};
  reasons[HR_REASON_RETRANSMISSION] = {"retransmission", "forwarded"};
  reasons[HR_REASON_POOL_FULL] = {"pool_full", "forwarded"};
  reasons[HR_REASON_REQUESTS_FULL] = {"requests_full", "forwarded"};
  reasons[HR_REASON_KEY_BUSY] = {"key_busy", "forwarded"};
  reasons[HR_REASON_IP_OPTIONS] = {"ip_options", "forwarded"};
  reasons[HR_REASON_WHEEL_CONTENDED] = {"wheel_contended", "forwarded"};
  reasons[HR_REASON_COPY_FAILED] = {"copy_failed", "forwarded"};
  reasons[HR_REASON_SCOREBOARD_FULL] = {"scoreboard_full", "forwarded"};
  reasons[HR_REASON_TRAILING_BYTES] = {"trailing_bytes", "forwarded"};
  reasons[HR_REASON_NO_DAEMON] = {"no_daemon", "forwarded"};
  reasons[HR_REASON_ONE_WAY] = {"one_way", "forwarded"};
  reasons[HR_REASON_NO_BUDGET] = {"no_budget", "not_hedged"};
  reasons[HR_REASON_NO_TARGET] = {"no_target", "not_hedged"};
  reasons[HR_REASON_RESCUE_FAILED] = {"rescue_failed", "not_hedged"};
  reasons[HR_REASON_RELEASE_FAILED] = {"release_failed", "not_hedged"};
  reasons[HR_REASON_DELAY_LINE_FULL] = {"delay_line_full", "not_hedged"};
  reasons[HR_REASON_PUSHBACK] = {"pushback", "not_hedged"};
  reasons[HR_REASON_DRAINED] = {"drained", "not_hedged"};
  reasons[HR_REASON_LOSER] = {"loser", "dropped"};
  reasons[HR_REASON_NACK] = {"nack", "dropped"};
  reasons[HR_REASON_STALE] = {"stale", "dropped"};
  reasons[HR_REASON_LOSER_FRAGMENT] = {"loser_fragment", "dropped"};
  reasons[HR_REASON_SINK] = {"sink", "dropped"};
  reasons[HR_REASON_CLOCK_STALE] = {"clock_stale", "dropped"};
  reasons[HR_REASON_LATE] = {"late", "dropped"};
  reasons[HR_REASON_SEND_FAILED] = {"send_failed", "dropped"};
  reasons[HR_REASON_NO_FLOW] = {"no_flow", "untouched"};
  reasons[HR_REASON_FRAGMENT_NO_FIRST] = {"fragment_no_first", "untouched"};
  reasons[HR_REASON_MALFORMED] = {"malformed", "untouched"};
  reasons[HR_REASON_NOT_A_REPLY] = {"not_a_reply", "untouched"};
  reasons[HR_REASON_MERGED] = {"merged", "unjudged"};
  reasons[HR_REASON_FLOW_FAILED] = {"flow_failed", "bound"};
  reasons[HR_REASON_FRAGMENTS_FAILED] = {"fragments_failed", "bound"};
  reasons[HR_REASON_CLOCK_KICK_FAILED] = {"clock_kick_failed", "bound"};
  reasons[HR_REASON_INDEX_LOST] = {"index_lost", "bound"};
  reasons[HR_REASON_ANNOUNCE_LENGTH] = {"announce_length", "untouched"};
  reasons[HR_REASON_ANNOUNCE_VERSION] = {"announce_version", "untouched"};
  reasons[HR_REASON_ANNOUNCE_CLUSTER] = {"announce_cluster", "untouched"};
  reasons[HR_REASON_ANNOUNCE_TAG] = {"announce_tag", "untouched"};
  reasons[HR_REASON_ANNOUNCE_ACCEPTED] = {"announce_accepted", "dropped"};
  reasons[HR_REASON_ANNOUNCE_EPOCH] = {"announce_epoch", "dropped"};
  reasons[HR_REASON_ANNOUNCE_ENDPOINT] = {"announce_endpoint", "dropped"};
  reasons[HR_REASON_ANNOUNCE_STATE] = {"announce_state", "dropped"};
  reasons[HR_REASON_ANNOUNCE_STALE] = {"announce_stale", "dropped"};
  return reasons;
}();

}  // namespace

absl::string_view CounterName(int counter) {
  if (counter < 0 || counter >= HR_COUNTER_COUNT) return "";
  return kCounters[counter];
}

absl::string_view ReasonName(int reason) {
  if (reason < 0 || reason >= HR_REASON_COUNT) return "";
  return kReasons[reason].name;
}

absl::string_view ReasonKind(int reason) {
  if (reason < 0 || reason >= HR_REASON_COUNT) return "";
  return kReasons[reason].kind;
}

absl::string_view HealthName(int health) {
  switch (health) {
    case HR_HEALTHY:
      return "healthy";
    case HR_SUSPECT:
      return "suspect";
    case HR_DOWN:
      return "down";
  }
  return "unknown";
}

}  // namespace hedgerow
