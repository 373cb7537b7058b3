// SPDX-License-Identifier: Apache-2.0
//
// The lists of counters and reasons (bpf/abi/counters_abi.h, reasons_abi.h) as tables, for the CLI, metrics and
// documents, and the sums by which every request is accounted for.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "bpf/abi/stats_abi.h"

namespace hedgerow {

struct CounterRow {
  int number;
  absl::string_view name;    // snake_case, such as "won_by_first"
  absl::string_view family;  // "total", "outcome", "leaders", "hedging" or "packets"
  absl::string_view help;    // Markdown
};
struct ReasonRow {
  int number;
  absl::string_view name;          // snake_case, such as "retransmission"
  absl::string_view kind;          // "forwarded", "not_hedged", "dropped", "untouched", "unjudged" or "bound"
  absl::string_view when, remedy;  // Markdown
};

#define HR_COUNTER_ROW(number, enumerator, name, family, help) {number, #name, #family, help},
#define HR_REASON_ROW(number, enumerator, name, kind, when, remedy) {number, #name, #kind, when, remedy},
inline constexpr CounterRow kCounters[] = {HR_COUNTERS(HR_COUNTER_ROW)};
inline constexpr ReasonRow kReasons[] = {HR_REASONS(HR_REASON_ROW)};
#undef HR_COUNTER_ROW
#undef HR_REASON_ROW

// Ascending and below `count`: a number given twice does not compile.
template <typename Row, int rows>
constexpr bool NumbersAreUnique(const Row (&all)[rows], int count) {
  for (int i = 1; i < rows; ++i) {
    if (all[i].number <= all[i - 1].number) return false;
  }
  return all[rows - 1].number < count;
}
static_assert(NumbersAreUnique(kCounters, HR_COUNTER_COUNT));
static_assert(NumbersAreUnique(kReasons, HR_REASON_COUNT));

// Empty when the number has no meaning.
constexpr absl::string_view ReasonName(int number) {
  for (const ReasonRow& reason : kReasons) {
    if (reason.number == number) return reason.name;
  }
  return "";
}

// The requests that have ended, one outcome each. With those in flight they are HR_REQUESTS.
constexpr uint64_t Outcomes(const hr_stats& stats) {
  uint64_t sum = 0;
  for (const CounterRow& counter : kCounters) {
    if (counter.family == "outcome") sum += stats.counters[counter.number];
  }
  return sum;
}

}  // namespace hedgerow
