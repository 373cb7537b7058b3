// SPDX-License-Identifier: Apache-2.0
//
// The queueing disciplines that hold our packets back, over rtnetlink: what the clock (clock_qdisc.h) is built of. One
// root qdisc with the handle 1: on an interface of ours.
//
// Acts in the network namespace of the calling thread. Needs CAP_NET_ADMIN. NotFound: the kernel lacks the
// kind. AlreadyExists: the interface has a root qdisc with our handle.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/netlink/netlink.h"

namespace hedgerow::net {

inline constexpr uint32_t kQdiscHandle = 0x10000;  // 1:

absl::Status AddHtbRoot(netlink::Socket& socket, int ifindex, uint32_t default_minor);
// A class 1:minor that lets its first packet pass at once and each further one, of any size up to 1,600 bytes,
// a period after the one before.
absl::Status AddHtbClass(netlink::Socket& socket, int ifindex, uint32_t minor, uint64_t period_ns);

// Lets each packet leave at the time that its skb carries.
absl::Status AddFqRoot(netlink::Socket& socket, int ifindex, uint32_t limit_packets);

// The kind of the root qdisc with our handle; "" when there is none.
absl::StatusOr<std::string> RootQdiscKind(int ifindex);
// Removes it, and every packet in it. OK when there is none.
absl::Status RemoveRootQdisc(int ifindex);

}  // namespace hedgerow::net
