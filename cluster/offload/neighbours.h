// SPDX-License-Identifier: Apache-2.0
//
// Where the broadcast finds each member on the link: the interface, and the MAC of the member or of the gateway
// that leads to it, as the kernel's routes and neighbour tables say (ARP, NDP). Keeps BpfKernel's members in
// step; what is not known is asked for, and until it is known the member is not in the broadcast's mask: the
// process sends to it by itself. On the loop's thread; Refresh takes some 100 us.

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bpf/node/raft/node_maps_abi.h"
#include "cluster/offload/bpf_kernel.h"
#include "net/ip_address.h"
#include "net/netlink/netlink.h"

namespace hedgerow::offload {

class Neighbours {
 public:
  // `kernel` outlives this.
  static absl::StatusOr<Neighbours> Open(BpfKernel& kernel);

  // The member at this slot; its next hop is looked up by the next Refresh. Node 0: no member.
  void SetMember(uint32_t slot, uint32_t node, const hr_address& address, uint16_t port);

  // Looks at routes and neighbours again, and asks for those that are missing. At start, about once a second,
  // and when events() is readable.
  absl::Status Refresh();

  // Readable when a neighbour or a route has changed (level-triggered; Refresh drains it).
  int events() const { return events_.fd(); }

 private:
  Neighbours(BpfKernel& kernel, net::netlink::Socket events) : kernel_(&kernel), events_(std::move(events)) {}

  struct NextHop {
    int ifindex = 0;
    net::IpAddress address{};
  };
  std::optional<NextHop> FindNextHop(const hr_node_peer& peer) const;
  absl::Status ReadTable();
  void Apply(uint32_t slot, const std::optional<NextHop>& hop);

  struct Entry {
    int ifindex = 0;
    net::IpAddress address{};
    std::array<uint8_t, 6> mac{};
  };

  BpfKernel* kernel_;
  net::netlink::Socket events_;
  std::vector<Entry> table_{};
};

}  // namespace hedgerow::offload
