// SPDX-License-Identifier: Apache-2.0
//
// A member's address in the two forms that the kernel part takes. Used by Offloads.

#pragma once

#include <cstring>

#include "bpf/abi/base_abi.h"
#include "cluster/node/net/net_address.h"
#include "cluster/offload/watch.h"
#include "net/ip_address.h"

namespace hedgerow::node {

inline hr_address AddressOf(const NetAddress& address) {
  hr_address out;
  static_assert(sizeof(out) == sizeof(address.bytes));
  std::memcpy(&out, address.bytes.data(), sizeof(out));
  return out;
}

inline offload::Endpoint EndpointOf(const NetAddress& address) {
  return {.address = net::IpAddress::FromBytes(address.bytes).value(), .port = address.port};
}

}  // namespace hedgerow::node
