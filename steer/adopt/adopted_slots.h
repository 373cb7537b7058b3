// SPDX-License-Identifier: Apache-2.0
//
// A group over the sockets of a running daemon: puts them into slots, attaches the programs, and follows the daemon. A
// worker that restarts with new sockets takes a slot that has become empty; one whose sockets its parent keeps is the
// same slot with another pid. New workers for all slots, while the former ones live, are the daemon's next generation:
// they take the slots, and the former ones keep their flows until they close; if the new ones end first, the former
// ones serve again. Used by `hedgerow steer adopt`.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "steer/adopt/adopted_sockets.h"
#include "steer/kernel_group.h"
#include "steer/slot.h"

namespace hedgerow::steer {

struct Placement {
  struct Fill {
    int slot = 0;
    Transport transport = Transport::kUdp;
    AdoptedSocket socket{};
  };
  std::vector<Slot> slots{};       // by number; behind them the former generations
  std::vector<Fill> fills{};       // sockets that have to be inserted; `slots` has them already
  std::vector<Process> waiting{};  // workers for whose sockets no slot is free
};
// A socket stays in its slot. A new one goes to the slot of its worker's other socket, else to an empty slot, the
// former one of the same process first. `next`: workers that are left over are the next generation. Pure.
Placement Place(const std::vector<Slot>& slots, const std::vector<AdoptedWorker>& found, bool next = false);

// Where the next worker has no socket (a start that failed), the newest of its slot's former ones serves again. Returns
// these slots. Pure.
std::vector<int> ComeBack(std::vector<Slot>& slots);

// One owner's thread.
class AdoptedSlots {
 public:
  // Finds the workers, gives each a slot, inserts their sockets and attaches the programs; the daemon's packets go by
  // the table when this returns. `group`'s table must be written for as many slots as `workers.workers` has; it
  // outlives this.
  static absl::StatusOr<std::unique_ptr<AdoptedSlots>> Adopt(KernelGroup* group, const SocketSearch& search,
                                                             const AdoptedWorkers& workers);

  // Continues the group of a dead supervisor: `slots` are from its record, and their sockets are inserted already.
  static absl::StatusOr<std::unique_ptr<AdoptedSlots>> Resume(KernelGroup* group, const SocketSearch& search,
                                                              const AdoptedWorkers& workers, std::vector<Slot> slots,
                                                              Filters filters = {});

  // Finds closed and new sockets; call it several times a second. Returns a line for each change.
  std::vector<std::string> Poll(absl::Time now);
  // New slots take workers that wait, those included that were started by another command than the daemon's were. Slots
  // that go must be empty, and new ones need a worker: FailedPrecondition, and nothing has changed.
  absl::Status Resize(size_t slots, std::vector<std::string>& lines);
  // Takes the last slots out again.
  void Shrink(size_t slots);
  // Processes that have sockets and no slot, of any command, are the next generation, though they are fewer than the
  // slots. FailedPrecondition: there are none.
  absl::Status Next(std::vector<std::string>& lines);
  // The daemon's sockets are spread by the kernel again, as if nothing had been attached.
  void GiveBack();

  // By number; behind them the former generations.
  std::vector<Slot>& slots() { return slots_; }
  const std::vector<Slot>& slots() const { return slots_; }
  // Those that serve.
  size_t count() const;
  // Those that the group's programs have replaced.
  const Filters& filters() const { return filters_; }
  // Present problems, one sentence each: a process with sockets of the group and without a slot, a foreign program.
  std::vector<std::string> problems() const;

 private:
  AdoptedSlots(KernelGroup* group, const SocketSearch& search) : group_(group), search_(search) {}

  void Know(const AdoptedWorkers& workers);
  absl::Status Attach(Transport transport, int socket);
  net::UniqueFd AnySocket(Transport transport) const;
  void CheckPrograms(std::vector<std::string>& lines);
  void Close(const std::set<uint64_t>& cookies, std::vector<std::string>& lines);
  void RemoveSockets(const Slot& slot);
  absl::StatusOr<AdoptedWorkers> Find(bool any_command, std::vector<std::string>& lines);
  absl::Status Follow(absl::Time now, std::vector<std::string>& lines);
  void Take(Placement placement, std::vector<std::string>& lines);

  KernelGroup* group_;
  SocketSearch search_;
  std::set<std::string> commands_{};  // whose processes belong to the daemon
  std::vector<Slot> slots_{};
  Filters filters_{};
  std::set<uint64_t> cookies_{};  // at the last search; empty: search again
  bool certain_ = true;           // the last search has found each socket's worker, and could take it
  absl::Time failing_since_ = absl::InfiniteFuture();
  absl::Time next_look_ = absl::InfinitePast();
  absl::Time next_check_ = absl::InfinitePast();
  std::vector<std::string> takeovers_{};  // problems_ of the last check of the programs
  std::vector<std::string> problems_{};
};

}  // namespace hedgerow::steer
