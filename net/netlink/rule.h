// SPDX-License-Identifier: Apache-2.0
//
// The host's routing rules, as they are read: their text for messages, and the senders that they tell apart. Used by
// route.cc and by the check that packets to VIPs reach the proxy (proxy/start/topology.cc).
#pragma once

#include <linux/fib_rules.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net/ip_address.h"
#include "net/netlink/netlink.h"
#include "net/netlink/route.h"
#include "net/networks.h"

namespace hedgerow::net {

// A rule for some senders only: by mark, user, protocol, ports or type of service, by their network, or by the
// interface that they are bound to.
struct SenderRule {
  int family = 0;
  std::optional<Network> from{};                // of those senders; empty: any
  std::string device{};                         // that they are bound to; empty: any, and none
  Sender sender{};                              // one of those senders; without a destination port
  uint16_t first_port = 0, last_port = 0xffff;  // destination ports that the rule is for

  // Such as "user 1000, mark 0x7".
  std::string Describe() const;
};
// Rules for what comes in by an interface, and for all senders but some, have no single sender and are left out.
absl::StatusOr<std::vector<SenderRule>> ListSenderRules();

// Every rule of a family.
absl::Status ForEachRule(int family, const std::function<void(const fib_rule_hdr&, const netlink::Attributes&)>& visit);
// The rules of a family that lead to a table, as `ip rule` shows them, at most three.
std::string RulesTo(int family, uint32_t table);

}  // namespace hedgerow::net
