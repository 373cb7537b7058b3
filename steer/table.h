// SPDX-License-Identifier: Apache-2.0
//
// Which slot has which bucket. Pure. A slot's share is its weight's part of the 1,024 buckets, exact to one
// bucket; a change of weights or of the number of slots moves the fewest buckets that reach the new shares.
// Which buckets move follows from a rendezvous hash (Thaler and Ravishankar, "Using name-based mappings to
// increase hit rates", 1998), so that a slot that comes back takes its own ones first.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "bpf/abi/steer_abi.h"

namespace hedgerow::steer {

using Home = std::array<uint8_t, HR_STEER_BUCKETS>;  // bucket -> slot

// weights[slot], at least 0 and finite; 0: the slot gets no bucket (drained, or not there). InvalidArgument
// without a positive weight, with more than HR_STEER_SLOTS slots, or where a positive weight's share is less
// than half a bucket.
absl::StatusOr<Home> NewHome(absl::Span<const double> weights);
absl::StatusOr<Home> MoveHome(const Home& home, absl::Span<const double> weights);

// How many buckets each slot is due: the largest-remainder method, which gives each slot its exact share
// rounded down or up.
absl::StatusOr<std::vector<int>> Shares(absl::Span<const double> weights);

// What the kernel is given. `empty[slot]` are slots without a worker for the stated time: their entries are
// vacant, and their sockets may stay where they are. With `policy` HR_STEER_OTHER a bucket of an empty slot
// goes to the first slot of the bucket's rendezvous order that is neither empty nor without weight; both transports
// alike.
std::array<hr_steer_entry, HR_STEER_BUCKETS> Entries(const Home& home, absl::Span<const double> weights,
                                                     const std::vector<bool>& empty, hr_steer_empty policy);

}  // namespace hedgerow::steer
