// SPDX-License-Identifier: Apache-2.0
//
// A slot: its part in the table, its worker, and its sockets, which are a running daemon's or the supervisor's own.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "net/unique_fd.h"
#include "steer/kernel_group.h"
#include "steer/process.h"

namespace hedgerow::steer {

// A socket of a running daemon.
struct AdoptedSocket {
  uint64_t cookie = 0;  // SO_COOKIE; 0: there is none
  pid_t holder = 0;     // the process that has the descriptor
  int descriptor = -1;
};

enum class Role {
  kServing,  // the slot's sources meet it
  kNext,     // it will take the place of the one that serves, once it is ready
  kFormer,   // its sources meet another one; it ends its sessions, and then itself
};

// A pair of sockets with its worker: of each slot one serves. Times are of CLOCK_MONOTONIC; 0: never.
struct Slot {
  int number = 0;
  int generation = 0;
  Role role = Role::kServing;
  double weight = 1;
  bool drained = false;
  Process worker{};  // pid 0: none; of an adopted slot the last one
  uint32_t restarts = 0;
  std::string last_exit{};
  int64_t started_ns = 0;     // of the worker
  int64_t down_since_ns = 0;  // without a worker, or without a socket that it reads; 0: it has both
  int64_t heard_ns = 0;       // the last heartbeat
  bool heard = false;         // since this worker started
  bool ready = false;         // this worker has sent READY=1
  bool says_ready = false;    // its workers send READY=1, so the next ones are waited for until they do
  bool is_silent = false;
  bool came_back = false;  // an adopted one: it serves again, because the next one ended
  AdoptedSocket udp{}, tcp{};

  const AdoptedSocket& socket(Transport transport) const { return transport == Transport::kUdp ? udp : tcp; }
  AdoptedSocket& socket(Transport transport) { return transport == Transport::kUdp ? udp : tcp; }
  bool empty() const { return udp.cookie == 0 && tcp.cookie == 0; }
  int place() const { return PlaceOf(number, generation); }
};

// One of a supervisor that makes the sockets and starts the workers.
struct MadeSlot : Slot {
  std::array<net::UniqueFd, 2> sockets{};  // by Transport
  net::UniqueFd pidfd{};
  bool unwatched = false;     // its end would not be noticed: tried again
  int64_t start_at_ns = 0;    // the next worker
  int64_t leave_by_ns = 0;    // a former worker is asked to end, and has read its queue and answered by then
  int64_t terminated_ns = 0;  // of the signal by which it was asked to end
  bool restart_asked = false;
  int failures = 0;

  int fd(Transport transport) const { return sockets[static_cast<size_t>(transport)].get(); }
  net::UniqueFd& socket(Transport transport) { return sockets[static_cast<size_t>(transport)]; }
  bool has_worker() const { return worker.pid != 0; }
};

}  // namespace hedgerow::steer
