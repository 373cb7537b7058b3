// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// What must hold of the data plane's state whenever no program is running: the accounting identity, and that
// every request and every parked copy is in exactly one place (in use and in the wheel, or free and in a
// CPU's cache or the shared stack). Every packet test ends with these checks; invariants_test.cc shows each of them
// fail.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bpf/abi/request_abi.h"
#include "bpf/abi/stats_abi.h"

namespace hedgerow::packets {

// A copy of the state, so that the checks are pure and can be shown wrong states.
struct StateView {
  struct Service {
    std::string name;
    hr_stats stats{};
  };
  std::vector<Service> services;
  hr_wheel wheel{};
  std::vector<hr_request> requests;                       // index 0 is nobody
  std::vector<std::pair<uint32_t, uint64_t>> scoreboard;  // set, reference
  std::vector<uint32_t> free_requests, free_parked;       // in the shared stacks
  std::vector<uint32_t> kept_requests, kept_parked;       // free, of the CPUs
  struct Backend {
    uint32_t service, place;
    int32_t in_flight;
  };
  std::vector<Backend> backends;
  std::vector<uint64_t> held_by_service, held_by_client;  // those that there are
};

// One line for each thing that is wrong; empty when all is well.
std::vector<std::string> BrokenInvariants(const StateView &state);

}  // namespace hedgerow::packets
