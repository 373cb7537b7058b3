// SPDX-License-Identifier: Apache-2.0
//
// What operators ask a supervisor to change: its slots say what is wanted, and the table follows.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "config/scalar.h"
#include "operate/log.h"
#include "steer/process.h"
#include "steer/supervisor.h"

namespace hedgerow::steer {
namespace {

constexpr int64_t kQueue_ns = 1'000'000'000;  // a leaving worker may read its queue for so long before it is asked to end

}  // namespace

Weights Supervisor::WeightsNow() const {
  Weights weights(HR_STEER_SLOTS);
  for (const auto& [number, slot] : slots_) {
    if (!slot.stand_in && !slot.leaving && !slot.drained) weights[static_cast<size_t>(number)] = slot.weight;
  }
  return weights;
}

int Supervisor::CountWorkers() const {
  return static_cast<int>(std::count_if(slots_.begin(), slots_.end(),
                                        [](const auto& each) { return !each.second.stand_in && !each.second.leaving; }));
}

absl::StatusOr<Slot*> Supervisor::FindSlot(uint32_t number) {
  const auto found = slots_.find(static_cast<int>(number));
  if (found != slots_.end()) return &found->second;
  std::vector<std::string> known;
  for (const auto& [each, slot] : slots_) known.push_back(absl::StrCat(each));
  return absl::InvalidArgumentError(absl::StrCat("no slot ", number, "; there are ", absl::StrJoin(known, ", ")));
}

// The slots say what is wanted; `undo` takes that back where it cannot be had.
absl::StatusOr<v1::Change> Supervisor::ChangeWeights(const std::function<void()>& undo) {
  const auto moved = table_->SetWeights(WeightsNow());
  if (!moved.ok()) {
    undo();
    return moved.status();
  }
  LogInfo("table: ", moved->buckets, " buckets moved, ", moved->pinned, " sources stay with their open connections");
  (void)Save();
  v1::Change change;
  change.set_moved_buckets(moved->buckets);
  change.set_fewest_possible(moved->fewest);
  change.set_pinned_sources(moved->pinned);
  const auto counts = kernel_->Counts();
  if (!counts.ok()) return counts.status();
  for (const auto& [number, slot] : slots_) *change.add_slots() = ShowSlot(slot, *counts);
  Pace();
  return change;
}

absl::StatusOr<v1::Change> Supervisor::Resize(uint32_t workers) {
  const int most = settings_.stand_in ? kStandIn : HR_STEER_SLOTS;
  if (stopping_) return absl::UnavailableError("the group is ending");
  if (workers < 1 || workers > static_cast<uint32_t>(most)) {
    return absl::InvalidArgumentError(absl::StrCat("got ", workers, " workers, expected 1 to ", most));
  }
  const int wanted = static_cast<int>(workers);
  std::vector<int> added;
  std::vector<int> leaving;
  const auto undo = [&] {
    for (const int number : added) {
      for (const Transport transport : settings_.transports()) {
        (void)kernel_->Remove(transport, number);
        if (keeper_.has_value()) (void)keeper_->Drop(transport, number);
      }
      slots_.erase(number);
    }
    for (const int number : leaving) slots_.at(number).leaving = false;
  };
  for (int number = 0; number < wanted; ++number) {
    const auto found = slots_.find(number);
    if (found != slots_.end() && found->second.leaving) {
      undo();
      return absl::FailedPreconditionError(absl::StrCat("slot ", number, " still waits for the end of worker ", found->second.worker.pid(),
                                                        ": try again when it has ended, at the latest ",
                                                        config::FormatDurationNs(absl::ToInt64Nanoseconds(settings_.stop_timeout)),
                                                        " after it was asked to"));
    }
    if (found != slots_.end()) continue;
    if (const absl::Status made = AddSlot(number, false); !made.ok()) {
      undo();
      return made;
    }
    added.push_back(number);
  }
  for (auto& [number, slot] : slots_) {
    if (slot.stand_in || slot.leaving || number < wanted) continue;
    slot.leaving = true;
    leaving.push_back(number);
  }
  const int64_t now = MonotonicNs();
  auto change = ChangeWeights(undo);
  if (!change.ok()) return change;
  for (const int number : added) StartWorker(slots_.at(number));
  for (const int number : leaving) slots_.at(number).leave_by_ns = now + kQueue_ns;
  const auto counts = kernel_->Counts();
  if (!counts.ok()) return counts.status();
  change->clear_slots();
  for (const auto& [number, slot] : slots_) *change->add_slots() = ShowSlot(slot, *counts);
  Tick();
  return change;
}

absl::StatusOr<v1::Change> Supervisor::SetWeights(const std::vector<double>& weights) {
  if (static_cast<int>(weights.size()) != CountWorkers()) {
    return absl::InvalidArgumentError(absl::StrCat("got ", weights.size(), " weights, expected one for each of the ", CountWorkers(), " slots"));
  }
  std::map<int, double> former;
  for (auto& [number, slot] : slots_) {
    if (slot.stand_in || slot.leaving) continue;
    former[number] = std::exchange(slot.weight, weights[static_cast<size_t>(number)]);
  }
  return ChangeWeights([&] {
    for (const auto& [number, weight] : former) slots_.at(number).weight = weight;
  });
}

absl::StatusOr<v1::Change> Supervisor::Drain(uint32_t number, bool drain) {
  const auto slot = FindSlot(number);
  if (!slot.ok()) return slot.status();
  if ((*slot)->stand_in) return absl::InvalidArgumentError("the stand-in has no buckets of its own");
  if ((*slot)->leaving) return absl::FailedPreconditionError(absl::StrCat("slot ", number, " is about to go"));
  const bool former = std::exchange((*slot)->drained, drain);
  return ChangeWeights([&] { (*slot)->drained = former; });
}

absl::StatusOr<v1::Slot> Supervisor::RestartWorker(uint32_t number) {
  const auto found = FindSlot(number);
  if (!found.ok()) return found.status();
  Slot& slot = **found;
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
  return ShowSlot(slot, *counts);
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

absl::StatusOr<v1::StopReply> Supervisor::Stop() {
  v1::StopReply reply;
  reply.set_pid(getpid());
  loop_->Post([this] { BeginStop(); });
  return reply;
}

void Supervisor::BeginStop() {
  for (auto& [number, slot] : slots_) {
    if (stopping_ && slot.has_worker()) (void)Signal(slot.pidfd, SIGKILL);
    Terminate(slot);
  }
  if (!stopping_) LogInfo("ending: workers have ", config::FormatDurationNs(absl::ToInt64Nanoseconds(settings_.stop_timeout)));
  stopping_ = true;
  Tick();
}

}  // namespace hedgerow::steer
