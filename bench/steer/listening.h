// SPDX-License-Identifier: Apache-2.0
//
// The sockets of a collector: those that a supervisor hands down (LISTEN_FDS, sd_listen_fds(3)), or its own. Used by
// hr-steer-collector.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "bench/load/udp_socket.h"

namespace hedgerow::bench {

struct Listening {
  int fd = -1;
  bool tcp = false;
};

// Those of LISTEN_FDS, whatever their order; none where the variable is absent or meant for another process.
absl::StatusOr<std::vector<Listening>> InheritedSockets();

struct OwnSockets {
  Address address;
  bool udp = true;
  bool tcp = true;
  bool reuseport = false;
  int receive_buffer = 4 << 20;  // of UDP
};
absl::StatusOr<std::vector<Listening>> OpenSockets(const OwnSockets& wanted);

}  // namespace hedgerow::bench
