// SPDX-License-Identifier: Apache-2.0
#include "proxy/daemon/vip_routes.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "net/netlink/route.h"
#include "net/networks.h"
#include "operate/log.h"
#include "proxy/start/firewall_rules.h"

namespace hedgerow {

std::string RulesToLookAt(const v1::Config& config) {
  const bool forwards = std::any_of(config.services().begin(), config.services().end(), MayForwardTo);
  if (config.vip_route() != v1::VIP_ROUTE_AUTO || !forwards) return "";
  absl::StatusOr<std::string> rules = FirewallRules();
  if (!rules.ok()) LogInfo("the firewall's rules are not looked at: ", std::string(rules.status().message()));
  return rules.ok() ? *std::move(rules) : "";
}

std::string RuleForForwarded(const v1::Config& config, const Topology& topology, const std::string& rules) {
  std::set<int> clients_by;
  for (const v1::Service& service : config.services()) {
    for (const std::string& text : service.clients()) {
      const absl::StatusOr<net::Network> network = net::Network::Parse(text);
      const auto route =
          network.ok() ? net::LookUpRoute(network->address) : absl::StatusOr<net::RouteLookup>(network.status());
      if (route.ok() && route->reach == net::Reach::kRouted) clients_by.insert(route->ifindex);
    }
  }
  for (const auto& [ifindex, link] : topology.uplinks) {
    if (clients_by.contains(ifindex)) continue;
    const std::vector<std::string> naming = RulesForForwarded(rules, link.name, config.interface());
    if (!naming.empty()) return absl::StrCat("the rule `", naming.front(), "` names ", link.name);
  }
  return "";
}

}  // namespace hedgerow
