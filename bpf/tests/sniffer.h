// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// Sees the packets that arrive at an interface, with their mark, and puts packets onto one: an AF_PACKET
// socket. BPF_PROG_TEST_RUN does not carry out redirects, but bpf_clone_redirect really sends; this is where
// such clones are caught. Also the other end of the live tests' uplink.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "bpf/tests/packet.h"
#include "net/unique_fd.h"

namespace hedgerow::packets {

struct Captured {
  Bytes packet;
  uint32_t mark = 0;
  bool checksum_ready = true;  // false: CHECKSUM_PARTIAL, left to a device
};

class Sniffer {
 public:
  // nullptr when there is no such interface or no privilege; errno says which.
  static std::unique_ptr<Sniffer> Open(int ifindex);

  // Packets that came in at the interface. Waits up to `timeout_ms` for the first `expected`, then takes what
  // is there.
  std::vector<Captured> Take(size_t expected, int timeout_ms);
  bool Send(const Bytes &packet);

 private:
  Sniffer(net::UniqueFd socket, int ifindex) : socket_(std::move(socket)), ifindex_(ifindex) {}
  bool TakeOne(std::vector<Captured> &into);

  net::UniqueFd socket_;
  int ifindex_;
};

}  // namespace hedgerow::packets
