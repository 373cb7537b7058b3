// SPDX-License-Identifier: Apache-2.0
#include "proxy/start/own_address.h"

#include <algorithm>
#include <string>
#include <vector>

#include "net/netlink/link.h"
#include "net/netlink/route.h"

namespace hedgerow {
namespace {

// Always the same one: 240.0.0.0/4 (RFC 1112) and 100::/64 (RFC 6666), which no host has, with the address's last bits.
std::string VipBehind(const net::IpAddress& own) {
  std::vector<uint8_t> bytes(own.wire().begin(), own.wire().end());
  if (own.is_v4()) {
    bytes[0] |= 0xf0;
  } else {
    std::fill_n(bytes.begin(), 8, 0);
    bytes[0] = 1;
  }
  return net::IpAddress::FromBytes(bytes)->ToString();
}

}  // namespace

void MoveOwnAddresses(v1::Config& config) {
  if (std::none_of(config.services().begin(), config.services().end(),
                   [](const auto& each) { return each.in_place(); }))
    return;
  const auto addresses = net::ListAddresses();
  if (!addresses.ok()) return;  // the look at the network says why
  const auto ipvs = net::FindLink("kube-ipvs0");
  for (v1::Service& service : *config.mutable_services()) {
    const auto vip = net::IpAddress::Parse(service.vip());
    const bool own = service.in_place() && vip.ok() &&
                     std::any_of(addresses->begin(), addresses->end(), [&](const net::AddressInfo& each) {
                       return each.address == *vip && !(ipvs.ok() && each.ifindex == ipvs->ifindex);
                     });
    if (!own) continue;
    service.add_also_at(service.vip());
    service.set_vip(VipBehind(*vip));
    service.set_in_place(false);
  }
}

}  // namespace hedgerow
