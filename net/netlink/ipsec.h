// SPDX-License-Identifier: Apache-2.0
//
// The kernel's outgoing IPsec policies (XFRM, RFC 4301 section 4.4.1): which packets of this host must leave encrypted,
// or not at all. The proxy's packets leave by bpf_redirect_neigh, which asks no policy; so a backend that one names is
// refused. Called at up, at each look at the network, and by plan and doctor.
//
// Acts in the network namespace of the calling thread; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "net/ip_address.h"
#include "net/networks.h"

namespace hedgerow::net {

struct IpsecPolicy {
  Network source{}, destination{};
  uint8_t protocol = 0;           // IPPROTO_*; 0: all
  uint16_t destination_port = 0;  // host byte order; with the mask 0: all
  uint16_t destination_port_mask = 0;
  int ifindex = 0;        // 0: whatever interface it leaves by
  uint32_t priority = 0;  // the smallest one that selects a packet counts
  bool passes = false;    // neither encrypts nor blocks: an exception from those behind it

  // As `ip xfrm policy` has it: "src 0.0.0.0/0 dst 10.77.0.0/24".
  std::string ToString() const;
};

// Those for packets that leave, but those for a mark or for an XFRM interface, which none of ours has; the first that
// selects a packet counts. Empty where the kernel has no XFRM. PermissionDenied without CAP_NET_ADMIN.
absl::StatusOr<std::vector<IpsecPolicy>> ListIpsecPolicies();

// The policy that a UDP or TCP packet would have to obey; null: none. The source port is any: a client has many.
const IpsecPolicy* FindIpsecPolicy(const std::vector<IpsecPolicy>& policies, const IpAddress& source,
                                   const IpAddress& destination, uint16_t destination_port, int ifindex);

}  // namespace hedgerow::net
