// SPDX-License-Identifier: Apache-2.0
//
// The operations of an operator on a supervisor: resize, restart, reattach and stop.
#include <signal.h>

#include "absl/strings/str_cat.h"
#include "config/scalar.h"
#include "operate/log.h"
#include "steer/process.h"
#include "steer/supervisor.h"

namespace hedgerow::steer {
namespace {

constexpr int64_t kQueue_ns = 1'000'000'000;  // time for a leaving worker to read its queue, before SIGTERM

}  // namespace

absl::StatusOr<v1::Change> Supervisor::Resize(uint32_t workers) {
  if (stopping_) return absl::UnavailableError("the group is ending");
  if (workers < 1 || workers > HR_STEER_SLOTS) {
    return absl::InvalidArgumentError(absl::StrCat("got ", workers, " workers, expected 1 to ", HR_STEER_SLOTS));
  }
  const int wanted = static_cast<int>(workers);
  std::vector<int> added;
  std::vector<int> leaving;
  const auto undo = [&] {
    for (const int number : added) RemoveSockets(number);
    for (const int number : leaving) slots_.at(number).leaving = false;
  };
  for (int number = 0; number < wanted; ++number) {
    const auto found = slots_.find(number);
    if (found != slots_.end() && found->second.leaving) {
      undo();
      return absl::FailedPreconditionError(absl::StrCat(
          "slot ", number, " still waits for the end of worker ", found->second.worker.pid,
          ": try again when it has ended, at the latest ",
          config::FormatDurationNs(absl::ToInt64Nanoseconds(settings_.stop_timeout)), " after it was asked to"));
    }
    if (found != slots_.end()) continue;
    if (const absl::Status made = AddSlot(number); !made.ok()) {
      undo();
      return made;
    }
    added.push_back(number);
  }
  for (auto& [number, slot] : slots_) {
    if (slot.leaving || number < wanted) continue;
    slot.leaving = true;
    leaving.push_back(number);
  }
  const int64_t now = MonotonicNs();
  auto change = ChangeTable(undo);
  if (!change.ok()) return change;
  for (const int number : added) StartWorker(slots_.at(number));
  for (const int number : leaving) slots_.at(number).leave_by_ns = now + kQueue_ns;
  if (const absl::Status shown = ShowSlots(change->mutable_slots()); !shown.ok()) return shown;
  Tick();
  return change;
}

absl::StatusOr<v1::Slot> Supervisor::RestartWorker(uint32_t number) {
  if (const auto known = FindShare(number); !known.ok()) return known.status();
  Slot& slot = slots_.at(static_cast<int>(number));
  if (stopping_ || slot.leaving) return absl::FailedPreconditionError(absl::StrCat("slot ", number, " is about to go"));
  if (slot.has_worker()) {
    slot.restart_asked = true;
    Terminate(slot);
  } else {
    slot.failures = 0;
    StartWorker(slot);
  }
  Pace();
  const auto counts = kernel_->Counts();
  if (!counts.ok()) return counts.status();
  return ShowSlot(slot.number, slot, *counts);
}

absl::StatusOr<v1::Group> Supervisor::Reattach() {
  for (const Transport transport : settings_.transports()) {
    const std::vector<int> sockets = FdsOf(transport);
    const auto program = kernel_->ProgramOf(sockets.front());
    if (!program.ok()) return program.status();
    if (*program == kernel_->OwnProgram(transport)) continue;
    if (const absl::Status attached = kernel_->Attach(transport, sockets.front()); !attached.ok()) return attached;
  }
  LookAround();
  return Show(false);
}

void Supervisor::BeginStop() {
  for (auto& [number, slot] : slots_) {
    if (stopping_ && slot.has_worker()) (void)Signal(slot.pidfd, SIGKILL);
    Terminate(slot);
  }
  if (!stopping_)
    LogInfo("ending: workers have ", config::FormatDurationNs(absl::ToInt64Nanoseconds(settings_.stop_timeout)));
  stopping_ = true;
  Tick();
}

}  // namespace hedgerow::steer
