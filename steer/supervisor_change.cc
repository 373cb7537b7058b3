// SPDX-License-Identifier: Apache-2.0
//
// The operations of an operator on a supervisor: resize, restart, reload and stop.
#include <signal.h>

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "config/scalar.h"
#include "operate/log.h"
#include "steer/process.h"
#include "steer/supervisor.h"

namespace hedgerow::steer {
absl::StatusOr<v1::Change> Supervisor::Resize(uint32_t workers) {
  if (stopping_) return absl::UnavailableError("the group is ending");
  if (const absl::Status good = CheckWorkers(workers); !good.ok()) return good;
  const int wanted = static_cast<int>(workers);
  const std::map<int, Slot*> present = Serving();
  std::vector<int> added;
  std::vector<MadeSlot*> leaving;
  const auto undo = [&] {
    for (const int place : added) RemoveSockets(place);
    for (MadeSlot* slot : leaving) slot->role = Role::kServing;
  };
  for (int number = 0; number < wanted; ++number) {
    if (present.contains(number)) continue;
    const auto place = AddSlot(number, Role::kServing);
    absl::Status made = place.status();
    if (made.ok()) {
      added.push_back(*place);
      made = table_->SetGeneration(number, slots_.at(*place).generation, true);
    }
    if (!made.ok()) {
      undo();
      return made;
    }
  }
  for (const auto& [number, slot] : present) {
    if (number < wanted) continue;
    leaving.push_back(&ServingSlot(number));
    leaving.back()->role = Role::kFormer;
  }
  const int64_t now = MonotonicNs();
  auto change = ChangeTable(undo);
  if (!change.ok()) return change;
  for (const int place : added) StartWorker(slots_.at(place));
  std::set<int> left;
  for (MadeSlot* slot : leaving) {
    slot->leave_by_ns = now + kQueue_ns;
    left.insert(slot->place());
  }
  kernel_->Leave(left);
  for (auto& [place, slot] : slots_) {
    if (slot.role == Role::kNext && slot.number >= wanted) slot.role = Role::kFormer;
  }
  if (const absl::Status shown = ShowSlots(change->mutable_slots()); !shown.ok()) return shown;
  Tick();
  return change;
}

absl::StatusOr<v1::Slot> Supervisor::RestartWorker(uint32_t number) {
  if (const auto known = FindSlot(number); !known.ok()) return known.status();
  MadeSlot& slot = ServingSlot(static_cast<int>(number));
  if (stopping_) return absl::UnavailableError("the group is ending");
  slot.says_ready = false;  // until one of its workers does again: another daemon may have taken its place
  (void)Save();
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
  return ShowSlot(slot, *counts);
}

absl::StatusOr<v1::Group> Supervisor::Reload(std::optional<uint32_t> number) {
  if (stopping_) return absl::UnavailableError("the group is ending");
  if (number.has_value()) {
    if (const auto known = FindSlot(*number); !known.ok()) return known.status();
  }
  for (const auto& [each, slot] : Serving()) {
    if (!number.has_value() || each == static_cast<int>(*number)) to_reload_.push_back(each);
  }
  reload_problem_.clear();
  StartNext();
  return Show();
}

// One after the other: the machine has one worker more at a time.
void Supervisor::StartNext() {
  while (!to_reload_.empty() && !Has(Role::kNext)) {
    const int number = to_reload_.front();
    to_reload_.erase(to_reload_.begin());
    if (!Serving().contains(number)) continue;
    MadeSlot& present = ServingSlot(number);
    if (!present.has_worker()) {
      present.failures = 0;
      StartWorker(present);
      continue;
    }
    const auto place = AddSlot(number, Role::kNext);
    if (!place.ok()) return FailReload(present, std::string(place.status().message()));
    MadeSlot& next = slots_.at(*place);
    next.says_ready = present.says_ready;
    (void)Save();  // a next supervisor finds the worker by the sockets of a recorded slot
    StartWorker(next);
    if (!next.has_worker()) return FailReload(next, next.last_exit);
  }
  Pace();
}

std::string Supervisor::NotReady(const MadeSlot& next) {
  return next.says_ready ? "the next worker has not said READY=1 within 90 s, as workers of the slot have before; if "
                           "they no longer do, `hedgerow steer restart` it"
                         : "the next worker has not said READY=1 or WATCHDOG=1 within 90 s";
}

void Supervisor::TickNext(MadeSlot& next, int64_t now) {
  if (next.says_ready ? !next.ready : !IsProven(next, now)) {
    if (now - next.started_ns < kReady_ns || next.terminated_ns != 0) return;
    LogWarning("slot ", next.number, ": worker ", next.worker.pid, " is asked to end: ", NotReady(next));
    return Terminate(next);
  }
  MadeSlot& former = ServingSlot(next.number);
  next.weight = former.weight;
  next.drained = former.drained;
  next.restarts = former.restarts;
  former.role = Role::kFormer;
  former.leave_by_ns = now + kQueue_ns;
  next.role = Role::kServing;
  if (const absl::Status changed = table_->SetGeneration(next.number, next.generation, true); !changed.ok()) {
    std::swap(former.role, next.role);
    return FailReload(next, std::string(changed.message()));
  }
  LogInfo("slot ", next.number, ": worker ", next.worker.pid, " serves, and worker ", former.worker.pid,
          " is asked to end its sessions");
  (void)Save();
  StartNext();
}

// What serves is left as it is, and slots that wait for their reload are too.
void Supervisor::FailReload(MadeSlot& slot, const std::string& why) {
  to_reload_.clear();
  reload_problem_ = absl::StrCat("reload: slot ", slot.number, ": ", why, ": worker ",
                                 ServingSlot(slot.number).worker.pid, " serves on");
  if (slot.role == Role::kNext && slot.has_worker()) {
    slot.role = Role::kFormer;  // and is asked to end
  } else if (slot.role == Role::kNext) {
    RemoveSockets(slot.place());
  }
  (void)Save();
}

void Supervisor::BeginStop() {
  const bool again = std::exchange(stopping_, true);
  for (auto& [place, slot] : slots_) {
    if (again && slot.has_worker()) (void)Signal(slot.pidfd, SIGKILL);
    if (!again && slot.role == Role::kFormer) slot.terminated_ns = 0;  // what has time to drain is in a hurry now
    Terminate(slot);
  }
  if (!again)
    LogInfo("ending: workers have ", config::FormatDurationNs(absl::ToInt64Nanoseconds(settings_.stop_timeout)));
  Tick();
}

}  // namespace hedgerow::steer
