// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The network namespace of the test process, made once, with the interfaces a specification names: the proxy
// interface, the clock's link and an uplink. The process never goes back: it ends, and everything is gone with
// it.
#pragma once

#include <memory>
#include <string>

#include "bpf/tests/sniffer.h"
#include "net/netlink/link.h"

namespace hedgerow::packets {

struct TestLinks {
  std::string problem;  // why there is no namespace; "" = all is well
  net::LinkInfo proxy, proxy_peer;
  net::LinkInfo clock_out, clock_in;
  net::LinkInfo uplink, wire;              // `wire` is the uplink's other end
  std::unique_ptr<Sniffer> clock_sniffer;  // at the clock's inner end, where clones arrive

  static const TestLinks &Get();
};

}  // namespace hedgerow::packets
