// SPDX-License-Identifier: Apache-2.0
//
// Sources: addresses counted from a first one, and sockets bound to them. The addresses need not be configured one by
// one: a local route for their network is enough (`ip route add local 10.78.0.0/16 dev lo`). Used by hr-steer-load.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "bench/load/udp_socket.h"
#include "net/unique_fd.h"

namespace hedgerow::bench {

// The `number`-th address from `first`, counted in its last four bytes; the port is 0. OutOfRange where they overflow.
absl::StatusOr<Address> SourceAddress(const Address& first, uint32_t number);

// A non-blocking socket, bound to the source's address and connected to `target` (TCP: the connection is under way).
absl::StatusOr<net::UniqueFd> ConnectFrom(const Address& source, const Address& target, bool tcp);

// epoll_ctl(2) with `data` for the event; whether it worked.
bool Watch(int epoll, int operation, int fd, uint32_t events, uint64_t data);

// As many descriptors as the process may have; ResourceExhausted where `wanted` are more.
absl::Status RaiseFileLimit(uint64_t wanted);

}  // namespace hedgerow::bench
