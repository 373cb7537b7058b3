// SPDX-License-Identifier: Apache-2.0
//
// The delay line of engine qdisc: a queueing discipline on one end of a veth of ours that holds each clone of a
// request back for its service's delay. The published technique (a clone of every request in netem), and two
// more ways for kernels without it. The BPF side is bpf/proxy/delay_line.bpf.h. Called by the daemon, and by
// doctor to try it.
//
// Acts in the network namespace of the calling thread. Needs CAP_NET_ADMIN.
#ifndef HEDGEROW_NET_DELAY_LINE_H_
#define HEDGEROW_NET_DELAY_LINE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bpf/abi/request_abi.h"

namespace hedgerow::net {

enum class DelayLineKind { kNetem, kFq, kHtb };
absl::string_view ToString(DelayLineKind kind);  // "netem", "fq", "htb"

struct DelayLineOptions {
  DelayLineKind kind = DelayLineKind::kNetem;
  // The delays of the services, each once; its place is the service's delay class. fq has no classes: any delay
  // up to kDelayLineFqMax_ns.
  std::vector<uint64_t> delay_ns;
};

inline constexpr size_t kDelayLineClassesMax = HR_DELAY_CLASSES;
inline constexpr uint64_t kDelayLineMin_ns = 100'000;
// skb->priority carries the time in 32 bits.
inline constexpr uint64_t kDelayLineFqMax_ns = 4'000'000'000;

// What skb->priority must be for a packet of this delay class, as the splitter sets it; of htb, the first
// leaf's.
uint32_t DelayLinePriority(DelayLineKind kind, uint32_t delay_class);

// NotFound: the kernel lacks the kind. On any error no qdisc is left. htb's 1,024 leaves for each delay take
// some 70 ms.
absl::Status InstallDelayLine(int ifindex, const DelayLineOptions& options);
absl::StatusOr<bool> HasDelayLine(int ifindex, DelayLineKind kind);
absl::Status RemoveDelayLine(int ifindex);

}  // namespace hedgerow::net

#endif  // HEDGEROW_NET_DELAY_LINE_H_
