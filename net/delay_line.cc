// SPDX-License-Identifier: Apache-2.0
//
// The three kinds; the recipes are in qdisc.h.
#include "net/delay_line.h"

#include <linux/pkt_sched.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "net/qdisc.h"

namespace hedgerow::net {
namespace {

// A second of 100,000 requests/s at a delay of 1 s; a full line is counted by the splitter (delay_line_full).
constexpr uint32_t kLimit_packets = 100'000;
// Where a packet of no leaf goes in htb: nowhere in particular, unheld.
constexpr uint32_t kNoDefault = 0;
static_assert(HR_DELAY_LEAF_BASE + HR_DELAY_LEAVES * HR_DELAY_CLASSES <= 0xffff, "minor numbers have 16 bits");

absl::string_view RootKindOf(DelayLineKind kind) {
  return kind == DelayLineKind::kNetem ? "prio" : ToString(kind);
}

absl::Status Check(const DelayLineOptions& options) {
  const bool classes = options.kind != DelayLineKind::kFq;
  if (options.delay_ns.empty() || (classes && options.delay_ns.size() > kDelayLineClassesMax)) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.delay_ns.size(), " different delays; expected 1 to ", kDelayLineClassesMax));
  }
  const uint64_t longest_ns = classes ? UINT64_MAX : kDelayLineFqMax_ns;
  for (const uint64_t delay_ns : options.delay_ns) {
    if (delay_ns >= kDelayLineMin_ns && delay_ns <= longest_ns) continue;
    return absl::InvalidArgumentError(absl::StrCat("a delay of ", delay_ns, " ns in an ",
                                                   std::string(ToString(options.kind)), " delay line"));
  }
  return absl::OkStatus();
}

absl::Status InstallNetems(netlink::Socket& socket, int ifindex, const DelayLineOptions& options) {
  const int bands = std::max(TCQ_MIN_PRIO_BANDS, static_cast<int>(options.delay_ns.size()));
  absl::Status status = AddPrioRoot(socket, ifindex, bands, 0);
  for (uint32_t i = 0; i < options.delay_ns.size() && status.ok(); ++i) {
    status = AddNetem(socket, ifindex, i + 1, options.delay_ns[i], kLimit_packets);
  }
  return status;
}

absl::Status InstallLeaves(netlink::Socket& socket, int ifindex, const DelayLineOptions& options) {
  absl::Status status = AddHtbRoot(socket, ifindex, kNoDefault);
  for (uint32_t i = 0; i < options.delay_ns.size() * HR_DELAY_LEAVES && status.ok(); ++i) {
    status = AddHtbClass(socket, ifindex, HR_DELAY_LEAF_BASE + i, options.delay_ns[i / HR_DELAY_LEAVES]);
  }
  return status;
}

}  // namespace

absl::string_view ToString(DelayLineKind kind) {
  switch (kind) {
    case DelayLineKind::kNetem:
      return "netem";
    case DelayLineKind::kFq:
      return "fq";
    case DelayLineKind::kHtb:
      return "htb";
  }
  return "?";
}

uint32_t DelayLinePriority(DelayLineKind kind, uint32_t delay_class) {
  switch (kind) {
    case DelayLineKind::kNetem:
      return HR_CLOCK_HANDLE | (1 + delay_class);
    case DelayLineKind::kHtb:
      return HR_CLOCK_HANDLE | (HR_DELAY_LEAF_BASE + delay_class * HR_DELAY_LEAVES);
    case DelayLineKind::kFq:
      break;
  }
  return 0;  // a departure time says it
}

absl::Status InstallDelayLine(int ifindex, const DelayLineOptions& options) {
  if (absl::Status status = Check(options); !status.ok()) return status;
  auto socket = netlink::Socket::Open();
  if (!socket.ok()) return socket.status();
  absl::Status status;
  switch (options.kind) {
    case DelayLineKind::kNetem:
      status = InstallNetems(*socket, ifindex, options);
      break;
    case DelayLineKind::kFq:
      return AddFqRoot(*socket, ifindex, kLimit_packets);
    case DelayLineKind::kHtb:
      status = InstallLeaves(*socket, ifindex, options);
      break;
  }
  if (!status.ok() && !absl::IsAlreadyExists(status)) RemoveDelayLine(ifindex).IgnoreError();
  return status;
}

absl::StatusOr<bool> HasDelayLine(int ifindex, DelayLineKind kind) {
  const auto present = RootQdiscKind(ifindex);
  if (!present.ok()) return present.status();
  return *present == RootKindOf(kind);
}

absl::Status RemoveDelayLine(int ifindex) { return RemoveRootQdisc(ifindex); }

}  // namespace hedgerow::net
