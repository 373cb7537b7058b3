// SPDX-License-Identifier: Apache-2.0
//
// The kernel clock's pendulum: a qdisc on one end of the clock's veth that holds one circulating packet back
// between its laps. With htb there is a class per period, and the BPF program chooses the class of
// each lap by skb->priority; it works on every kernel we know. With fq a TC program in front of the qdisc
// gives the packet its departure time, which is exact. Called by the daemon when it makes the clock's veth, and
// by doctor to try it.
//
// Acts in the network namespace of the calling thread. Needs CAP_NET_ADMIN.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hedgerow::net {

enum class ClockKind { kHtb, kFq };
absl::string_view ToString(ClockKind kind);  // "htb", "fq"

// What skb->priority must be for a lap of period number `index` (0 = the first of ClockQdiscOptions), with htb: the
// class 1:(10+index). A veth crossing sets the priority to 0, so the program sets it anew at every lap.
constexpr uint32_t ClockPriority(uint32_t index) { return 0x10000u | (10u + index); }

struct ClockQdiscOptions {
  ClockKind kind = ClockKind::kHtb;
  // fq has no periods of its own. Real periods are longer, by the timer's and the soft interrupt's latency.
  // Measured on a 2-core virtual machine, 6.18: see clock_qdisc_test.cc, which prints them.
  std::vector<uint64_t> period_ns = {100'000, 1'000'000, 10'000'000};
  // Where a packet with another priority goes: a class of its own, never dropped, and slow enough that a clock
  // packet that lost its priority cannot become a storm.
  uint64_t default_period_ns = 1'000'000;
};

inline constexpr uint64_t kClockPeriodMin_ns = 10'000;
inline constexpr uint64_t kClockPeriodMax_ns = 1'000'000'000;
inline constexpr size_t kClockPeriodsMax = 6;

// Makes the qdisc and its classes. A class of htb lets its first packet pass at once and each further one a
// period after the one before. AlreadyExists when the interface has a root qdisc with our handle, NotFound when the
// kernel lacks the kind. On any error no qdisc is left.
absl::Status InstallClockQdisc(int ifindex, const ClockQdiscOptions& options);
// Is there a clock's root qdisc of this kind?
absl::StatusOr<bool> HasClockQdisc(int ifindex, ClockKind kind);
// Removes the root qdisc, and with it a waiting clock packet: the clock stops. OK when there is none.
absl::Status RemoveClockQdisc(int ifindex);

}  // namespace hedgerow::net
