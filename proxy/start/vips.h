// SPDX-License-Identifier: Apache-2.0
//
// Whether the kernel gives packets for the VIPs to the proxy interface, and those for addresses of this host that a
// service is asked at as well (docs/adr/0063): looked at before anything is made, and whenever the network changes.

#pragma once

#include <set>
#include <string>
#include <vector>

#include "proxy/api/config.pb.h"
#include "net/netlink/route.h"
#include "proxy/problems/problem.h"
#include "proxy/start/topology.h"

namespace hedgerow {

// A VIP that is this host's own address (`in_place: true`, docs/adr/0063): the kernel delivers what comes to it before
// any route, so the service gets a VIP that no host has, and the address stands in `also_at`. Called wherever a
// configuration is read to be served, planned or judged on this machine. An address that `before` has moved is moved
// again, also while the host is without it.
void MoveOwnAddresses(v1::Config& config, const v1::Config& before = {});
// That VIP, always the same one: 240.0.0.0/4 (RFC 1112) and 100::/64 (RFC 6666), which no host has, with the address's
// bits, those before folded into them. CheckVips() refuses two services of one.
std::string VipBehind(const net::IpAddress& own);

// Does the kernel give packets for the VIPs to the proxy interface, from whatever local source? `proxy_ifindex` 0: it
// is not made yet, and a routing rule that would keep packets from it is looked for. At most kMaxSources addresses of a
// family are tried; a rule for a further one is not found. Each VIP once, and not those of which a problem is `known`.
// `leading`: the routes that lead by uplinks, where the splitter takes the packets as well. Rules for some senders (a
// mark, a user) refuse no start, as those may be no clients: they are looked at for what runs, and may lead by the
// uplinks of `bound` too, the routes of clients that are bound to an uplink.
std::vector<Problem> CheckVips(const v1::Config& config, const NetworkView& network, int proxy_ifindex,
                               std::set<net::IpAddress> known = {}, const std::vector<net::VipRoute>& leading = {},
                               const std::vector<net::VipRoute>& bound = {});
inline constexpr size_t kMaxSources = 64;

// The sockets at it, as a person looks for them: "udp 0.0.0.0:53 is held by pid 4711 (dnsmasq), user root"; "": none.
std::string FindHolders(const net::IpAddress& address, uint16_t port);

}  // namespace hedgerow
