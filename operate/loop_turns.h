// SPDX-License-Identifier: Apache-2.0
//
// How often the event loop of a daemon has turned, and how often for nothing: a loop that turns without work
// takes a processor, and no profile by function says so. Counted by EventLoop and by a node's loop; each
// daemon's metrics page has it as ..._loop_turns_total.

#pragma once

#include <cstdint>

namespace hedgerow {

struct LoopTurns {
  void Count(bool did_work) { ++(did_work ? worked : idle); }

  uint64_t worked = 0;
  uint64_t idle = 0;  // nothing had come
};

}  // namespace hedgerow
