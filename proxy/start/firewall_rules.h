// SPDX-License-Identifier: Apache-2.0
//
// This host's firewall rules, as text, and which of them do not see what they were written for: in rules a proxied
// packet carries a VIP, and passes by the interface that the VIP's route leads by. Used by the daemon and by doctor.
// The functions on text are pure; FirewallRules() runs nft and iptables-legacy-save, and MayForwardTo() reads a setting
// of the kernel.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "net/ip_address.h"
#include "proxy/api/config.pb.h"

namespace hedgerow {

// Lines of `nft list ruleset` or `iptables-save` in which one of these addresses stands, alone or as a prefix of its
// full length, without the blanks around them.
std::vector<std::string> RulesThatName(absl::string_view rules, const std::vector<net::IpAddress>& addresses);

// Lines in which the interface `uplink` stands as the one by which packets come or leave, by its name, by a pattern
// (`eth*`, `eth+`) or in a named set, where neither the line names `own` as well nor another line says the same of
// `own`.
std::vector<std::string> RulesThatNameAlone(absl::string_view rules, const std::string& uplink, const std::string& own);

// Those of them without which packets that this host forwards by the uplink are not served: what gives them another
// source, and what lets them pass (`accept` in a chain that forwards, or in one that others jump to). Rules that say
// "not this interface" are none.
std::vector<std::string> RulesForForwarded(absl::string_view rules, const std::string& uplink, const std::string& own);

// Whether this host may forward packets to the service that the proxy serves: from the networks of its `clients`, or of
// IPv4 senders that the host hides behind an address of its own (docs/adr/0056).
bool MayForwardTo(const v1::Service& service);

// The rules of this network namespace. PermissionDenied without CAP_NET_ADMIN; NotFound where neither program is
// installed, or takes longer than three seconds, or prints more than 16 MiB. IPv4 and IPv6, of nftables and of the
// older tables that the kernel holds.
absl::StatusOr<std::string> FirewallRules();

}  // namespace hedgerow
