// SPDX-License-Identifier: Apache-2.0
//
// For tests with datagrams on loopback: the time that a socket is asked with, sockets on any port, and
// addresses for a node that has yet to bind them.

#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "cluster/node/net/net_address.h"
#include "cluster/node/net/udp_socket.h"

namespace hedgerow::node {

inline uint64_t Now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// Port 0 cannot be written in a configuration; tests take any free one.
inline std::unique_ptr<UdpSocket> AnySocket(size_t buffer_bytes = 1 << 20, size_t datagram_max_bytes = 2048) {
  NetAddress address = NetAddress::Parse("127.0.0.1:1").value();
  address.port = 0;
  return UdpSocket::Bind(address, buffer_bytes, datagram_max_bytes).value();
}

// An address for a node that no other process has, in UDP and TCP. All of 127.0.0.0/8 is loopback, so each
// process takes one of its own. A port of 127.0.0.1 that is found free may be taken by the time it is bound.
inline NetAddress FreeAddress() {
  static uint16_t port = 20'000;
  const auto pid = static_cast<uint32_t>(getpid());
  return NetAddress::Parse(
             absl::StrCat("127.", 64 + (pid >> 16 & 63), ".", pid >> 8 & 255, ".", pid & 255, ":", ++port))
      .value();
}

}  // namespace hedgerow::node
