// SPDX-License-Identifier: Apache-2.0
//
// The table of a running group, and how it changes without a source meeting two workers: sources with open connections
// in buckets that move are pinned to their slot before the table changes, and unpinned when their last connection has
// closed (docs/adr/0052). Owned by the supervisor; one thread.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "steer/kernel_group.h"
#include "steer/settings.h"
#include "steer/table.h"

namespace hedgerow::steer {

using TableEntries = std::array<hr_steer_entry, HR_STEER_BUCKETS>;

// The slot that takes a bucket's packets now; -1: none does.
int SlotOf(const hr_steer_entry& entry);
// HR_STEER_SLOTS weights; 0 for a number without a slot.
using Weights = std::vector<double>;

class GroupTable {
 public:
  struct Moved {
    uint32_t buckets = 0;
    uint32_t pinned = 0;
  };

  // The first table of a new group.
  static absl::StatusOr<TableEntries> Initial(const Weights& weights, hr_steer_empty policy);

  // Reads the kernel's table, which was made from `weights`; the slots that are vacant in it are empty. Completes a
  // change that a dead supervisor began. `kernel` must outlive the result. `records`: sources stay with the slot of
  // their open connections.
  static absl::StatusOr<GroupTable> Open(KernelGroup* kernel, const Listen& listen, bool records, hr_steer_empty policy,
                                         Weights weights);

  // InvalidArgument: no table has these shares (NewHome), and the present one stays.
  absl::StatusOr<Moved> SetWeights(const Weights& weights);
  // The slot's sources meet the sockets of this generation from now on. `ends`: the former worker is asked to end.
  absl::Status SetGeneration(int slot, int generation, bool ends);
  // HR_STEER_SLOTS slots: those without a worker. Pins to a slot that becomes empty end.
  absl::Status SetEmpty(const std::vector<bool>& empty);

  // Ends the pins of sources without an open connection. Call it several times a second while pins() is not 0.
  absl::Status Poll();
  uint32_t pins() const { return pins_; }

  bool IsEmpty(int slot) const { return empty_[static_cast<size_t>(slot)]; }
  // Each slot's buckets, empty or not.
  uint32_t BucketsOf(int slot) const;

 private:
  GroupTable(KernelGroup* kernel, const Listen& listen, bool records, hr_steer_empty policy)
      : kernel_(kernel), listen_(listen), records_(records), policy_(policy) {}

  // `keeps`: flows stay where they began (KernelGroup::WriteTable).
  absl::StatusOr<uint32_t> Write(const TableEntries& wanted, bool keeps);
  // A source for which there is no place goes by the table.
  absl::StatusOr<uint32_t> PinMoving(const TableEntries& wanted);
  Choice ChoiceOf(const net::IpAddress& peer) const;
  absl::Status CountPins();

  KernelGroup* kernel_;
  Listen listen_;
  bool records_;
  hr_steer_empty policy_;
  DeviceIndex devices_{};
  Home home_{};
  Weights weights_{};
  std::vector<bool> empty_ = std::vector<bool>(HR_STEER_SLOTS);
  TableEntries entries_{};
  Generations generations_{};
  uint32_t pins_ = 0;
  // A new connection may be absent from one dump: a pin ends after two dumps without a connection.
  std::set<std::array<uint64_t, 3>> closed_before_{};
};

}  // namespace hedgerow::steer
