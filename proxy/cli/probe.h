// SPDX-License-Identifier: Apache-2.0
//
// One datagram to each of several addresses at a time, from a socket each, and what came back. Used by `hedgerow
// check`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "net/ip_address.h"
#include "net/socket_address.h"

namespace hedgerow::cli {

struct ProbeTarget {
  net::IpAddress address;
  uint16_t port = 0;
  std::string payload;
  bool past_translation = false;  // `also_at` of some service may list it: asked itself by a mark, or not at all
  // Called before each datagram, with the socket's own end. False: it is not sent (kSilent).
  std::function<bool(const net::IpAddress& client, uint16_t port)> prepare{};
};

struct ProbeResult {
  enum class Kind { kReply, kFromElsewhere, kError, kUnsent, kSilent, kNotAsked };
  Kind kind = Kind::kSilent;
  int error = 0;           // errno of kError (what ICMP told) and kUnsent
  int64_t elapsed_ns = 0;  // until the reply or the error
  std::string reply;       // its first bytes, as many as a datagram has at most
  net::SocketEnd from{};   // kFromElsewhere: where the reply came from, which is not what was asked
};

// Targets that stay silent for `timeout` are asked a second time: one datagram may be lost by chance, and a server of
// several addresses may have answered from another one, which a connected socket refuses. Without `prepare` the second
// socket is not connected.
std::vector<ProbeResult> ProbeAll(const std::vector<ProbeTarget>& targets, absl::Duration timeout);

}  // namespace hedgerow::cli
