// SPDX-License-Identifier: Apache-2.0
//
// What a supervisor reports of its group.
#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "steer/process.h"
#include "steer/socket_state.h"
#include "steer/supervisor.h"

namespace hedgerow::steer {
namespace {

constexpr int kFailing = 4;  // ends in a row, each soon after its start, that are a problem

}  // namespace

std::map<int, Share*> Supervisor::Shares() {
  std::map<int, Share*> shares;
  for (auto& [place, slot] : slots_) {
    if (slot.role == Role::kServing) shares[slot.number] = &slot;
  }
  return shares;
}

Slot& Supervisor::Serving(int number) {
  for (int generation = 0; generation < HR_STEER_GENERATIONS; ++generation) {
    const auto found = slots_.find(PlaceOf(number, generation));
    if (found != slots_.end() && found->second.role == Role::kServing) return found->second;
  }
  std::abort();  // every number is of Shares()
}

bool Supervisor::Has(Role role) const {
  return std::any_of(slots_.begin(), slots_.end(), [role](const auto& each) { return each.second.role == role; });
}

std::string Supervisor::WorkersText() {
  const int workers = CountWorkers();
  return absl::StrCat(workers, workers == 1 ? " worker" : " workers");
}

std::string Supervisor::StateOf(const Slot& slot) const {
  if (slot.role != Role::kServing) return slot.role == Role::kNext ? "starting" : "leaving";
  if (!slot.has_worker()) return table_->IsEmpty(slot.number) ? "empty" : "restarting";
  if (slot.is_silent) return "silent";
  if (settings_.heartbeat > absl::ZeroDuration() && !slot.heard) return "starting";
  return slot.drained ? "drained" : "serving";
}

v1::Slot Supervisor::ShowWorker(int number) const { return ShowPair(Serving(number)); }

v1::Slot Supervisor::ShowPair(const Slot& slot) const {
  v1::Slot out;
  out.set_slot(static_cast<uint32_t>(slot.number));
  out.set_generation(static_cast<uint32_t>(slot.generation));
  out.set_pid(slot.worker.pid);
  out.set_state(StateOf(slot));
  out.set_restarts(slot.restarts);
  const int64_t since = !slot.has_worker() ? slot.down_since_ns : slot.is_silent ? slot.heard_ns : slot.started_ns;
  out.set_seconds_in_state(static_cast<double>(MonotonicNs() - since) / 1e9);
  if (settings_.udp) {
    const UdpSocketState state = UdpState(slot.fd(Transport::kUdp));
    out.set_udp_dropped(state.dropped);
    out.set_udp_queued_bytes(state.queued_bytes);
  }
  if (settings_.tcp) out.set_tcp_backlog(TcpBacklog(slot.fd(Transport::kTcp)));
  out.set_last_exit(slot.last_exit);
  return out;
}

v1::RecordedSlot Supervisor::RecordWorker(int number) const { return RecordPair(Serving(number)); }

v1::RecordedSlot Supervisor::RecordPair(const Slot& slot) const {
  v1::RecordedSlot out;
  out.set_slot(static_cast<uint32_t>(slot.number));
  out.set_generation(static_cast<uint32_t>(slot.generation));
  out.set_leaving(slot.role != Role::kServing);
  *out.mutable_worker() = ToRecord(slot.worker);
  out.set_restarts(slot.restarts);
  out.set_last_exit(slot.last_exit);
  return out;
}

// A next worker whose supervisor dies is no one's successor: the next supervisor has it end as a former one.
void Supervisor::Record(v1::Record& record) const {
  for (const auto& [place, slot] : slots_) {
    if (slot.role != Role::kServing) *record.add_slots() = RecordPair(slot);
  }
}

void Supervisor::ShowFormer(v1::Group& group) const {
  for (const auto& [place, slot] : slots_) {
    if (slot.role != Role::kServing) *group.add_others() = ShowPair(slot);
  }
  group.set_reloading(!to_reload_.empty() || Has(Role::kNext));
}

std::vector<std::string> Supervisor::Problems() const {
  std::vector<std::string> problems = watch_->problems();
  problems.push_back(reload_problem_);
  for (const auto& [place, slot] : slots_) {
    const int number = slot.number;
    if (slot.role != Role::kServing) continue;
    if (settings_.udp && slot.has_worker() && IsSpoilt(slot.fd(Transport::kUdp))) {
      problems.push_back(
          absl::StrCat("slot ", number, ": worker ", slot.worker.pid,
                       " has connected its UDP socket, or shut it down: sources do not reach it until it ends"));
    }
    if (slot.is_silent)
      problems.push_back(absl::StrCat("slot ", number, ": worker ", slot.worker.pid, " sends no WATCHDOG=1"));
    if (slot.failures >= kFailing) {
      problems.push_back(absl::StrCat("slot ", number, ": its worker has ended ", slot.failures,
                                      " times in a row soon after its start (", slot.last_exit, ")"));
    }
  }
  return problems;
}

}  // namespace hedgerow::steer
