// SPDX-License-Identifier: Apache-2.0
//
// A slot: its part in the table, and, as a supervisor that made its sockets sees it, a generation of these and the
// worker that has them.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "net/unique_fd.h"
#include "steer/kernel_group.h"
#include "steer/process.h"

namespace hedgerow::steer {

// A slot's part in the table.
struct Share {
  double weight = 1;
  bool drained = false;
  int64_t down_since_ns = 0;  // without a worker (CLOCK_MONOTONIC)
};

enum class Role {
  kServing,  // the slot's sources meet it
  kNext,     // it will take the place of the one that serves, once it is ready
  kFormer,   // its sources meet another one; it ends its sessions, and then itself
};

// A pair of sockets with its worker: of each slot one serves. Times are of CLOCK_MONOTONIC; 0: never.
struct Slot : Share {
  int number = 0;
  int generation = 0;
  Role role = Role::kServing;
  std::array<net::UniqueFd, 2> sockets{};  // by Transport

  Process worker{};  // pid 0: none
  net::UniqueFd pidfd{};
  int64_t started_ns = 0;
  int64_t heard_ns = 0;  // the last heartbeat
  bool heard = false;    // since this worker started
  bool is_silent = false;
  bool unwatched = false;     // its end would not be noticed: tried again
  int64_t start_at_ns = 0;    // the next one
  int64_t leave_by_ns = 0;    // deadline of a former worker for reading its queue
  int64_t terminated_ns = 0;  // of the signal by which it was asked to end
  bool restart_asked = false;
  int failures = 0;
  uint32_t restarts = 0;
  std::string last_exit{};

  int fd(Transport transport) const { return sockets[static_cast<size_t>(transport)].get(); }
  net::UniqueFd& socket(Transport transport) { return sockets[static_cast<size_t>(transport)]; }
  int place() const { return PlaceOf(number, generation); }
  bool has_worker() const { return worker.pid != 0; }
};

}  // namespace hedgerow::steer
